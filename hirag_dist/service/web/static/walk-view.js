// The walked part of the graph, drawn: as a graph whose nodes take the focus, and as tables that say the same.

import { h, many, shorten } from "./dom.js";
import { Graph, graphTools } from "./graph.js";
import { layerMark } from "./levels.js";
import { edgeKey } from "./walk.js";

/** Draws a walk. `acts` are {select(id), expand(id), collapse(id), drop(id)}. */
export class WalkView {
  constructor(walk, acts) {
    Object.assign(this, { walk, acts, selected: null, ids: [] });
    const label = "Graph of the entities in view. Arrow keys go from one to the next, Enter shows its card, plus expands it, minus collapses it, Delete removes it. The table says the same in words.";
    this.graph = new Graph({ label, keys: true, chosen: (at) => acts.select(this.ids[at]), pressed: (at, key) => this.pressed(at, key) });
    this.tables = h("div", { class: "tables", hidden: true });
    this.tools = graphTools(this.graph);
  }

  pressed(at, key) {
    const act = { "+": "expand", "=": "expand", "-": "collapse", Delete: "drop", Backspace: "drop" }[key];
    if (!act) return false;
    this.acts[act](this.ids[at]);
    return true;
  }

  /** Shows the tables in place of the graph, or the graph. */
  asTables(wanted) {
    this.tables.hidden = !wanted;
    for (const one of [this.graph.element, this.tools]) one.toggleAttribute("hidden", wanted);
    this.draw(this.selected);
  }

  /** Draws what is in view, one entity of it selected. */
  draw(selected) {
    this.selected = selected;
    const { walk } = this;
    const ids = [...walk.nodes.keys()];
    this.ids = ids;
    const at = new Map(ids.map((id, place) => [id, place]));
    const onPath = new Set(walk.path?.nodes ?? []);
    const pathEdges = new Set(walk.path?.edges ?? []);
    const degree = new Map(ids.map((id) => [id, walk.links(id).length]));
    const nodes = ids.map((id) => {
      const { entity } = walk.nodes.get(id);
      const more = walk.hidden(id).length;
      const facts = [entity.type, `layer ${entity.layer}`, more ? `${more} more neighbours` : ""].filter(Boolean).join(" · ");
      const kind = [`l${Math.min(entity.layer, 7)}`, walk.cards.has(id) ? "key" : "", id === selected ? "selected" : "", onPath.has(id) ? "onpath" : ""].join(" ");
      const rank = id === selected ? -2 : onPath.has(id) ? -1 : 1e4 - degree.get(id) - (walk.cards.has(id) ? 100 : 0);
      return { id, name: entity.name, kind, badge: null, share: id === selected ? 1 : entity.layer ? 0.85 : 0.65, rank, label: `${entity.name}, ${facts}${id === selected ? ", selected" : ""}`, hint: () => [entity.name, facts, shorten(entity.description, 240)] };
    });
    const edges = [...walk.edges].map(([key, edge]) => ({ a: at.get(edge.a), b: at.get(edge.b), missing: false, kind: `${edge.kind === "extracted" ? "onpath" : "upward"}${pathEdges.has(key) ? " taken" : ""}`, hint: () => this.edgeHint(edge) }));
    if (this.tables.hidden) this.graph.show({ nodes, edges });
    else this.drawTables(ids);
  }

  edgeHint(edge) {
    const [a, b] = [edge.a, edge.b].map((id) => this.walk.nodes.get(id).entity.name);
    const triple = edge.triples[0];
    return [`${a} — ${b}`, triple ? `${triple.kind}, weight ${triple.weight.toFixed(1)}` : "summary and member", triple ? shorten(triple.description, 320) : ""];
  }

  drawTables(ids) {
    const button = (text, label, act) => h("button", { type: "button", class: "act", "aria-label": label, onclick: act }, text);
    const rows = ids.map((id) => {
      const { entity } = this.walk.nodes.get(id);
      const act = (name) => button(name[0].toUpperCase() + name.slice(1), `${name} ${entity.name}`, () => this.acts[name === "remove" ? "drop" : name](id));
      return h("tr", { "aria-selected": id === this.selected ? "true" : null, class: id === this.selected ? "selected" : null }, h("th", { scope: "row" }, h("button", { type: "button", class: "link", dir: "auto", onclick: () => this.acts.select(id) }, entity.name)), h("td", {}, entity.type), h("td", {}, layerMark(entity.layer)), h("td", { class: "figure" }, String(this.walk.links(id).length)), h("td", { class: "acts" }, act("expand"), act("collapse"), act("remove")));
    });
    const lines = [...this.walk.edges.values()].map((edge) => {
      const [a, b] = [edge.a, edge.b].map((id) => this.walk.nodes.get(id).entity.name);
      const taken = this.walk.path?.edges.includes(edgeKey(edge.a, edge.b));
      return h("tr", { class: taken ? "selected" : null }, h("th", { scope: "row", dir: "auto" }, a), h("td", {}, taken ? `${edge.kind}, on the path` : edge.kind), h("td", { dir: "auto" }, b), h("td", { dir: "auto" }, shorten(edge.triples[0]?.description ?? "", 160)));
    });
    const table = (caption, heads, body) => h("table", {}, h("caption", {}, caption), h("thead", {}, h("tr", {}, heads.map((one) => h("th", { scope: "col" }, one)))), h("tbody", {}, body));
    const inside = this.tables.contains(document.activeElement);
    const focused = inside && (document.activeElement.ariaLabel ?? document.activeElement.textContent);
    this.tables.replaceChildren(
      table(`${many(rows.length, "entity", "entities")} in view`, ["Entity", "Type", "Layer", "Relations", "Actions"], rows),
      table(`${many(lines.length, "relation")} between them`, ["From", "Kind", "To", "Description"], lines),
    );
    if (!inside) return;
    const buttons = Array.from(this.tables.querySelectorAll("button"));
    (buttons.find((one) => (one.ariaLabel ?? one.textContent) === focused) ?? buttons[0])?.focus();
  }
}
