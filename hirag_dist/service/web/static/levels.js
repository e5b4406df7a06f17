// Local, global, claims, and sources: lists whose items open.

import { address, count, h, many, score, shorten } from "./dom.js";
import { communityLink, documentButton, entityLink } from "./items.js";
import { marked } from "./passages.js";

const SHOWN = 8; // of a list, before it is asked to show all

/** A list that shows its first items, and all of them when asked. */
export function list(items, label) {
  const ordered = h("ol", { class: "items", "data-more": items.length > SHOWN }, items.map((item, at) => h("li", { hidden: at >= SHOWN }, item)));
  if (items.length <= SHOWN) return [ordered];
  const more = h("button", { type: "button", class: "more" }, `Show all ${count(items.length)} ${label}`);
  const all = () => {
    for (const item of ordered.children) item.hidden = false;
    more.remove();
  };
  more.addEventListener("click", () => {
    all();
    ordered.children[SHOWN].querySelector("summary")?.focus();
  });
  ordered.addEventListener("show-all", all);
  return [ordered, more];
}

/** A bar for a score between 0 and 1, or whatever the top is. */
export function meter(value, top = 1) {
  if (typeof value !== "number") return null;
  const bar = h("span", { class: "meter", "aria-hidden": "true" }, h("i"));
  bar.firstChild.style.width = `${Math.max(0, Math.min(1, value / top)) * 100}%`;
  return bar;
}

/** A mark for an entity's layer. */
export function layerMark(layer) {
  const title = layer === 0 ? "Layer 0: found in the texts" : `Layer ${layer}: sums up entities of layer ${layer - 1}`;
  return h("span", { class: `layer l${Math.min(layer, 7)}`, title }, layer === 0 ? "text" : layer === 1 ? "summary" : `summary ${layer}`);
}

export function head(id, title, about, number) {
  return h("div", { class: "head" }, h("h2", { id: `${id}-title` }, title, number === null ? null : h("span", { class: "number" }, count(number))), h("p", { class: "soft" }, about));
}

/** A title with a small word after it. */
export function title(text, word) {
  return h("span", { class: "name" }, h("b", { dir: "auto" }, text), " ", h("small", {}, word));
}

function none(text) {
  return h("p", { class: "none" }, text);
}

function entity(item) {
  const kind = item.matched === "name" ? `${item.type}, named in the question` : item.type;
  return h(
    "details",
    { "data-item": item.entity_id },
    h("summary", {}, layerMark(item.layer), title(item.name, kind), h("span", { class: "end" }, meter(item.score), h("span", { class: "figure" }, score(item.score)))),
    h("p", { dir: "auto", class: "body" }, item.description || "No description."),
    h("p", { class: "acts" }, entityLink(item.entity_id)),
  );
}

export function drawLocal(section, retrieval, searched) {
  section.replaceChildren(
    head("local", "Entities", "Those that the question names, then those nearest to it, with their similarity to the question.", retrieval.local.length),
    ...(retrieval.local.length ? list(retrieval.local.map(entity), "entities") : [none(searched ? "No entity was found." : "This mode does not look for entities.")]),
  );
}

function community(item) {
  return h(
    "details",
    { "data-item": item.community_id },
    h("summary", {}, h("span", { class: "level", title: "Level of the community; 0 is the coarsest" }, `level ${item.level}`), title(item.title || "Without a title", `holds ${many(item.hits, "entity", "entities")} found`), h("span", { class: "end", title: "Rating of importance, 0 to 10" }, meter(item.rating, 10), h("span", { class: "figure" }, typeof item.rating === "number" ? item.rating.toFixed(1) : "–"))),
    h("p", { dir: "auto", class: "body" }, item.report || "No report was written on this community."),
    h("p", { class: "acts" }, communityLink(item.community_id)),
  );
}

export function drawGlobal(section, retrieval, searched) {
  section.replaceChildren(
    head("global", "Reports", "What was written about the groups that hold those entities, with a rating of importance.", retrieval.communities.length),
    ...(retrieval.communities.length ? list(retrieval.communities.map(community), "communities") : [none(searched ? "No community was found." : "This mode does not look for communities.")]),
  );
}

/** When a claim holds, as far as it is told: "1843-12-24", "since 1843", "1843 – 1845". */
function period(item) {
  if (item.start_date && item.end_date) return item.start_date === item.end_date ? item.start_date : `${item.start_date} – ${item.end_date}`;
  return item.start_date ? `since ${item.start_date}` : item.end_date && `until ${item.end_date}`;
}

