// The map: its data, colours, view and drawing. The three scripts are one function of the page.
const data = JSON.parse(document.getElementById("data").textContent);
const E = data.entities, C = data.communities, R = data.relations, D = data.documents, K = data.chunks;
const nE = E.name.length, nC = C.title.length, nR = R.source.length;
const $ = id => document.getElementById(id);
const canvas = $("map"), ctx = canvas.getContext("2d"), tip = $("tip"), panel = $("panel"), box = $("search"), list = $("results");
const calm = matchMedia("(prefers-reduced-motion: reduce)");
const count = (n, one, many) => n.toLocaleString("en") + " " + (n === 1 ? one : many);

// ---- derived tables -------------------------------------------------------------------------------------------------
const children = Array.from({length: nC}, () => []), own = Array.from({length: nC}, () => []), tops = [];
for (let c = 0; c < nC; c++) (C.parent[c] < 0 ? tops : children[C.parent[c]]).push(c);
for (let e = 0; e < nE; e++) if (E.home[e] >= 0) own[E.home[e]].push(e);
const root = new Int32Array(nC);
for (let c = 0; c < nC; c++) root[c] = C.parent[c] < 0 ? c : root[C.parent[c]];
const start = new Int32Array(nE + 1), links = new Int32Array(2 * nR);
for (let r = 0; r < nR; r++) { start[R.source[r] + 1]++; start[R.target[r] + 1]++; }
for (let e = 0; e < nE; e++) start[e + 1] += start[e];
const fill = start.slice();
for (let r = 0; r < nR; r++) { links[fill[R.source[r]]++] = r; links[fill[R.target[r]]++] = r; }
const other = (r, e) => R.source[r] === e ? R.target[r] : R.source[r];
const linksOf = e => links.subarray(start[e], start[e + 1]);
const chain = c => { const up = []; for (; c >= 0; c = C.parent[c]) up.unshift(c); return up; };
function members(c) {
  const all = own[c].slice();
  for (const child of children[c]) all.push(...members(child));
  return all.sort((a, b) => a - b); // entities come most connected first
}
const above = Array.from({length: nE}, () => []), below = Array.from({length: nE}, () => []); // summaries and members of an entity
data.summaries.member.forEach((e, i) => { const s = data.summaries.summary[i]; above[e].push(s); below[s].push(e); });
const titles = C.title.map(title => title || "untitled");

// ---- colours --------------------------------------------------------------------------------------------------------
const WHEEL = {
  light: ["#4c78c8", "#d9822b", "#2f9e72", "#c94f7c", "#8a63c9", "#a98a2d", "#3aa5c4", "#c65a46", "#6f9a34", "#7d7468"],
  dark: ["#7ea6f2", "#f0a357", "#5cc99b", "#f083aa", "#b795f2", "#d6b95c", "#6bcbe6", "#ef8b78", "#a2cc68", "#aaa196"],
};
let theme = {}, mode = "layer", group = new Uint8Array(nE), palette = [];
const layers = Math.max(0, ...E.layer) + 1;
function readTheme() {
  const css = getComputedStyle(document.documentElement), v = name => css.getPropertyValue(name).trim();
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  theme = {dark, ink: v("--ink"), soft: v("--soft"), well: v("--well"), card: v("--card"), accent: v("--accent"), ring: v("--ring"),
    layers: [0, 1, 2, 3, 4, 5, 6, 7].map(i => v("--l" + i)), wheel: WHEEL[dark ? "dark" : "light"]};
  recolour();
}
function recolour() {
  const wheel = theme.wheel, rest = wheel.length - 1;
  if (mode === "layer") { palette = theme.layers; group = Uint8Array.from(E.layer, l => l % 8); }
  else if (mode === "type") { palette = wheel; group = Uint8Array.from(E.type, t => Math.min(t, rest)); }
  else { palette = wheel; group = Uint8Array.from(E.home, c => c < 0 ? rest : hue(c)); }
  const entries = mode === "layer" ? Array.from({length: layers}, (_, l) => [palette[l % 8], "layer " + l])
    : mode === "type" ? data.types.slice(0, rest).map((t, i) => [palette[i], t]).concat(data.types.length > rest ? [[palette[rest], "other types"]] : [])
    : [];
  $("legend").replaceChildren(...entries.map(([colour, name]) => {
    const item = make("span", {dir: "auto"}); const dot = make("i"); dot.style.background = colour; item.append(dot, name); return item;
  }));
  $("legend").hidden = !entries.length;
  redraw();
}
const place = new Int32Array(nC); tops.forEach((c, i) => { place[c] = i; });
const hue = c => place[root[c]] % (theme.wheel.length - 1);

