// Search, the table, and the events of the page.
// ---- search -------------------------------------------------------------------------------------------------------------
const fold = text => text.normalize("NFKD").replace(/\p{M}/gu, "").toLowerCase();
let folded = null, hits = [], at = -1;
function search(text) {
  const words = fold(text).split(/\s+/).filter(Boolean);
  if (!words.length) return {hits: [], mask: null, total: 0};
  folded = folded || {e: E.name.map(fold), c: titles.map(fold)};
  const whole = words.join(" "), ranked = [], mask = new Uint8Array(nE);
  const rank = name => name === whole ? 0 : name.startsWith(whole) ? 1 : (" " + name).includes(" " + whole) ? 2 : 3;
  folded.c.forEach((name, id) => { if (words.every(w => name.includes(w))) ranked.push([rank(name), id / nC, {kind: "c", id}]); });
  folded.e.forEach((name, id) => { if (words.every(w => name.includes(w))) { ranked.push([rank(name), id / nE, {kind: "e", id}]); mask[id] = 1; } });
  ranked.sort((a, b) => a[0] - b[0] || a[1] - b[1]);
  return {hits: ranked.slice(0, 40).map(r => r[2]), mask, total: ranked.length};
}
function offer(open) {
  const result = search(box.value);
  hits = result.hits; found = result.mask; at = -1;
  const rows = hits.map((item, i) => {
    const row = make("li", {role: "option", id: "hit" + i, "aria-selected": "false"});
    row.append(make("span", {text: item.kind === "e" ? E.name[item.id] : titles[item.id], dir: "auto"}), make("small", {text: item.kind === "e" ? data.types[E.type[item.id]] + " · layer " + E.layer[item.id] : "community · " + count(C.size[item.id], "entity", "entities")}));
    row.addEventListener("pointerdown", event => { event.preventDefault(); choose(item); });
    return row;
  });
  if (result.mask && !hits.length) rows.push(make("li", {class: "note", text: "Nothing is named like that."}));
  if (result.total > hits.length) rows.push(make("li", {class: "note", text: "and " + (result.total - hits.length).toLocaleString("en") + " more, lit on the map"}));
  list.replaceChildren(...rows); list.scrollTop = 0;
  if (asTable) drawTable();
  openList(open && rows.length > 0); redraw();
}
function openList(open) { list.hidden = !open; box.setAttribute("aria-expanded", String(open)); if (!open) box.removeAttribute("aria-activedescendant"); }
function mark(i) {
  if (!hits.length) return;
  at = (i + hits.length) % hits.length;
  for (const [j, row] of Array.from(list.children).entries()) row.setAttribute("aria-selected", String(j === at));
  list.children[at].scrollIntoView({block: "nearest"}); box.setAttribute("aria-activedescendant", "hit" + at);
}
function choose(item) {
  openList(false); pick(item, true);
  const name = item.kind === "e" ? E.name[item.id] : titles[item.id];
  box.value = name;
}
function fromHash() {
  const wanted = new URLSearchParams(location.hash.slice(1));
  const button = document.querySelector('[data-colour="' + (wanted.get("colour") || "").replace(/\W/g, "") + '"]');
  if (button) button.click();
  for (const [name, ids, kind] of [["entity", E.id, "e"], ["community", C.id, "c"]]) {
    const id = wanted.has(name) ? ids.indexOf(wanted.get(name)) : -1;
    if (id >= 0) { if (!same(picked, {kind, id})) pick({kind, id}, true); return; }
  }
  const text = wanted.get("q");
  if (!text) return;
  box.value = text; offer(wanted.has("list"));
  if (hits.length && !wanted.has("list")) pick(hits[0], true);
}

// ---- the same as a table ------------------------------------------------------------------------------------------------
let asTable = false;
function drawTable() {
  const mask = picked && picked.kind === "c" ? maskOf(members(picked.id)) : picked ? around(picked.id) : null, chosen = found || mask;
  const rows = Array.from({length: nE}, (_, e) => e).filter(e => !chosen || chosen[e]), head = ["Entity", "Type", "Layer", "Neighbours", "Community"];
  const body = make("tbody", {}), of = found ? "that match the search" : mask ? "around what is chosen" : "on this page";
  const add = () => body.append(...rows.splice(0, 200).map(e => {
    const name = make("button", {type: "button", class: "link", text: E.name[e], dir: "auto"});
    name.addEventListener("click", () => pick({kind: "e", id: e}, false));
    return make("tr", picked && picked.kind === "e" && picked.id === e ? {class: "on"} : {}, make("th", {scope: "row"}, name), make("td", {text: data.types[E.type[e]]}), make("td", {text: E.layer[e]}), make("td", {text: E.degree[e].toLocaleString("en")}), make("td", {text: E.home[e] < 0 ? "" : titles[E.home[e]], dir: "auto"}));
  }));
  const table = make("table", {}, make("caption", {text: count(rows.length, "entity", "entities") + " " + of}), make("thead", {}, make("tr", {}, ...head.map(text => make("th", {scope: "col", text})))), body);
  add();
  const more = make("button", {type: "button", class: "more", text: "show more"});
  more.addEventListener("click", () => { add(); if (!rows.length) more.remove(); });
  $("table").replaceChildren(table, ...(rows.length ? [more] : []));
}
$("as-table").addEventListener("click", event => {
  asTable = !asTable;
  event.currentTarget.setAttribute("aria-pressed", String(asTable));
  $("table").hidden = !asTable; canvas.hidden = asTable; $("legend").hidden = asTable;
  if (asTable) drawTable();
});

