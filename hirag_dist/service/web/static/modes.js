// The modes of retrieval: which levels each searches, and what it is called.

export const SEARCHED = { hirag: ["local", "global", "bridge"], nobridge: ["local", "global"], local: ["local"], global: ["global"], bridge: ["bridge"], flat: ["local"], naive: [], "graphrag-local": ["local", "global"], "graphrag-global": ["global"], "text-map-reduce": [] };

/** Fills a select with the modes of another one. */
export function copyModes(from, to, chosen) {
  to.replaceChildren(...Array.from(from.options, (option) => option.cloneNode(true)));
  to.value = chosen;
}
