// The bridge: the graph, the pairs of key entities in order, and the triples on the paths.

import { bridgeModel } from "./bridge-model.js";
import { count, h, many, score, shorten } from "./dom.js";
import { Graph, graphTools, tool } from "./graph.js";
import { entityLink, reveal } from "./items.js";
import { head, list, meter, title } from "./levels.js";

const NAME = 60; // characters of a name in the list of pairs

/** Draws the section for a retrieval. */
export function drawBridge(section, retrieval, searched) {
  const about = "How the entities of the question and the main ones of those groups are connected, each with the next.";
  if (!retrieval.key_entities.length) {
    const why = searched ? "No key entity was found." : "This mode does not look for paths.";
    section.replaceChildren(head("bridge", "Connections", about, 0), h("p", { class: "none" }, why));
    return;
  }
  const model = bridgeModel(retrieval);
  const apart = retrieval.paths.filter((path) => !path.entity_ids.length).length;
  const said = h("p", { class: "soft said", "aria-live": "polite" });
  const label = `Graph of ${many(model.nodes.length, "entity", "entities")} and ${many(model.edges.length, "relation")}; the list of pairs says the same in words`;
  const graph = new Graph({ label, chosen: (at) => choose(null, at) });
  const rows = model.pairs.map((pair, at) => pairRow(model, pair, at, () => choose(at, null)));

  let lit = { pair: null, node: null };

  /** Lights up one pair or one node; the same again, or nothing, lights up all. */
  function choose(pair, node) {
    const again = pair === lit.pair && node === lit.node;
    lit = again ? { pair: null, node: null } : { pair, node };
    rows.forEach((row, at) => row.firstChild.setAttribute("aria-pressed", String(at === lit.pair)));
    if (lit.pair !== null) {
      const { nodes, edges, from, to } = model.pairs[lit.pair];
      graph.light({ nodes: new Set([from, to, ...nodes]), edges: new Set(edges) });
      say(steps(model, model.pairs[lit.pair]));
    } else if (lit.node !== null) {
      graph.light(graph.around(lit.node));
      say(nodeFacts(model.nodes[lit.node]));
    } else {
      graph.light(null);
      say(whole(model, apart));
    }
  }
  const say = (children) => said.replaceChildren(...children);
  say(whole(model, apart));

  const step = (by) => {
    const last = model.pairs.length - 1;
    const next = lit.pair === null ? (by > 0 ? 0 : last) : Math.min(last, Math.max(0, lit.pair + by));
    if (next === lit.pair) return;
    choose(next, null);
    rows[next].parentElement.scrollTop = rows[next].offsetTop - rows[0].offsetTop - 60; // the list scrolls, not the page
  };
  const steppers = model.pairs.length ? [tool("‹", "The pair before", () => step(-1)), tool("›", "The next pair", () => step(1))] : [];
  const tools = graphTools(graph, steppers, () => {
    graph.whole();
    choose(null, null);
  });
  graph.show(drawable(model));
  section.replaceChildren(
    head("bridge", "Connections", about, retrieval.key_entities.length),
    h("div", { class: "stage" }, h("div", { class: "canvas" }, graph.element, tools, said), h("div", { class: "side" }, h("h3", {}, "Pairs in order"), model.pairs.length ? h("ol", { class: "pairs" }, rows) : h("p", { class: "none" }, "A single key entity: there is nothing to connect."))),
    h(
      "div",
      { class: "columns" },
      h("div", {}, h("h3", {}, "Key entities", h("span", { class: "number" }, count(retrieval.key_entities.length))), list(retrieval.key_entities.map(keyEntity), "key entities")),
      h("div", {}, h("h3", {}, "Triples on the paths, nearest to the question first", h("span", { class: "number" }, count(retrieval.triples.length))), retrieval.triples.length ? list(retrieval.triples.map(triple), "triples") : h("p", { class: "none" }, "No relation lies on the paths.")),
    ),
  );
}

/** What the graph draws of a model. */
function drawable(model) {
  const nodes = model.nodes.map((node) => {
    const key = node.order !== null;
    const layer = node.layer === null ? "" : ` l${Math.min(node.layer, 7)}`;
    const facts = [key ? `key entity ${node.order}` : "on a path", node.type, node.layer === null ? "" : `layer ${node.layer}`].filter(Boolean).join(" · ");
    return { id: node.id, name: node.name, kind: `${key ? "key" : ""}${layer}`, badge: key ? String(node.order) : null, share: key ? 1 : 0.5, rank: node.order ?? 1e4 - node.degree, hint: () => [node.name, facts, shorten(node.description, 240)] };
  });
  const edges = model.edges.map((edge) => ({ a: edge.a, b: edge.b, missing: edge.missing, kind: edge.missing ? "missing" : edge.pairs.length ? "onpath" : "beside", hint: () => edgeHint(model, edge) }));
  return { nodes, edges };
}