// ---- view -----------------------------------------------------------------------------------------------------------
let W = 0, H = 0, view = {x: 0, y: 0, k: 1}, home = {x: 0, y: 0, k: 1}, flight = 0, pending = false, showLines = true;
let picked = null, over = null, found = null; // {kind: "e" | "c", id}; found: Uint8Array of matching entities
let way = null; // entities of a path in order, or null
const sx = x => (x - view.x) * view.k + W / 2, sy = y => (y - view.y) * view.k + H / 2;
function redraw() { if (!pending) { pending = true; requestAnimationFrame(() => { pending = false; draw(); }); } }
function clamp(v) {
  const k = Math.min(Math.max(v.k, home.k * 0.6), Math.max(home.k * 2, 4)), R0 = data.radius;
  return {k, x: Math.min(Math.max(v.x, -R0), R0), y: Math.min(Math.max(v.y, -R0), R0)};
}
function fly(to) {
  to = clamp(to); cancelAnimationFrame(flight);
  if (calm.matches || document.hidden) { view = to; redraw(); return; }
  const from = view, t0 = performance.now(), ms = 420;
  const step = now => {
    const t = Math.min(1, (now - t0) / ms), s = t * t * (3 - 2 * t), k = from.k * Math.pow(to.k / from.k, s);
    const p = Math.abs(to.k - from.k) < 1e-9 ? s : (1 / from.k - 1 / k) / (1 / from.k - 1 / to.k); // keeps the target in sight
    view = {k, x: from.x + (to.x - from.x) * p, y: from.y + (to.y - from.y) * p};
    draw(); if (t < 1) flight = requestAnimationFrame(step);
  };
  flight = requestAnimationFrame(step);
}
function zoomAt(px, py, factor, smooth) {
  const k = clamp({...view, k: view.k * factor}).k, x = view.x + (px - W / 2) * (1 / view.k - 1 / k), y = view.y + (py - H / 2) * (1 / view.k - 1 / k);
  if (smooth) fly({x, y, k}); else { cancelAnimationFrame(flight); view = clamp({x, y, k}); redraw(); }
}
function resize() {
  const ratio = devicePixelRatio || 1, fitted = view.k === home.k && view.x === home.x && view.y === home.y;
  W = canvas.clientWidth; H = canvas.clientHeight;
  canvas.width = Math.round(W * ratio); canvas.height = Math.round(H * ratio); ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
  home = {x: 0, y: 0, k: Math.min(W, H) / (2.06 * Math.max(data.radius, 10))};
  if (fitted) view = {...home};
  draw(); // at once: setting the size has emptied the canvas, and a frame later it would flicker
}
function goTo(item) {
  if (item.kind === "c") fly({x: C.x[item.id], y: C.y[item.id], k: Math.min(W, H) / (2.3 * Math.max(C.r[item.id], 60))});
  else fly({x: E.x[item.id], y: E.y[item.id], k: Math.max(view.k, Math.min(13 / E.r[item.id], Math.min(W, H) / (2.2 * nearRadius(item.id))))});
}
function nearRadius(e) { // so that what is around an entity is seen too
  const c = E.home[e]; return c < 0 ? data.radius * 0.3 : Math.max(Math.min(C.r[c], data.radius * 0.3), E.r[e] * 12);
}

