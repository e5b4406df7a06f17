// A model's text as elements: paragraphs, lists, headings, bold and code, and citations that lead somewhere.

import { h } from "./dom.js";

const INLINE = /(\[[ERKCS]\d+(?:\s*[,;]\s*[ERKCS]\d+)*\])|\*\*([^*\n]+)\*\*|`([^`\n]+)`/g;
const REFERENCE = /[ERKCS]\d+/g;

/** Blocks of a text. `cite` makes an element of a reference such as "E3", or returns null for one that names nothing. */
export function blocks(text, cite) {
  const out = [];
  let list = null;
  for (const raw of text.split("\n")) {
    const line = raw.trim();
    const heading = /^#{1,6}\s+(.*)$/.exec(line);
    const point = /^(?:[-*•]|(\d+)[.)])\s+(.*)$/.exec(line);
    if (point) {
      const tag = point[1] ? "ol" : "ul";
      if (list?.localName !== tag) {
        list = h(tag, point[1] && point[1] !== "1" ? { start: point[1] } : {});
        out.push(list);
      }
      list.append(h("li", { dir: "auto" }, ...inline(point[2], cite)));
      continue;
    }
    list = null;
    if (line) out.push(h(heading ? "h4" : "p", { dir: "auto" }, ...inline(heading ? heading[1] : line, cite)));
  }
  return out;
}

function inline(text, cite) {
  const out = [];
  let at = 0;
  for (const match of text.matchAll(INLINE)) {
    out.push(text.slice(at, match.index));
    if (match[1]) out.push(...match[1].match(REFERENCE).map(cite));
    else out.push(match[2] ? h("b", {}, match[2]) : h("code", {}, match[3]));
    at = match.index + match[0].length;
  }
  out.push(text.slice(at));
  return out;
}
