// The modes of retrieval: which levels each searches, and what it is called.

export const SEARCHED = { hirag: ["local", "global", "bridge"], nobridge: ["local", "global"], local: ["local"], global: ["global"], bridge: ["bridge"], flat: ["local"], naive: [], "graphrag-local": ["local", "global"], "graphrag-global": ["global"], "text-map-reduce": [] };

/** Offers in a select only the modes that the service accepts; all of them where it does not say, as an older one. */
export function offerModes(select, accepted) {
  for (const option of select.options) option.hidden = option.disabled = Boolean(option.value && accepted.length && !accepted.includes(option.value));
  if (select.selectedOptions[0]?.disabled) select.value = Array.from(select.options).find((option) => !option.disabled).value;
}