// ---- drawing --------------------------------------------------------------------------------------------------------
function draw() {
  ctx.fillStyle = theme.well; ctx.fillRect(0, 0, W, H);
  drawCircles();
  const focus = picked || over, near = focus && focus.kind === "e" ? focus.id : -1;
  const bright = way ? maskOf(way) : found || (picked && picked.kind === "e" ? around(picked.id) : null);
  if (showLines) drawLines(near);
  drawDots(bright);
  drawMarks(way ? -1 : near);
  if (way) drawWay();
  drawLabels(bright, near);
}
function maskOf(entities) {
  const mask = new Uint8Array(nE); for (const e of entities) mask[e] = 1;
  return mask;
}
function drawWay() {
  ctx.beginPath();
  for (let i = 1; i < way.length; i++) bend(ctx, sx(E.x[way[i - 1]]), sy(E.y[way[i - 1]]), sx(E.x[way[i]]), sy(E.y[way[i]]));
  ctx.strokeStyle = theme.accent; ctx.lineWidth = 3; ctx.stroke();
}
function around(e) {
  const mask = new Uint8Array(nE); mask[e] = 1;
  for (const r of linksOf(e)) mask[other(r, e)] = 1;
  return mask;
}
function drawCircles() {
  for (let c = 0; c < nC; c++) {
    const r = C.r[c] * view.k, x = sx(C.x[c]), y = sy(C.y[c]);
    if (r < 1.5 || x + r < 0 || x - r > W || y + r < 0 || y - r > H) continue;
    ctx.beginPath(); ctx.arc(x, y, r, 0, 2 * Math.PI);
    ctx.globalAlpha = (C.level[c] ? 0.05 : 0.09) * (mode === "community" ? 1.5 : 1); ctx.fillStyle = theme.wheel[hue(c)]; ctx.fill(); ctx.globalAlpha = 1;
    const on = (picked && picked.kind === "c" && picked.id === c) || (over && over.kind === "c" && over.id === c);
    ctx.lineWidth = on ? 2.5 : C.level[c] ? 0.8 : 1.3;
    ctx.strokeStyle = on ? theme.accent : "rgba(" + theme.ring + (C.level[c] ? ",.22)" : ",.42)");
    if (r > 3) ctx.stroke();
  }
}
function drawLines(near) {
  const zoom = view.k / home.k, budget = Math.min(4000, 350 * Math.pow(zoom, 1.1)), m = 40;
  const lines = [new Path2D(), new Path2D()], far = Math.min(W, H) * 0.35;
  let left = budget;
  for (let r = 0; r < nR && left > 0; r++) { // heaviest first
    const a = R.source[r], b = R.target[r], x1 = sx(E.x[a]), y1 = sy(E.y[a]), x2 = sx(E.x[b]), y2 = sy(E.y[b]);
    const in1 = x1 > -m && x1 < W + m && y1 > -m && y1 < H + m, in2 = x2 > -m && x2 < W + m && y2 > -m && y2 < H + m;
    if (zoom > 3 ? !(in1 && in2) : !(in1 || in2)) continue;
    bend(lines[Math.abs(x1 - x2) + Math.abs(y1 - y2) > far ? 1 : 0], x1, y1, x2, y2); left--;
  }
  const faint = near >= 0 || found ? 0.4 : 1; // long lines fainter: they cross what they do not belong to
  ctx.lineWidth = 0.8;
  for (const [i, alpha] of [0.22, 0.09].entries()) { ctx.strokeStyle = "rgba(" + theme.ring + "," + alpha * faint + ")"; ctx.stroke(lines[i]); }
}
function bend(path, x1, y1, x2, y2) {
  path.moveTo(x1, y1); path.quadraticCurveTo((x1 + x2) / 2 - (y2 - y1) * 0.12, (y1 + y2) / 2 + (x2 - x1) * 0.12, x2, y2);
}
function drawDots(bright) {
  for (const pass of bright ? [0, 1] : [1]) {
    ctx.globalAlpha = pass ? 1 : 0.2;
    for (let g = 0; g < palette.length; g++) {
      ctx.fillStyle = palette[g]; ctx.beginPath();
      for (let e = 0; e < nE; e++) {
        if (group[e] !== g || (bright && bright[e] !== pass)) continue;
        const x = sx(E.x[e]), y = sy(E.y[e]), r = Math.max(E.r[e] * view.k, bright && pass ? 2.4 : 0.55);
        if (x < -r || x > W + r || y < -r || y > H + r) continue;
        if (r < 1.7) { const s = r * 0.9; ctx.rect(x - s, y - s, 2 * s, 2 * s); } else { ctx.moveTo(x + r, y); ctx.arc(x, y, r, 0, 2 * Math.PI); }
      }
      ctx.fill();
    }
  }
  ctx.globalAlpha = 1;
}
function drawMarks(near) {
  if (near >= 0) {
    const x1 = sx(E.x[near]), y1 = sy(E.y[near]);
    ctx.beginPath();
    for (const r of linksOf(near)) { const o = other(r, near); bend(ctx, x1, y1, sx(E.x[o]), sy(E.y[o])); }
    ctx.strokeStyle = theme.accent; ctx.globalAlpha = 0.7; ctx.lineWidth = 1.3; ctx.stroke(); ctx.globalAlpha = 1;
  }
  for (const item of [over, picked]) {
    if (!item || item.kind !== "e") continue;
    ctx.beginPath(); ctx.arc(sx(E.x[item.id]), sy(E.y[item.id]), Math.max(E.r[item.id] * view.k, 3) + 3, 0, 2 * Math.PI);
    ctx.strokeStyle = item === picked ? theme.accent : theme.ink; ctx.lineWidth = 2; ctx.stroke();
  }
}

