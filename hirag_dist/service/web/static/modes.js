// The modes of retrieval: which levels each searches, and what it is called.

export const SEARCHED = { hirag: ["local", "global", "bridge"], nobridge: ["local", "global"], local: ["local"], global: ["global"], bridge: ["bridge"], flat: ["local"], naive: [], "graphrag-local": ["local", "global"], "graphrag-global": ["global"], "text-map-reduce": [] };
