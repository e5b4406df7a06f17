// Where the time went: one bar, a part a colour.

import { h, many, milliseconds } from "./dom.js";

const PARTS = [
  ["embed", "embedding of the question"],
  ["search", "nearest vectors"],
  ["communities", "communities"],
  ["bridge", "paths"],
  ["sources", "sources"],
  ["render", "context"],
];

/** Draws the service's own times, and how long the page waited. `waited` is in milliseconds, answer and network with it. */
export function drawTimings(section, retrieval, waited) {
  const times = retrieval.timings_ms;
  const parts = PARTS.filter(([name]) => typeof times[name] === "number").map(([name, label]) => ({ name, label, value: times[name] }));
  const sum = parts.reduce((total, part) => total + part.value, 0);
  const rest = (times.total ?? sum) - sum;
  if (rest > 0.05) parts.push({ name: "other", label: "other", value: rest });
  const bar = h("div", { class: "times", "aria-hidden": "true" });
  for (const part of parts) {
    const piece = h("span", { class: `t-${part.name}`, title: `${part.label}: ${milliseconds(part.value)}` });
    piece.style.flexGrow = String(part.value);
    bar.append(piece);
  }
  section.replaceChildren(
    h("h2", { id: "timings-title" }, "Time", h("span", { class: "number" }, milliseconds(times.total ?? sum))),
    bar,
    h("ul", { class: "legend" }, parts.map((part) => h("li", {}, h("i", { class: `t-${part.name}` }), `${part.label} `, h("b", {}, milliseconds(part.value))))),
    h("p", { class: "soft" }, `Retrieval calls no model. With the answer and the way here it took ${milliseconds(waited)}. Context: ${many(retrieval.context_tokens, "token")}. Snapshot ${retrieval.snapshot_id}.`),
  );
}
