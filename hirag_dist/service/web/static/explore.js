// Walking through the graph: one entity's card at a time, what is in view of the graph, and paths between two.

import { tell } from "./advice.js";
import { call, Trouble } from "./api.js";
import { communityCard, entityCard } from "./cards.js";
import { by, h, many } from "./dom.js";
import { go } from "./session.js";
import { STEP, Walk } from "./walk.js";
import { WalkView } from "./walk-view.js";

const LISTS = { max_relations: 40, max_sources: 10, max_members: 100 };
const MOST = 500; // of a list

/**
 * The view: `suggestions()` are entities to begin with, `ask(text)` puts a question into the form, `failed(trouble)` says
 * what went wrong where no card can.
 */
export class Explorer {
  constructor({ suggestions, ask, failed }) {
    Object.assign(this, { suggestions, ask, failed, walk: new Walk(), card: null, limits: new Map(), busy: null, map: "" });
    const acts = ["select", "expand", "collapse", "drop", "from", "to", "community", "members", "more"];
    this.acts = Object.fromEntries(acts.map((name) => [name, (...given) => this[name](...given)]));
    this.acts.ask = (entity) => ask(`What is known about ${entity.name}?`);
    this.view = new WalkView(this.walk, this.acts);
    by("walk-canvas").prepend(this.view.graph.element, this.view.tools, this.view.tables);
    by("find").addEventListener("submit", (event) => this.given(event, () => this.select(by("find-name").value.trim())));
    by("path").addEventListener("submit", (event) => this.given(event, () => this.path()));
    by("walk-clear").addEventListener("click", () => this.clear());
    for (const one of by("walk-as").querySelectorAll("button")) one.addEventListener("click", () => this.as(one));
    for (const end of ["from", "to"]) by(`path-${end}`).addEventListener("input", (event) => delete event.currentTarget.dataset.id);
    this.draw();
  }

  given(event, act) {
    event.preventDefault();
    act();
  }

  as(button) {
    for (const one of by("walk-as").querySelectorAll("button")) one.setAttribute("aria-pressed", String(one === button));
    this.view.asTables(button.value === "table");
  }

  say(text) {
    by("status").textContent = text;
  }

  /** Shows what an address names. */
  open({ entity, community }) {
    if (entity && this.card?.entity?.entity_id !== entity) this.select(entity, { step: false });
    else if (community && this.card?.community?.community_id !== community) this.community(community, { step: false });
    else this.draw();
  }

  clear() {
    this.walk.clear();
    this.card = null;
    by("path").hidden = true;
    go({ view: "explore" }, { step: true });
    this.draw();
    by("find-name").focus();
  }

  /** A call; what goes wrong is said in the card. Null where it failed or another one took its place. */
  async asked(method, request) {
    this.busy?.abort();
    const mine = new AbortController();
    this.busy = mine;
    by("walk-card").setAttribute("aria-busy", "true");
    try {
      const reply = await call(method, request, mine.signal);
      by("trouble").hidden = true;
      return reply;
    } catch (error) {
      if (error.name === "AbortError") return null;
      const trouble = error instanceof Trouble ? error : new Trouble("Page", `${error.name}: ${error.message}`);
      if (!this.walk.nodes.size || trouble.kind === "Unauthenticated") this.failed(trouble);
      else {
        const box = h("div", { class: "trouble", role: "alert" });
        tell(box, trouble, null);
        by("walk-card").replaceChildren(box);
        this.card = null;
      }
      return null;
    } finally {
      if (this.busy === mine) by("walk-card").removeAttribute("aria-busy");
    }
  }

  limit(id, field) {
    return this.limits.get(`${id} ${field}`) ?? LISTS[field];
  }

  async entity(id) {
    const known = this.walk.cards.get(id);
    return known ?? this.asked("GetEntity", { entity: id, max_relations: this.limit(id, "max_relations"), max_sources: this.limit(id, "max_sources") });
  }

  /** Shows an entity's card, by id or name. The first one in view brings its neighbours with it. */
  async select(id, { focus = false, step = true } = {}) {
    if (!id) return;
    const from = this.card?.entity?.entity_id ?? null;
    const card = await this.entity(id);
    if (!card) return;
    const alone = !this.walk.nodes.size;
    if (!this.walk.nodes.has(card.entity.entity_id)) this.walk.add(card.entity, from);
    this.walk.learn(card);
    if (alone) this.walk.expand(card.entity.entity_id);
    this.card = card;
    by("find-name").value = card.entity.name;
    go({ view: "explore", entity: card.entity.entity_id }, { step });
    this.draw();
    this.say(`${card.entity.name}: ${many(card.relation_count, "relation")}, ${many(card.source_count, "passage")}.`);
    this.bring(focus);
  }

  /** Shows a community's card. */
  async community(id, { focus = false, step = true } = {}) {
    const card = await this.asked("GetCommunity", { community_id: id, max_members: this.limit(id, "max_members") });
    if (!card) return;
    this.card = card;
    go({ view: "explore", community: id }, { step });
    this.draw();
    this.say(`Community ${card.community.title}: ${many(card.member_count, "member")}.`);
    this.bring(focus);
  }

  /** Brings the card into view where it is below the fold, as on a phone; the focus goes to it if asked for. */
  bring(focus) {
    if (by("walk-card").getBoundingClientRect().top > innerHeight * 0.6) by("walk-stage").scrollIntoView({ block: "start" });
    by("walk-card").scrollTop = 0;
    if (focus) by("walk-card").querySelector(".card-title")?.focus({ preventScroll: true });
  }