function edgeHint(model, edge) {
  const names = `${model.nodes[edge.a].name} — ${model.nodes[edge.b].name}`;
  if (edge.missing) return [names, "no path connects these two", ""];
  const triple = edge.triples[0];
  const more = edge.triples.length > 1 ? ` (and ${edge.triples.length - 1} more)` : "";
  return [names, triple ? `${triple.kind} relation, weight ${triple.weight.toFixed(1)}${more}` : "a relation on the path, not among those ranked nearest to the question", triple ? shorten(triple.description, 320) : ""];
}

function pairRow(model, pair, at, choose) {
  const [from, to] = [model.nodes[pair.from], model.nodes[pair.to]];
  const way = !pair.nodes.length ? h("em", {}, "no path connects them") : pair.nodes.length <= 2 ? "directly" : ["by ", pair.nodes.slice(1, -1).map((one, step) => [step ? ", " : "", h("span", { dir: "auto" }, shorten(model.nodes[one].name, NAME))])];
  const button = h("button", { type: "button", "aria-pressed": "false", "data-pair": at, onclick: choose }, h("span", { class: "ends" }, h("span", { dir: "auto" }, shorten(from.name, NAME)), " → ", h("span", { dir: "auto" }, shorten(to.name, NAME))), h("small", {}, way));
  return h("li", { class: pair.nodes.length ? null : "apart" }, button);
}

function whole(model, apart) {
  const keys = model.nodes.filter((node) => node.order !== null).length;
  const between = model.nodes.length - keys;
  const text = `${many(keys, "key entity", "key entities")}${between ? `, ${count(between)} between them` : ""}; ${apart ? `${many(apart, "pair")} without a path (dashed)` : "all pairs connected"}. Choose a node or a pair to light it up.`;
  return [text];
}

function steps(model, pair) {
  if (!pair.nodes.length) return [h("b", { dir: "auto" }, model.nodes[pair.from].name), " and ", h("b", { dir: "auto" }, model.nodes[pair.to].name), " lie in parts of the graph that nothing connects."];
  return pair.nodes.flatMap((at, step) => {
    const name = h("b", { dir: "auto" }, model.nodes[at].name);
    if (!step) return [name];
    const known = model.edges[pair.edges[step - 1]].triples[0];
    const arrow = known ? h("button", { type: "button", class: "link", title: known.description, onclick: () => reveal(known.relation_id) }, "—›") : " —› ";
    return [" ", arrow, " ", name];
  });
}

function nodeFacts(node) {
  const facts = [node.order === null ? "on a path" : `key entity ${node.order}`, node.type, node.layer === null ? "" : `layer ${node.layer}`].filter(Boolean).join(", ");
  const more = node.order === null ? "" : h("button", { type: "button", class: "link", onclick: () => reveal(node.id) }, "Read more");
  return [h("b", { dir: "auto" }, node.name), `: ${facts}. `, h("span", { dir: "auto" }, shorten(node.description, 240)), " ", more, " ", entityLink(node.id, "Explore")];
}

function keyEntity(item, at) {
  return h(
    "details",
    // an entity that is local too has its item there, where a citation leads
    { "data-item": document.querySelector(`#local [data-item="${CSS.escape(item.entity_id)}"]`) ? null : item.entity_id },
    h("summary", {}, h("span", { class: "key-order" }, String(at + 1)), title(item.name, `${item.type} · layer ${item.layer}`), h("span", { class: "end" }, meter(item.score), h("span", { class: "figure" }, score(item.score)))),
    h("p", { dir: "auto", class: "body" }, item.description || "No description."),
    h("p", { class: "acts" }, entityLink(item.entity_id)),
  );
}

function triple(item) {
  return h(
    "details",
    { "data-item": item.relation_id },
    h("summary", {}, h("span", { class: "name" }, h("b", { dir: "auto" }, item.source_name), h("span", { class: "tie" }, " — "), title(item.target_name, item.kind)), h("span", { class: "end" }, meter(item.score), h("span", { class: "figure" }, score(item.score)))),
    h("p", { dir: "auto", class: "body" }, item.description || "No description."),
    h("p", { class: "acts" }, h("span", { class: "soft" }, `Weight ${item.weight.toFixed(1)}`), entityLink(item.source_id, shorten(item.source_name, 40)), entityLink(item.target_id, shorten(item.target_name, 40))),
  );
}
