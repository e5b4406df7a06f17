// A model's text as elements: a safe part of Markdown, and citations that lead somewhere. HTML and links stay text.

import { h } from "./dom.js";

const INLINE = /(\[[ERKCS]\d+(?:\s*[,;]\s*[ERKCS]\d+)*\])|`([^`\n]+)`|\*\*([^*\n]+)\*\*|(?<![\w*])\*([^*\s\n](?:[^*\n]*[^*\s\n])?)\*(?![\w*])/g;
const REFERENCE = /[ERKCS]\d+/g;
const POINT = /^(\s*)(?:[-*•+]|(\d{1,6})[.)])\s+(.*)$/;
const RULE = /^\s*\|?\s*:?-{2,}:?\s*(?:\|\s*:?-{2,}:?\s*)*\|?\s*$/;

/**
 * Blocks of a text: paragraphs, headings, lists in lists, quotations, tables and code; in them bold, italic and code.
 * `cite` makes an element of a reference such as "E3".
 */
export function blocks(text, cite) {
  const out = [];
  const lines = text.split("\n");
  const lists = []; // open ones, the outermost first: {element, indent}
  for (let at = 0; at < lines.length; at += 1) {
    const raw = lines[at];
    const line = raw.trim();
    const point = POINT.exec(raw);
    if (point) {
      addPoint(out, lists, point, cite);
      continue;
    }
    if (lists.length && line && /^\s{2,}/.test(raw)) { // goes on with the point
      lists.at(-1).element.lastChild.append(" ", ...inline(line, cite));
      continue;
    }
    lists.length = 0;
    if (/^(```|~~~)/.test(line)) {
      const end = lines.findIndex((one, later) => later > at && one.trim().startsWith(line.slice(0, 3)));
      const stop = end < 0 ? lines.length : end;
      out.push(h("pre", { dir: "auto", tabindex: "0" }, h("code", {}, lines.slice(at + 1, stop).join("\n"))));
      at = stop;
    } else if (line.startsWith("|") && RULE.test(lines[at + 1] ?? "")) {
      const rows = [];
      for (; at < lines.length && lines[at].trim().startsWith("|"); at += 1) rows.push(lines[at]);
      at -= 1;
      out.push(table(rows, cite));
    } else if (line.startsWith(">")) {
      const said = [];
      for (; at < lines.length && lines[at].trim().startsWith(">"); at += 1) said.push(lines[at].trim().replace(/^>\s?/, ""));
      at -= 1;
      out.push(h("blockquote", {}, blocks(said.join("\n"), cite)));
    } else if (/^([-*_])(\s*\1){2,}$/.test(line)) out.push(h("hr"));
    else if (line) {
      const heading = /^#{1,6}\s+(.*?)\s*#*$/.exec(line);
      out.push(h(heading ? "h3" : "p", { dir: "auto" }, ...inline(heading ? heading[1] : line, cite)));
    }
  }
  return out;
}

function addPoint(out, lists, [, space, number, text], cite) {
  const indent = space.replace(/\t/g, "    ").length;
  while (lists.length && indent < lists.at(-1).indent - 1) lists.pop();
  const tag = number ? "ol" : "ul";
  const last = lists.at(-1);
  const deeper = last && indent > last.indent + 1 && lists.length < 5;
  if (!last || deeper || last.element.localName !== tag) {
    const element = h(tag, number && number !== "1" ? { start: number } : {});
    if (last && !deeper) lists.pop();
    (lists.at(-1)?.element.lastChild ?? { append: (one) => out.push(one) }).append(element);
    lists.push({ element, indent });
  }
  lists.at(-1).element.append(h("li", { dir: "auto" }, ...inline(text, cite)));
}

function table(rows, cite) {
  const cells = (row, tag) => h("tr", {}, row.trim().replace(/^\||\|$/g, "").split("|").map((cell) => h(tag, { dir: "auto" }, ...inline(cell.trim(), cite))));
  return h("div", { class: "wide", tabindex: "0", role: "region", "aria-label": "Table" }, h("table", {}, h("thead", {}, cells(rows[0], "th")), h("tbody", {}, rows.slice(2).map((row) => cells(row, "td")))));
}

function inline(text, cite) {
  const out = [];
  let at = 0;
  for (const match of text.matchAll(INLINE)) {
    out.push(text.slice(at, match.index));
    const [whole, references, code, bold, italic] = match;
    if (references) out.push(...references.match(REFERENCE).map(cite));
    else if (code) out.push(h("code", {}, code));
    else out.push(h(bold ? "b" : "i", {}, ...inline(bold ?? italic, cite)));
    at = match.index + whole.length;
  }
  out.push(text.slice(at));
  return out;
}
