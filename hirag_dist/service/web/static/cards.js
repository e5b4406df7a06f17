// The card of an entity and of a community: what it is, and where one can go from it.

import { count, h, many, shorten } from "./dom.js";
import { layerMark, list, source } from "./levels.js";
import { blocks } from "./text.js";

function part(title, size, children, { open = true, total = size, more = null } = {}) {
  if (!size) return null;
  const shown = total > size ? `${count(size)} of ${count(total)}` : count(size);
  const rest = total > size && more ? h("button", { type: "button", class: "more", onclick: more }, "Load more") : null;
  return h("details", { class: "part", open }, h("summary", {}, h("h3", {}, title, h("span", { class: "number" }, shown))), children, rest);
}

function act(text, action, title = null) {
  return h("button", { type: "button", class: "act", onclick: action, title }, text);
}

/** A row that leads to an entity. */
function entityRow(entity, acts, small = entity.type, text = "") {
  return h("button", { type: "button", class: "row-link", onclick: () => acts.select(entity.entity_id, { focus: true }) }, layerMark(entity.layer), h("span", { class: "name" }, h("b", { dir: "auto" }, entity.name), " ", h("small", {}, small), text ? h("span", { class: "preview", dir: "auto" }, text) : null));
}

function communityRow(community, acts) {
  return h("button", { type: "button", class: "row-link", onclick: () => acts.community(community.community_id, { focus: true }) }, h("span", { class: "level" }, `level ${community.level}`), h("span", { class: "name" }, h("b", { dir: "auto" }, community.title || "Without a title")));
}

function relationRows(card, acts) {
  const id = card.entity.entity_id;
  const known = new Map(card.neighbours.map((one) => [one.entity_id, one]));
  return card.relations.map((triple) => {
    const away = triple.source_id === id;
    const end = away ? triple.target_id : triple.source_id;
    const entity = known.get(end) ?? { entity_id: end, name: away ? triple.target_name : triple.source_name, layer: card.entity.layer };
    return entityRow(entity, acts, `${triple.kind} · ${triple.weight.toFixed(1)}`, shorten(triple.description, 200));
  });
}

/**
 * The card of an entity. `acts` are {select(id), expand(id, way), collapse(id), drop(id), from(entity), to(entity),
 * ask(entity), community(id), more(id, field)}; `hidden` says how many of a way are not in view.
 */
export function entityCard(card, acts, hidden) {
  const { entity } = card;
  const id = entity.entity_id;
  const direct = card.ancestors.filter((one) => one.layer === entity.layer + 1).length;
  const steps = [["neighbours", "neighbours"], ["up", "summaries"], ["down", "members"]].filter(([way]) => hidden(id, way)).map(([way, word]) => act(`+ ${word}`, () => acts.expand(id, way), `Bring ${word} into view: ${many(hidden(id, way), "is", "are")} not`));
  return [
    h("p", { class: "kicker" }, layerMark(entity.layer), " ", entity.type),
    h("h2", { tabindex: "-1", dir: "auto", class: "card-title" }, entity.name),
    h("p", { dir: "auto", class: "description" }, entity.description || "No description."),
    h("div", { class: "acts" }, steps, act("Collapse", () => acts.collapse(id), "Take out of view what it brought in"), act("Path from here", () => acts.from(entity)), act("Path to here", () => acts.to(entity)), act("Ask about it", () => acts.ask(entity)), act("Remove", () => acts.drop(id))),
    part("Above: summaries that cover it", card.ancestors.length, list(card.ancestors.map((one) => entityRow(one, acts, one.layer === entity.layer + 1 ? one.type : `${one.type} · covers ${direct ? "its summary" : "it"}`)), "summaries")),
    part("Below: what it summarises", card.members.length, list(card.members.map((one) => entityRow(one, acts)), "members"), { total: card.member_count }),
    part("Relations, heaviest first", card.relations.length, list(relationRows(card, acts), "relations"), { total: card.relation_count, more: () => acts.more(id, "max_relations") }),
    part("Communities that hold it", card.communities.length, list(card.communities.map((one) => communityRow(one, acts)), "communities")),
    part(entity.layer ? "Passages that mention its members" : "Passages that mention it", card.sources.length, list(card.sources.map((one) => source(one, () => ({ text: entity.name }))), "passages"), { total: card.source_count, more: () => acts.more(id, "max_sources") }),
  ];
}

/** The card of a community: its report, members, parent and children. */
export function communityCard(card, acts) {
  const { community } = card;
  const plain = (ref) => h("span", { class: "soft" }, `[${ref}]`);
  return [
    h("p", { class: "kicker" }, h("span", { class: "level" }, `level ${community.level}`), " community", community.rating ? ` · importance ${community.rating.toFixed(1)} of 10` : ""),
    h("h2", { tabindex: "-1", dir: "auto", class: "card-title" }, community.title || "Without a title"),
    h("div", { class: "description report" }, community.report ? blocks(community.report, plain) : "No report was written on this community."),
    h("div", { class: "acts" }, act("Show members in the graph", () => acts.members(card))),
    part("Inside of", card.parent ? 1 : 0, card.parent ? communityRow(card.parent, acts) : null),
    part("Communities inside it", card.children.length, list(card.children.map((one) => communityRow(one, acts)), "communities")),
    part("Members, most mentioned first", card.members.length, list(card.members.map((one) => entityRow(one, acts)), "members"), { total: card.member_count, more: () => acts.more(community.community_id, "max_members") }),
  ];
}
