// Which sentences of a passage a statement rests on, and texts cut at places counted in Unicode code points.

import { h } from "./dom.js";

const WORD = /[\p{L}\p{N}]+/gu;

const MARKED = /^(?:(?:[-*•+–|>#]|\(?\d{1,3}[.)])(?:\s|$)|\|)/; // list items, tables, quotations, headings

const beginsInside = (line) => /^[\p{Ll}\p{Lo}]/u.test(line);

/** A text with a space for each line break inside a sentence, by the rules of `hirag_dist.core.text.normalize`. */
function unwrapped(text) {
  const lines = text.split("\n");
  const bare = lines.map((line) => line.trim());
  const inner = bare.filter((line, at) => at && line && bare[at - 1]);
  const small = inner.filter(beginsInside).length;
  if (!small) return text;
  let [out, first] = ["", 0];
  bare.forEach((line, at) => {
    if (at === 0 || !line || !bare[at - 1]) first = at;
    const next = bare.findIndex((one, place) => place > at && !one);
    const block = bare.slice(first, next < 0 ? undefined : next);
    const width = Math.max(...block.map((one) => one.length));
    const wrapped = 8 * small >= inner.length && 2 * block.filter((one) => one.length > 0.75 * width).length >= block.length;
    const goesOn = at > first && width >= 36 && width <= 110 && bare[at - 1].length > 0.6 * width && !/^[#|]/.test(bare[at - 1]) && !MARKED.test(line) && (wrapped || beginsInside(line));
    out += (at ? (goesOn ? " " : "\n") : "") + lines[at];
  });
  return out;
}

/** Sentences of a text as {start, end} in UTF-16 units; without the white space around them. */
export function sentences(wrapped, locale = "en") {
  const text = unwrapped(wrapped);
  const found = [];
  const cut = typeof Intl.Segmenter === "function" ? Array.from(new Intl.Segmenter(locale, { granularity: "sentence" }).segment(text), (one) => [one.index, one.segment]) : Array.from(text.matchAll(/[^.!?。！？\n]+[.!?。！？]*/g), (one) => [one.index, one[0]]);
  for (const [start, said] of cut) {
    const kept = said.trim();
    if (!kept) continue;
    const from = start + said.indexOf(kept);
    const before = found.at(-1);
    if (before && /\b(?:Mr|Mrs|Ms|Messrs|Dr|St|No|vol|pp?)\.$/.test(text.slice(before.start, before.end))) before.end = from + kept.length;
    else found.push({ start: from, end: from + kept.length });
  }
  return found;
}

function words(text) {
  return text.toLocaleLowerCase().match(WORD) ?? [];
}

/**
 * The sentence of a passage that shares most words with a statement, rare ones counting more; null where none shares a
 * third of the statement's weight.
 */
export function closest(passage, statement) {
  const wanted = new Set(words(statement));
  if (!wanted.size) return null;
  const places = sentences(passage);
  const sets = places.map(({ start, end }) => new Set(words(passage.slice(start, end))));
  const weights = new Map();
  for (const word of wanted) weights.set(word, Math.log(1 + (places.length + 1) / (1 + sets.filter((set) => set.has(word)).length)));
  const total = [...weights.values()].reduce((sum, one) => sum + one, 0);
  let [best, most] = [null, total / 3];
  sets.forEach((set, at) => {
    const shared = [...weights].reduce((sum, [word, weight]) => sum + (set.has(word) ? weight : 0), 0);
    if (shared > most) [best, most] = [places[at], shared];
  });
  return best;
}

/** The statements of a text that cite a reference: what stands between the citation before and this one. */
export function statements(text, ref) {
  const cited = new RegExp(`\\[[^\\]]*\\b${ref}\\b[^\\]]*\\]`, "g");
  return Array.from(text.matchAll(cited), (match) => {
    const before = text.slice(0, match.index).replace(/(?:\s*\[[ERKCS]\d[^\]]*\])+\s*$/, "");
    const line = before.slice(before.lastIndexOf("\n") + 1).replace(/^\s*(?:[-*•+]|\d+[.)]|#+)\s+/, "");
    const last = sentences(line).at(-1);
    const said = last ? line.slice(last.start, last.end) : line;
    return said.replace(/\[[ERKCS]\d[^\]]*\]/g, " ").trim();
  }).filter(Boolean);
}

/** The UTF-16 place of a place counted in code points. */
export function unit(text, point) {
  let at = 0;
  for (let seen = 0; seen < point && at < text.length; seen += 1) at += text.codePointAt(at) > 0xffff ? 2 : 1;
  return at;
}

/** A span from the beginning to the end of the sentences that it reaches into; as it is where it reaches into none. */
function sentencesOf(whole, start, end) {
  const inside = whole.filter((one) => one.start < end - 1 && one.end > start + 1);
  return inside.length ? { start: Math.min(start, inside[0].start), end: Math.max(end, inside.at(-1).end) } : { start, end };
}

/**
 * A text that begins at character `start` of its document, as pieces for an element: what supports a statement is in
 * marks. `near` is {text: the statement, places: [{start, end}] in characters of the document, where they are known}.
 */
export function marked(text, start, near) {
  const end = start + Array.from(text).length;
  const known = (near.places ?? []).filter((one) => one.end > start && one.start < end && one.end - one.start < 0.8 * (end - start));
  const found = known.length ? null : near.text && closest(text, near.text);
  const whole = known.length ? sentences(text) : [];
  const spans = found ? [found] : known.map((one) => sentencesOf(whole, unit(text, one.start - start), unit(text, one.end - start)));
  const pieces = [];
  let at = 0;
  for (const span of spans.sort((a, b) => a.start - b.start)) {
    if (span.start < at) continue;
    pieces.push(text.slice(at, span.start), h("mark", {}, text.slice(span.start, span.end)));
    at = span.end;
  }
  return [...pieces, text.slice(at)];
}
