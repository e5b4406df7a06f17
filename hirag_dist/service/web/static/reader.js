// A document in a dialog, opened at a passage: the passage is shaded, the sentence that supports the statement is marked.

import { call } from "./api.js";
import { address, by, count, h } from "./dom.js";
import { original, whereabouts } from "./levels.js";
import { marked, unit } from "./passages.js";

const BEFORE = 3000; // characters before the passage
const AFTER = 6000; // and after it
const STEP = 12000; // characters that "Earlier" and "Later" add

/** The dialog. It hears `read` events of `documentButton`. */
export class Reader {
  constructor(dialog) {
    this.dialog = dialog;
    document.addEventListener("read", (event) => this.open(event.detail));
    by("reader-close").addEventListener("click", () => dialog.close());
    by("reader-earlier").addEventListener("click", () => this.load(Math.max(0, this.start - STEP), this.end));
    by("reader-later").addEventListener("click", () => this.load(this.start, Math.min(this.total, this.end + STEP)));
    dialog.addEventListener("click", (event) => event.target === dialog && dialog.close()); // outside the dialog
  }

  /** Opens the document of a passage. */
  async open({ source, near }) {
    Object.assign(this, { source, near, start: source.start, end: source.end, total: source.end });
    by("reader-title").textContent = source.title || "Untitled document";
    const place = whereabouts(source);
    by("reader-place").textContent = place === source.title ? "" : place;
    const link = near?.places?.map((one) => one.link).find(Boolean) ?? original(source);
    by("reader-link").replaceChildren(link ? address(link, source.uri || link) : "");
    this.draw(source.text, source.start);
    if (!this.dialog.open) this.dialog.showModal();
    this.see();
    await this.load(Math.max(0, source.start - BEFORE), source.end + AFTER, true);
  }

  /** Loads a part of the document around what is shown. */
  async load(start, end, first = false) {
    const { source } = this;
    by("reader-text").setAttribute("aria-busy", "true");
    try {
      const found = await call("GetDocument", { document_id: source.document_id, start, max_chars: end - start });
      if (this.source !== source) return; // another one was opened meanwhile
      const height = by("reader-body").scrollHeight;
      const grew = !first && start < this.start;
      Object.assign(this, { start: found.start, total: found.total_chars, end: found.start + Array.from(found.text).length });
      if (found.title) by("reader-title").textContent = found.title;
      this.draw(found.text, found.start);
      if (first) this.see();
      else if (grew) by("reader-body").scrollTop += by("reader-body").scrollHeight - height;
      by("reader-note").textContent = `Characters ${count(this.start)}–${count(this.end)} of ${count(this.total)}.`;
    } catch (error) {
      by("reader-note").textContent = error.kind === "Unsupported" ? "Only the passage is shown: this service does not send whole documents." : `Only the passage is shown: ${error.message}`;
    } finally {
      by("reader-text").removeAttribute("aria-busy");
      by("reader-earlier").hidden = this.start <= 0 || this.total <= this.source.end - this.source.start;
      by("reader-later").hidden = this.end >= this.total;
    }
  }

  /** Draws a text that begins at a character of the document. */
  draw(text, start) {
    const from = unit(text, Math.max(0, this.source.start - start));
    const to = unit(text, Math.max(0, this.source.end - start));
    const passage = text.slice(from, to);
    const inside = this.near ? marked(passage, Math.max(start, this.source.start), this.near) : [passage];
    by("reader-text").replaceChildren(text.slice(0, from), h("span", { class: "cited-passage" }, inside), text.slice(to));
  }

  /** Scrolls to the marked sentence, or to the passage. */
  see() {
    const place = by("reader-text").querySelector("mark") ?? by("reader-text").querySelector(".cited-passage");
    place?.scrollIntoView({ block: place.localName === "mark" ? "center" : "start" });
  }
}
