// A conversation: the questions of this tab, what they were asked as, and their answers, for going back to them.

import { h, many, shorten } from "./dom.js";

const EARLIER = 2; // questions that a follow-up is joined to
const EARLIER_CHARS = 300; // of each

/**
 * The stand-alone question for a follow-up: the last questions of the conversation as they were typed, then this one.
 * Retrieval and model see only this text, so the page shows it.
 */
export function standAlone(turns, question) {
  const earlier = turns.slice(-EARLIER).map((turn) => shorten(turn.typed.trim().replace(/\s+/g, " "), EARLIER_CHARS));
  return [...earlier, question.trim()].join("\n");
}

/** The turns of a conversation, drawn into a box; `again(turn)` shows one of them. */
export class Conversation {
  constructor(box, again) {
    this.box = box;
    this.again = again;
    this.turns = [];
  }

  add(turn) {
    this.turns.push(turn);
    this.draw();
  }

  clear() {
    this.turns = [];
    this.draw();
  }

  /** Draws the turns but the shown one. */
  draw(shown = this.turns.at(-1)) {
    const rows = this.turns.map((turn, at) => {
      const answer = turn.answer?.text ?? (turn.retrieval ? "Retrieved without an answer." : "No answer.");
      return h("li", {}, h("button", { type: "button", "aria-current": turn === shown ? "true" : null, onclick: () => this.again(turn) }, h("span", { class: "turn" }, String(at + 1)), h("span", { class: "name" }, h("b", { dir: "auto" }, shorten(turn.typed, 160)), h("span", { class: "preview", dir: "auto" }, shorten(answer.replace(/\s*\[[ERKCS]\d[^\]]*\]/g, "").replace(/\s+/g, " "), 200)))));
    });
    this.box.hidden = rows.length < 2;
    const open = this.box.querySelector("details")?.open ?? true;
    this.box.replaceChildren(h("details", { open }, h("summary", {}, h("h2", {}, "Conversation"), h("span", { class: "number" }, many(rows.length, "question"))), h("ol", { class: "turns" }, rows)));
  }
}
