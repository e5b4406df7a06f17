// What a citation leads to: items by their ids, opened and shown.

/** Shows the item with an id: opens it and whatever holds it, scrolls to it, and puts the focus there. */
export function reveal(id) {
  const item = find(id);
  if (!item) return false;
  for (let at = item; at; at = at.parentElement) {
    if (at.localName === "details") at.open = true;
    if (at.hidden) at.hidden = false;
  }
  item.closest("[data-more]")?.dispatchEvent(new CustomEvent("show-all"));
  const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
  item.scrollIntoView({ block: "center", behavior: calm ? "auto" : "smooth" });
  (item.querySelector("summary") ?? item).focus({ preventScroll: true });
  item.classList.remove("found");
  void item.offsetWidth; // restarts the animation
  item.classList.add("found");
  return true;
}

/** The item's element, or null. */
export function find(id) {
  return document.querySelector(`[data-item="${CSS.escape(id)}"]`);
}
