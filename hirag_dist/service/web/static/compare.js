// Two modes side by side: what each found, how long it took, and what only one of them found.

import { tell } from "./advice.js";
import { ask, Trouble } from "./api.js";
import { by, count, h, many, milliseconds, shorten } from "./dom.js";
import { communityLink, documentButton, entityLink } from "./items.js";
import { layerMark, list, whereabouts } from "./levels.js";
import { blocks } from "./text.js";

const FIGURES = [
  ["Entities", (side) => entities(side.retrieval).length],
  ["Communities", (side) => side.retrieval.communities.length],
  ["Paths", (side) => side.retrieval.paths.filter((path) => path.connected ?? path.entity_ids.length > 0).length],
  ["Sources", (side) => side.retrieval.sources.length],
  ["Context", (side) => many(side.retrieval.context_tokens, "token")],
  ["Retrieval", (side) => (typeof side.retrieval.timings_ms.total === "number" ? milliseconds(side.retrieval.timings_ms.total) : "–")],
  ["With answer and network", (side) => (side.waited ? milliseconds(side.waited) : "…")],
  ["Model", (side) => (side.answer ? `${count(side.answer.input_tokens)} tokens read, ${count(side.answer.output_tokens)} written` : "–")],
];

/** The entities of a retrieval, local ones first, each once. */
function entities(retrieval) {
  return [...new Map([...retrieval.local, ...retrieval.key_entities].map((one) => [one.entity_id, one])).values()];
}

/** Asks the same question in two modes. `begin()` and `end()` are called around it. */
export class Comparison {
  constructor(section) {
    this.section = section;
    this.sides = [];
    this.due = 0;
  }

  stop() {
    for (const side of this.sides) side.control.abort();
  }

  async run(questions) {
    this.stop();
    this.sides = questions.map((question) => ({ question, control: new AbortController(), retrieval: null, text: "", answer: null, waited: 0, error: null }));
    const mine = this.sides;
    this.draw();
    await Promise.all(mine.map((side) => this.follow(side)));
    return mine === this.sides;
  }

  async follow(side) {
    const began = performance.now();
    try {
      for await (const message of ask(side.question, side.control.signal)) {
        if (message.type === "retrieval") side.retrieval = message.retrieval;
        else if (message.type === "text") side.text += message.text;
        else [side.answer, side.text] = [message.answer, message.answer.text];
        this.soon();
      }
      side.waited = performance.now() - began;
    } catch (error) {
      side.error = error;
    }
    this.soon();
  }

  soon() {
    this.due ||= requestAnimationFrame(() => {
      this.due = 0;
      this.draw();
    });
  }

  draw() {
    const [one, other] = this.sides;
    this.section.replaceChildren(this.figures(), h("div", { class: "two" }, this.column(one, other), this.column(other, one)));
    this.section.hidden = false;
  }

  figures() {
    const cell = (side, figure) => h("td", {}, side.retrieval ? String(figure(side)) : side.error ? "–" : "…");
    return h("div", { class: "card wide" }, h("table", { class: "figures" }, h("caption", { class: "hidden" }, "Figures of both modes"), h("thead", {}, h("tr", {}, h("td"), this.sides.map((side) => h("th", { scope: "col" }, nameOf(side))))), h("tbody", {}, FIGURES.map(([name, figure]) => h("tr", {}, h("th", { scope: "row" }, name), this.sides.map((side) => cell(side, figure)))))));
  }

  column(side, other) {
    const parts = [h("h2", {}, nameOf(side))];
    if (side.error) {
      const box = h("div", { class: "trouble card" });
      const error = side.error.name === "AbortError" ? new Trouble("Broken", "stopped") : side.error;
      tell(box, error instanceof Trouble ? error : new Trouble("Page", String(error)), null);
      parts.push(box);
    }
    if (side.question.answer) parts.push(h("div", { class: "text", "aria-busy": side.answer || side.error ? null : "true" }, side.text ? blocks(side.text, (ref) => cited(ref, side)) : h("p", { class: "soft" }, side.error ? "No answer." : "Looking …")));
    if (side.retrieval) parts.push(...lists(side.retrieval, other.retrieval));
    return h("section", { class: "card side-by-side", "aria-label": nameOf(side) }, parts);
  }
}

function nameOf(side) {
  return side.retrieval?.mode ?? (side.question.mode || "default");
}

function cited(ref, side) {
  const { retrieval } = side;
  const id = retrieval?.context_refs[ref];
  const names = retrieval ? new Map([...entities(retrieval).map((one) => [one.entity_id, one.name]), ...retrieval.communities.map((one) => [one.community_id, one.title]), ...retrieval.sources.map((one) => [one.chunk_id, one.title])]) : new Map();
  return h("span", { class: "cite", title: names.get(id) ?? ref }, ref);
}

function lists(retrieval, other) {
  const has = (items, key) => new Set(items.map(key));
  const kinds = [
    ["Entities", entities, (one) => one.entity_id, (one) => [layerMark(one.layer), h("span", { class: "name" }, entityLink(one.entity_id, one.name), " ", h("small", {}, one.type))]],
    ["Communities", (all) => all.communities, (one) => one.community_id, (one) => [h("span", { class: "level" }, `level ${one.level}`), h("span", { class: "name" }, communityLink(one.community_id, one.title || "Without a title"))]],
    ["Paths", (all) => all.paths, (one) => `${one.source_id} ${one.target_id}`, (one) => [h("span", { class: "name", dir: "auto" }, one.entity_names.length ? one.entity_names.map((name) => shorten(name, 40)).join(" → ") : "no path")]],
    ["Sources", (all) => all.sources, (one) => one.chunk_id, (one) => [h("span", { class: "name" }, h("span", { dir: "auto" }, one.title || "Untitled document"), " ", h("small", {}, whereabouts(one)), " ", documentButton(one, () => null, "Open"))]],
  ];
  return kinds.map(([name, of, key, row]) => {
    const items = of(retrieval);
    const there = other ? has(of(other), key) : null;
    const only = there ? items.filter((one) => !there.has(key(one))).length : 0;
    const mark = (one) => (there && !there.has(key(one)) ? h("span", { class: "only" }, "only here") : null);
    const about = there && items.length ? h("small", { class: "soft" }, only ? `${count(only)} only here` : "all in both") : null;
    return h("div", {}, h("h3", {}, name, h("span", { class: "number" }, count(items.length)), " ", about), items.length ? list(items.map((one) => h("div", { class: "line" }, row(one), mark(one))), name.toLowerCase()) : h("p", { class: "none" }, "None."));
  });
}

/** The section of the comparison, empty. */
export function comparison() {
  return new Comparison(by("compare"));
}