// ---- events -------------------------------------------------------------------------------------------------------------
const pointers = new Map(); let moved = 0, spread = 0;
const local = event => { const b = canvas.getBoundingClientRect(); return [event.clientX - b.left, event.clientY - b.top]; };
canvas.addEventListener("pointerdown", event => { canvas.setPointerCapture(event.pointerId); pointers.set(event.pointerId, local(event)); moved = pointers.size > 1 ? 99 : 0; spread = 0; });
canvas.addEventListener("pointermove", event => {
  const here = local(event), before = pointers.get(event.pointerId);
  if (!before) { hover(...here); return; }
  pointers.set(event.pointerId, here);
  if (pointers.size === 2) {
    const [a, b] = [...pointers.values()], now = Math.hypot(a[0] - b[0], a[1] - b[1]);
    if (spread) zoomAt((a[0] + b[0]) / 2, (a[1] + b[1]) / 2, now / spread, false);
    spread = now; return;
  }
  moved += Math.abs(here[0] - before[0]) + Math.abs(here[1] - before[1]);
  if (moved < 4) return;
  cancelAnimationFrame(flight); canvas.classList.add("drag"); unhover();
  view = clamp({...view, x: view.x - (here[0] - before[0]) / view.k, y: view.y - (here[1] - before[1]) / view.k}); redraw();
});
function release(event) {
  const pressed = pointers.delete(event.pointerId); canvas.classList.remove("drag");
  if (pressed && moved < 4 && event.type === "pointerup") { found = null; pick(under(...local(event)), false); bring(); }
}
function bring() { // the panel below the map, on a phone
  if (picked && panel.getBoundingClientRect().top > innerHeight * 0.62) document.querySelector(".stage").scrollIntoView({block: "start", behavior: calm.matches ? "auto" : "smooth"});
}
canvas.addEventListener("pointerup", release);
canvas.addEventListener("pointercancel", release);
canvas.addEventListener("pointerleave", unhover);
canvas.addEventListener("dblclick", event => { const item = under(...local(event)); if (item) goTo(item); else fly(home); });
canvas.addEventListener("wheel", event => {
  event.preventDefault();
  zoomAt(...local(event), Math.exp(-Math.max(-240, Math.min(240, event.deltaY * (event.deltaMode ? 24 : 1))) * (event.ctrlKey ? 0.008 : 0.0022)), false);
}, {passive: false});
canvas.addEventListener("keydown", event => {
  const step = 60 / view.k, act = {
    ArrowLeft: () => fly({...view, x: view.x - step}), ArrowRight: () => fly({...view, x: view.x + step}),
    ArrowUp: () => fly({...view, y: view.y - step}), ArrowDown: () => fly({...view, y: view.y + step}),
    "+": () => zoomAt(W / 2, H / 2, 1.5, true), "=": () => zoomAt(W / 2, H / 2, 1.5, true), "-": () => zoomAt(W / 2, H / 2, 1 / 1.5, true),
    "0": () => fly(home), Escape: () => pick(null, false),
  }[event.key];
  if (act && !event.ctrlKey && !event.metaKey) { event.preventDefault(); act(); }
});
$("in").addEventListener("click", () => zoomAt(W / 2, H / 2, 1.7, true));
$("out").addEventListener("click", () => zoomAt(W / 2, H / 2, 1 / 1.7, true));
$("fit").addEventListener("click", () => fly(home));
$("lines").addEventListener("click", event => { showLines = !showLines; event.currentTarget.setAttribute("aria-pressed", String(showLines)); redraw(); });
const colours = Array.from(document.querySelectorAll("[data-colour]"));
function colourBy(button) {
  mode = button.dataset.colour; recolour(); pick(picked, false);
  for (const b of colours) { b.setAttribute("aria-checked", String(b === button)); b.tabIndex = b === button ? 0 : -1; }
}
for (const [i, button] of colours.entries()) {
  button.tabIndex = i ? -1 : 0;
  button.addEventListener("click", () => colourBy(button));
  button.addEventListener("keydown", event => {
    const step = {ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1}[event.key];
    if (step) { event.preventDefault(); const next = colours[(i + step + colours.length) % colours.length]; next.focus(); colourBy(next); }
  });
}
box.addEventListener("input", () => offer(true));
box.addEventListener("focus", () => { if (box.value && hits.length) openList(true); });
box.addEventListener("blur", () => openList(false));
box.addEventListener("keydown", event => {
  if (event.key === "ArrowDown" || event.key === "ArrowUp") { event.preventDefault(); if (list.hidden) offer(true); mark(event.key === "ArrowDown" ? at + 1 : at < 0 ? -1 : at - 1); }
  else if (event.key === "Enter" && hits.length) { event.preventDefault(); choose(hits[Math.max(at, 0)]); }
  else if (event.key === "Escape") { event.preventDefault(); if (list.hidden) { box.value = ""; offer(false); } else openList(false); }
});
addEventListener("keydown", event => { if (event.key === "/" && !/^(INPUT|TEXTAREA)$/.test(document.activeElement.tagName)) { event.preventDefault(); box.focus(); box.select(); } });
for (const button of document.querySelectorAll("[data-find]")) button.addEventListener("click", () => {
  box.value = button.dataset.find; offer(false);
  if (hits.length) { choose(hits[0]); document.querySelector(".map").scrollIntoView({block: "start", behavior: calm.matches ? "auto" : "smooth"}); }
});
addEventListener("hashchange", fromHash);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", readTheme);
new ResizeObserver(resize).observe(canvas);
readTheme(); resize(); pick(null, false); fromHash();
