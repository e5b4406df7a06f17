// Elements from plain values. Texts become text nodes, so nothing that a document says is ever read as HTML.

const SVG = "http://www.w3.org/2000/svg";

/** An element: h("li", {class: "x", onclick: f}, "text", child, null). Null and false children are left out. */
export function h(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** The same for SVG. */
export function s(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** The element with an id. */
export function by(id) {
  return document.getElementById(id);
}

/** A whole number with separators. */
export function count(value) {
  return Number(value).toLocaleString("en");
}

/** "1 path", "2 paths". */
export function many(value, one, more = `${one}s`) {
  return `${count(value)} ${value === 1 ? one : more}`;
}

/** A similarity or score in two digits after the point; a dash where there is none. */
export function score(value) {
  return typeof value === "number" ? value.toFixed(2) : "–";
}

/** Milliseconds in few digits. */
export function milliseconds(value) {
  return value >= 1000 ? `${(value / 1000).toFixed(1)} s` : `${value >= 10 ? value.toFixed(0) : value.toFixed(1)} ms`;
}

/** A text of at most so many characters, cut between characters and not inside one. */
export function shorten(text, limit) {
  const characters = Array.from(text);
  return characters.length <= limit ? text : `${characters.slice(0, limit - 1).join("").trimEnd()}…`;
}

/** A link where the address is one of the web, else its text: javascript: and the like lead nowhere. */
export function address(uri, text = uri) {
  let parsed = null;
  try {
    parsed = new URL(uri);
  } catch {
    // no address of any kind
  }
  if (parsed && (parsed.protocol === "https:" || parsed.protocol === "http:")) {
    return h("a", { href: parsed.href, target: "_blank", rel: "noopener noreferrer nofollow" }, text);
  }
  return h("code", {}, text);
}
