// A conversation: the questions of this tab, what they were asked as, and their answers, for going back to them.

import { h, many, shorten } from "./dom.js";

// the rule of /v1/chat/completions (hirag_dist/service/http_api/conversation.py)
const MAX_QUESTIONS = 3; // earlier questions that are kept, the last ones
const MAX_QUESTION = 300; // characters of each of them
const MAX_REPLY = 600; // characters of the last reply

/** A text on one line, cut after a word. */
function shortened(text, limit) {
  const line = text.replace(/\s+/g, " ").trim();
  const characters = Array.from(line);
  return characters.length <= limit ? line : `${characters.slice(0, limit).join("").replace(/\s+\S*$/, "")}…`;
}

/**
 * The stand-alone question for a follow-up: the questions before it and the last reply go in front of it, shortened.
 * Retrieval and model read only this text, so the page shows it.
 */
export function standAlone(turns, question) {
  if (!turns.length) return question;
  const earlier = turns.slice(-MAX_QUESTIONS).map((turn) => `- ${shortened(turn.typed, MAX_QUESTION)}`);
  const reply = (turns.at(-1).answer?.text ?? "").replace(/\s*\[[ERKCS]\d+\]/g, "");
  const last = reply.trim() ? [`Last reply: ${shortened(reply, MAX_REPLY)}`] : [];
  return ["Earlier questions:", ...earlier, ...last, `Question: ${question.trim()}`].join("\n");
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