// ---- labels: greedily, the most important first, none over another -----------------------------------------------------
const FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "Liberation Sans", sans-serif';
const widths = new Map();
function widthOf(text, font) {
  const key = font + "|" + text; let w = widths.get(key);
  if (w === undefined) { if (widths.size > 20000) widths.clear(); ctx.font = font; widths.set(key, w = ctx.measureText(text).width); }
  return w;
}
function clip(text, font, room) {
  if (widthOf(text, font) <= room) return text;
  const letters = Array.from(text); let low = 1, high = letters.length;
  while (low < high) { const mid = (low + high + 1) >> 1; if (widthOf(letters.slice(0, mid).join("") + "…", font) <= room) low = mid; else high = mid - 1; }
  return letters.slice(0, low).join("").trimEnd() + "…";
}
function drawLabels(bright, near) {
  const taken = $("legend").hidden ? [] : [[0, H - $("legend").offsetHeight - 14, $("legend").offsetWidth + 16, H]];
  const free = (x, y, w, h) => taken.every(t => x + w < t[0] || t[0] + t[2] < x || y + h < t[1] || t[1] + t[3] < y);
  const claim = (x, y, w, h) => free(x, y, w, h) && taken.push([x, y, w, h]) > 0;
  ctx.textAlign = "center"; ctx.textBaseline = "middle"; ctx.direction = "inherit";
  for (const item of [picked, over]) if (item && item.kind === "e") nameDot(item.id, claim, true);
  for (const e of way || []) nameDot(e, claim, true);
  const shown = [];
  for (let c = 0; c < nC; c++) {
    const r = C.r[c] * view.k, x = sx(C.x[c]), y = sy(C.y[c]);
    if (r < (C.level[c] ? 46 : 24) || x + r < 30 || x - r > W - 30 || y + r < 20 || y - r > H - 20) continue;
    if (r > 1.5 * Math.max(W, H)) { const dx = x - W / 2, dy = y - H / 2; if (dx * dx + dy * dy > r * r) continue; }
    shown.push([c, r, x, y]);
  }
  shown.sort((a, b) => C.level[a[0]] - C.level[b[0]] || b[1] - a[1]);
  for (const [c, r, x, y] of shown.slice(0, 70)) nameCircle(c, r, x, y, claim);
  if (near >= 0) for (const r of linksOf(near).subarray(0, 60)) nameDot(other(r, near), claim, false);
  const zoom = view.k / home.k, most = Math.min(110, 12 + 14 * zoom);
  let left = most, tried = 0;
  for (let e = 0; e < nE && left > 0 && tried < 1500; e++) { // most connected first
    if (bright && !bright[e]) continue;
    const r = E.r[e] * view.k;
    if (!bright && e >= 10 && r < 4.5) continue;
    const x = sx(E.x[e]), y = sy(E.y[e]);
    if (x < 0 || x > W || y < 0 || y > H) continue;
    tried++; if (nameDot(e, claim, false)) left--;
  }
}
function nameCircle(c, r, x, y, claim) {
  const size = C.level[c] ? 11.5 : r > 90 ? 14 : 12, font = (C.level[c] ? "500 " : "600 ") + size + "px " + FONT;
  const text = clip(titles[c], font, Math.min(Math.max(1.75 * r, C.level[c] ? 90 : 200), 330)), w = widthOf(text, font) + 14, h = size + 9;
  const cx = Math.min(Math.max(x, w / 2 + 4), W - w / 2 - 4), top = Math.max(y - r - h / 2, 6); // stays in sight while its circle is
  for (let step = 0; step < 4; step++) {
    const ty = top + step * (h + 3);
    if (ty + h > Math.min(y + r, H)) return;
    if (!claim(cx - w / 2, ty, w, h)) continue;
    ctx.globalAlpha = 0.9; ctx.fillStyle = theme.card;
    ctx.beginPath(); ctx.roundRect(cx - w / 2, ty, w, h, h / 2); ctx.fill(); ctx.globalAlpha = 1;
    ctx.strokeStyle = "rgba(" + theme.ring + (C.level[c] ? ",.2)" : ",.45)"); ctx.lineWidth = 1; ctx.stroke();
    ctx.font = font; ctx.fillStyle = theme.ink; ctx.fillText(text, cx, ty + h / 2 + 0.5);
    return;
  }
}
function nameDot(e, claim, strong) {
  const r = Math.max(E.r[e] * view.k, 1), size = strong ? 13.5 : r > 12 ? 12.5 : 11.5, font = (strong ? "650 " : "450 ") + size + "px " + FONT;
  const text = clip(E.name[e], font, strong ? 320 : 190), w = widthOf(text, font) + 4, h = size + 3, at = sx(E.x[e]), x = at < 0 || at > W ? at : Math.min(Math.max(at, w / 2 + 2), W - w / 2 - 2); // not over the rim
  const y = sy(E.y[e]) + r + (strong ? 6 : 2);
  if (x < -20 || x > W + 20 || y < -20 || y > H + 20 || !claim(x - w / 2, y, w, h)) return false;
  ctx.font = font; ctx.lineJoin = "round"; ctx.lineWidth = 3.5; ctx.strokeStyle = theme.well; ctx.strokeText(text, x, y + h / 2);
  ctx.fillStyle = theme.ink; ctx.fillText(text, x, y + h / 2);
  return true;
}

