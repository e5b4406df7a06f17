// What a citation leads to: items by their ids, opened and shown; links to entities, communities and documents.

import { h } from "./dom.js";
import { place } from "./session.js";

/** Shows the item with an id: opens it and whatever holds it, scrolls to it, and puts the focus there. */
export function reveal(id) {
  const item = find(id);
  if (!item) return false;
  for (let at = item; at; at = at.parentElement) {
    if (at.localName === "details") at.open = true;
    if (at.hidden) at.hidden = false;
  }
  item.closest("[data-more]")?.dispatchEvent(new CustomEvent("show-all"));
  show(item, "center");
  (item.querySelector("summary") ?? item).focus({ preventScroll: true });
  item.classList.remove("found");
  void item.offsetWidth; // restarts the animation
  item.classList.add("found");
  return true;
}

/** Scrolls an element into view; without motion where that is unwanted. */
export function show(element, block) {
  const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
  element.scrollIntoView({ block, behavior: calm ? "auto" : "smooth" });
}

/** The item's element, or null. */
export function find(id) {
  return document.querySelector(`[data-item="${CSS.escape(id)}"]`);
}

/** A link to an entity in the graph. */
export function entityLink(id, text = "Explore") {
  return h("a", { href: place({ view: "explore", entity: id }), class: "act", dir: "auto" }, text);
}

/** A link to a community with its members. */
export function communityLink(id, text = "Members and neighbours") {
  return h("a", { href: place({ view: "explore", community: id }), class: "act", dir: "auto" }, text);
}

/** A button that opens the document of a passage at its place; `near()` is what to mark in it: {text, places}, or null. */
export function documentButton(source, near = () => null, text = "Open the document") {
  return h("button", { type: "button", class: "act", onclick: (event) => event.currentTarget.dispatchEvent(new CustomEvent("read", { bubbles: true, detail: { source, near: near() } })) }, text);
}