function claim(item) {
  const facts = [["Status", item.status], ["When", period(item)], ["Words of the text", item.source_text]];
  return h(
    "details",
    { "data-item": item.claim_id },
    h("summary", {}, h("span", { class: "name" }, title(item.object ? `${item.subject} → ${item.object}` : item.subject, item.type), h("span", { class: "preview", dir: "auto" }, shorten(item.description, 180)))),
    h("p", { dir: "auto", class: "body" }, item.description || "No description."),
    h("dl", {}, facts.filter(([, said]) => said).map(([name, said]) => [h("dt", {}, name), h("dd", { dir: "auto" }, said)])),
  );
}

/** Claims about the local entities; hidden where there are none, as most indexes hold none. */
export function drawClaims(section, retrieval) {
  section.hidden = !retrieval.claims.length;
  section.replaceChildren(head("claims", "Claims", "What the texts claim of those entities, true or not.", retrieval.claims.length), ...list(retrieval.claims.map(claim), "claims"));
}

/** Where in its document a passage stands: pages and the like where the reader kept them, else characters. */
export function whereabouts(item) {
  const shown = [...new Set((item.places ?? []).map((one) => one.display).filter(Boolean))];
  const ends = shown.length > 2 ? `${shown[0]} – ${shown.at(-1)}` : shown.join(", ");
  return ends || `characters ${count(item.start)}–${count(item.end)}`;
}

/** The same, unless it only repeats the title. */
function placeOf(item) {
  const place = whereabouts(item);
  return place === item.title ? `characters ${count(item.start)}–${count(item.end)}` : place;
}

/** The address of the original at the place of a passage, or of the document; empty where there is none. */
export function original(item) {
  return (item.places ?? []).map((one) => one.link).find(Boolean) ?? item.uri ?? "";
}

/** A passage as an element; what supports a statement is marked. */
export function passage(item, near = null) {
  const text = item.text || "The text was not sent.";
  return h("p", { dir: "auto", class: "body passage" }, ...(near ? marked(text, item.start, near) : [text]));
}

/** A passage as an item that opens; `near(item)` is what the answer says of it: {text, places}, or null. */
export function source(item, near = () => null) {
  const open = (event) => {
    const { currentTarget: details } = event;
    if (!details.open) return;
    const shown = passage(item, near(item));
    details.querySelector(".passage").replaceWith(shown);
    const mark = shown.querySelector("mark");
    if (mark) shown.scrollTop = mark.offsetTop - shown.offsetTop - shown.clientHeight / 3;
  };
  const link = original(item);
  const facts = Object.entries(item.metadata ?? {}).map(([name, value]) => [name, Array.isArray(value) ? value.join(", ") : String(value)]);
  return h(
    "details",
    { "data-item": item.chunk_id, ontoggle: open },
    h("summary", {}, h("span", { class: "name" }, title(item.title || "Untitled document", placeOf(item)), facts.length ? h("small", { class: "facts", dir: "auto" }, facts.slice(0, 4).map(([, value]) => shorten(value, 60)).join(" · ")) : null, h("span", { class: "preview", dir: "auto" }, shorten(item.text, 180)))),
    h("dl", {}, facts.map(([name, value]) => [h("dt", {}, name), h("dd", { dir: "auto" }, value)]), h("dt", {}, "Characters"), h("dd", {}, `${count(item.start)}–${count(item.end)}`), link ? [h("dt", {}, "From"), h("dd", {}, address(link, item.uri || link))] : null, h("dt", {}, "Document"), h("dd", {}, h("code", {}, item.document_id))),
    passage(item),
    h("p", { class: "acts" }, documentButton(item, () => near(item))),
  );
}

/** The passages of a result; those that the answer cites, by `cited`, their ids in its order, stand first. */
export function drawSources(section, retrieval, waiting, near, cited = []) {
  const items = retrieval.sources;
  const first = cited.map((id) => items.find((item) => item.chunk_id === id)).filter(Boolean);
  const others = items.filter((item) => !first.includes(item));
  const shown = (some, label) => list(some.map((item) => source(item, near)), label);
  const parts = first.length && others.length ? [h("h3", {}, "Cited"), ...shown(first, "cited passages"), h("h3", {}, "Also found"), ...shown(others, "other passages")] : shown(items, "passages");
  const about = first.length ? "The passages that the answer cites, then the others that were found." : "The passages that were found, best first.";
  section.replaceChildren(head("sources", "Sources", about, items.length), ...(items.length ? parts : [h("p", { class: "none" }, waiting ? "Looking …" : "No passage was found.")]));
}