  async expand(id, way = "neighbours") {
    const card = await this.entity(id);
    if (!card) return;
    this.walk.learn(card);
    const added = this.walk.expand(id, way);
    this.card = card;
    this.draw();
    const left = this.walk.hidden(id, way).length;
    this.say(added ? `${many(added, "entity", "entities")} added${left ? `, ${left} more are not in view` : ""}.` : "All of them are in view.");
  }

  collapse(id) {
    const gone = this.walk.collapse(id);
    this.draw();
    this.say(`${many(gone, "entity", "entities")} taken out of view.`);
  }

  drop(id) {
    this.walk.drop(id);
    if (this.card?.entity?.entity_id === id) this.card = null;
    this.draw();
  }

  /** Brings members of a community into view. */
  members(card) {
    const hidden = card.members.filter((one) => !this.walk.nodes.has(one.entity_id)).slice(0, STEP);
    for (const one of hidden) this.walk.add(one);
    this.walk.tie();
    this.draw();
    this.say(`${many(hidden.length, "member")} added.`);
  }

  /** Loads a longer list of a card. */
  more(id, field) {
    this.limits.set(`${id} ${field}`, Math.min(MOST, this.limit(id, field) * 5));
    this.walk.cards.delete(id);
    return field === "max_members" ? this.community(id, { step: false }) : this.select(id, { step: false });
  }

  from(entity) {
    this.end("from", entity);
  }

  to(entity) {
    this.end("to", entity);
  }

  /** Takes an entity as an end of the path; finds the path once both are there. */
  end(name, entity) {
    const input = by(`path-${name}`);
    input.value = entity.name;
    input.dataset.id = entity.entity_id;
    by("path").hidden = false;
    const other = by(name === "from" ? "path-to" : "path-from");
    if (other.value) this.path();
    else {
      this.say(`Path ${name} ${entity.name}: choose the other end in the graph, or write its name.`);
      other.focus();
    }
  }

  async path() {
    const ends = ["from", "to"].map((name) => by(`path-${name}`).dataset.id ?? by(`path-${name}`).value.trim());
    if (!ends.every(Boolean)) return;
    const found = await this.asked("FindPath", { source: ends[0], target: ends[1] });
    if (!found) return;
    if (!found.path.connected) {
      by("walk-card").replaceChildren(h("p", { class: "kicker" }, "Path"), h("h2", { class: "card-title", tabindex: "-1" }, "No path connects them"), h("p", {}, h("b", { dir: "auto" }, by("path-from").value), " and ", h("b", { dir: "auto" }, by("path-to").value), " lie in parts of the graph that nothing connects."));
      return;
    }
    this.walk.follow(found);
    this.card = { path: found };
    this.draw();
    this.say(`A path of ${many(found.triples.length, "relation")}: ${found.path.entity_names.join(", ")}.`);
    this.bring(true);
  }

  draw() {
    const empty = !this.walk.nodes.size;
    by("walk-stage").hidden = empty && !this.card;
    by("walk-start").hidden = !(empty && !this.card);
    if (!by("walk-start").hidden) this.drawStart();
    const selected = this.card?.entity?.entity_id ?? null;
    this.view.draw(selected);
    if (this.walk.path && !selected) this.lightPath();
    this.drawCard();
  }

  /** Draws the card; the focus stays on a button that is still there, else it goes to the title. */
  drawCard() {
    const card = by("walk-card");
    const focused = card.contains(document.activeElement) ? document.activeElement.textContent : null;
    card.replaceChildren(...this.cardOf());
    if (focused === null) return;
    const same = Array.from(card.querySelectorAll("button")).find((one) => one.textContent === focused);
    (same ?? card.querySelector(".card-title") ?? card).focus({ preventScroll: true });
  }

  cardOf() {
    if (this.card?.entity) return entityCard(this.card, this.acts, (id, way) => this.walk.hidden(id, way).length).filter(Boolean);
    if (this.card?.community) return communityCard(this.card, this.acts).filter(Boolean);
    if (this.card?.path) return this.pathCard(this.card.path);
    return [h("p", { class: "soft" }, "Choose an entity to see its card.")];
  }

  pathCard({ entities, triples }) {
    const rows = entities.flatMap((entity, step) => [
      step ? h("li", { class: "between", dir: "auto" }, triples[step - 1]?.description || "related") : null,
      h("li", {}, h("button", { type: "button", class: "link", dir: "auto", onclick: () => this.select(entity.entity_id, { focus: true }) }, entity.name)),
    ]);
    return [h("p", { class: "kicker" }, `Path of ${many(triples.length, "relation")}`), h("h2", { class: "card-title", tabindex: "-1", dir: "auto" }, `${entities[0].name} → ${entities.at(-1).name}`), h("ol", { class: "steps" }, rows)];
  }

  lightPath() {
    const ids = this.view.ids;
    const keys = [...this.walk.edges.keys()];
    const wanted = new Set(this.walk.path.edges);
    this.view.graph.light?.({ nodes: new Set(this.walk.path.nodes.map((id) => ids.indexOf(id))), edges: new Set(keys.flatMap((key, at) => (wanted.has(key) ? [at] : []))) });
  }

  drawStart() {
    const begin = this.suggestions().slice(0, 12);
    by("walk-suggestions").replaceChildren(...begin.map((one) => h("button", { type: "button", class: "chip-link", dir: "auto", onclick: () => this.select(one.entity_id, { focus: true }) }, one.name)));
    by("walk-suggested").hidden = !begin.length;
  }
}
