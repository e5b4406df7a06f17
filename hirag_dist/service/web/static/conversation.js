// A conversation: the questions of this tab, what they were asked as, and their answers, for going back to them.

import { h, many, shorten } from "./dom.js";
import { blocks } from "./text.js";

// the rule of /v1/chat/completions (hirag_dist/service/http_api/openai_requests.py)
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

  /** Draws the turns before the shown one as a thread above it, and the questions after it. */
  draw(shown = this.turns.at(-1)) {
    const plain = (ref) => h("span", { class: "soft" }, `[${ref}]`);
    const at = this.turns.indexOf(shown);
    const rows = this.turns.map((turn, number) => {
      if (turn === shown) return null;
      const said = turn.answer?.text ?? (turn.retrieval ? "Retrieved without an answer." : "No answer.");
      const again = h("button", { type: "button", class: "link", dir: "auto", onclick: () => this.again(turn) }, shorten(turn.typed, 160));
      return h("li", {}, h("h3", {}, again), number < at ? h("div", { class: "text" }, blocks(said, plain)) : null);
    });
    this.box.hidden = this.turns.length < 2;
    this.box.replaceChildren(h("h2", {}, "Conversation ", h("span", { class: "number" }, many(this.turns.length, "question"))), h("ol", { class: "turns" }, rows));
  }
}