// ---- what is under the pointer ----------------------------------------------------------------------------------------
function under(px, py) {
  const x = (px - W / 2) / view.k + view.x, y = (py - H / 2) / view.k + view.y;
  let best = -1, close = Infinity;
  for (let e = 0; e < nE; e++) {
    const dx = E.x[e] - x, dy = E.y[e] - y, d = Math.sqrt(dx * dx + dy * dy) - E.r[e];
    if (d < close && E.r[e] * view.k > 1.3) { close = d; best = e; }
  }
  if (best >= 0 && close * view.k < 3) return {kind: "e", id: best};
  let inside = -1;
  for (let c = 0; c < nC; c++) { // parents first: the last that fits is the deepest
    const dx = C.x[c] - x, dy = C.y[c] - y;
    if (dx * dx + dy * dy < C.r[c] * C.r[c] && (C.parent[c] < 0 || C.r[c] * view.k > 22)) inside = c;
  }
  return inside < 0 ? null : {kind: "c", id: inside};
}
const same = (a, b) => a === b || (a && b && a.kind === b.kind && a.id === b.id);
function hover(px, py) {
  const item = under(px, py);
  if (!same(item, over)) { over = item; redraw(); if (item) tip.replaceChildren(...tipOf(item)); }
  canvas.classList.toggle("over", Boolean(item)); tip.hidden = !item;
  if (!item) return;
  const w = tip.offsetWidth, h = tip.offsetHeight;
  tip.style.left = Math.max(4, px + 18 + w > W ? px - w - 14 : px + 18) + "px";
  tip.style.top = Math.max(4, Math.min(py + 16, H - h - 6)) + "px";
}
function unhover() { tip.hidden = true; if (over) { over = null; redraw(); } }
function tipOf(item) {
  if (item.kind === "c") return [make("b", {text: titles[item.id], dir: "auto"}), make("small", {text: factsOf(item.id)})];
  const e = item.id, lines = [make("b", {text: E.name[e], dir: "auto"}), make("small", {text: data.types[E.type[e]] + " · layer " + E.layer[e] + " · " + count(E.degree[e], "neighbour", "neighbours")})];
  if (E.about[e]) lines.push(make("p", {text: E.about[e], dir: "auto"}));
  if (E.home[e] >= 0) lines.push(make("small", {text: "in " + chain(E.home[e]).map(c => titles[c]).join(" › "), dir: "auto"}));
  return lines;
}
const factsOf = c => "community of level " + C.level[c] + " · " + count(C.size[c], "entity", "entities") + " · " + count(C.relations[c], "relation", "relations");

