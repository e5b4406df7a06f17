// The answer: written as it comes, with citations that open what they cite.

import { copy } from "./copy.js";
import { by, count, h, many, shorten } from "./dom.js";
import { find, reveal } from "./items.js";
import { statements } from "./passages.js";
import { blocks } from "./text.js";

const KINDS = { E: "entity", R: "relation", K: "claim", C: "community", S: "source" };

/** Draws one answer into a section. */
export class AnswerView {
  constructor(section) {
    this.section = section;
    this.text = "";
    this.refs = {};
    this.titles = {};
    this.due = 0;
    this.citations = [];
    this.copied = null; // returns the answer as a text to paste
    this.body = h("div", { class: "text" });
    this.foot = h("div", {});
  }

  /** Says that an answer is being waited for. */
  begin() {
    this.section.replaceChildren(h("h2", { id: "answer-title" }, "Answer"), this.body, this.foot);
    this.section.setAttribute("aria-busy", "true");
    this.body.replaceChildren(h("p", { class: "soft waiting" }, "Looking …"));
  }

  /** Takes note of what may be cited. */
  found(retrieval) {
    this.refs = retrieval.context_refs;
    for (const item of [...retrieval.local, ...retrieval.key_entities]) this.titles[item.entity_id] = item.name;
    for (const item of retrieval.communities) this.titles[item.community_id] = item.title;
    for (const item of retrieval.triples) this.titles[item.relation_id] = `${item.source_name} — ${item.target_name}`;
    for (const item of retrieval.claims) this.titles[item.claim_id] = item.subject;
    for (const item of retrieval.sources) this.titles[item.chunk_id] = item.title;
    if (!this.text) this.body.replaceChildren(h("p", { class: "soft waiting" }, "Writing …"));
  }

  /** Adds a piece of the text; drawn at most once a frame. */
  add(piece) {
    this.text += piece;
    this.due ||= requestAnimationFrame(() => {
      this.due = 0;
      this.draw();
    });
  }

  /** Shows the final text, checked by the service, and what it cites. */
  finish(answer) {
    cancelAnimationFrame(this.due);
    this.due = 0;
    this.text = answer.text;
    this.citations = answer.citations;
    this.draw();
    this.section.removeAttribute("aria-busy");
    const cited = answer.citations.map((one) =>
      h("li", {}, this.cite(one.ref), " ", h("span", { dir: "auto" }, shorten(one.title || one.kind, 110)), h("small", {}, one.kind === "chunk" ? "source" : one.kind)),
    );
    const unknown = !cited.length && /^I do not know\b/.test(answer.text);
    const facts = [
      answer.model && `by ${answer.model}`,
      answer.input_tokens > 0 && `${many(answer.input_tokens, "token")} read, ${count(answer.output_tokens)} written`,
      answer.finish_reason === "length" && "incomplete: a token limit of the model cut it off",
      answer.finish_reason === "content_filter" && "incomplete: the content filter of the model's endpoint cut it off",
      answer.finish_reason === "repetition" && "incomplete: the model repeated itself and was stopped",
      answer.dropped_citations > 0 && `${many(answer.dropped_citations, "citation")} that named nothing removed`,
    ].filter(Boolean);
    this.foot.replaceChildren(
      unknown ? h("p", { class: "soft" }, "Nothing in the index fits well enough to answer from. What came nearest is shown below.") : "",
      cited.length ? h("details", { class: "cited", open: cited.length <= 6 }, h("summary", {}, `${many(cited.length, "item")} cited`), h("ul", {}, cited)) : "",
      h("p", { class: "soft" }, facts.join(" · ")),
      this.copied ? h("p", { class: "acts" }, h("button", { type: "button", class: "act", onclick: (event) => copy(event.currentTarget, this.copied(), (said) => by("status").replaceChildren(said)) }, "Copy with citations")) : "",
    );
  }

  /** What the answer says of a passage: the sentences that cite it, and the places that the service found for them. */
  about(chunk) {
    const refs = Object.keys(this.refs).filter((ref) => this.refs[ref] === chunk);
    const text = refs.flatMap((ref) => statements(this.text, ref)).join(" ");
    return text && { text, places: this.citations.filter((one) => one.id === chunk).flatMap((one) => one.places ?? []) };
  }

  /** Leaves what came of a text that broke off. */
  breakOff() {
    cancelAnimationFrame(this.due);
    this.due = 0;
    this.section.removeAttribute("aria-busy");
    if (this.text) this.draw();
    else this.body.replaceChildren(h("p", { class: "soft" }, "No answer."));
  }

  draw() {
    this.body.replaceChildren(...blocks(this.text, (ref) => this.cite(ref)));
  }

  cite(ref) {
    const id = this.refs[ref];
    if (id === undefined) return h("span", { class: "soft" }, `[${ref}]`); // the final text is without it
    const known = find(id) !== null;
    const title = `${KINDS[ref[0]]}: ${this.titles[id] ?? id}`;
    return h("button", { type: "button", class: "cite", title, "aria-label": `${ref}, ${title}`, "data-ref": ref, disabled: !known, onclick: () => reveal(id) }, ref);
  }
}
