// A graph drawn: nodes, edges, labels where there is room; zoom, pan, and a part that is lit while the rest is dimmed.

import { by, h, s } from "./dom.js";
import { ems, place, spread } from "./layout.js";

const LABEL_EMS = 26;
const FONT = 12;
const EDGE = 26; // px around the picture
const TOP = 50; // px above it, where the buttons are
const RADIUS = { least: 4, most: 10 }; // px of a node of share 1; less where many have little room
const STRETCH = 1.7; // how much wider than high, or higher than wide, the layout may be made to fill the room
const MOVE_MS = 320;
const calm = matchMedia("(prefers-reduced-motion: reduce)");

/**
 * A drawing of a model {nodes, edges}.
 * A node: {id, name, kind (its CSS classes), badge (a short text on it, or null), share (of the largest radius),
 * rank (nodes with a lower one get their labels first), hint() (lines for the pointer), label (for a screen reader)}.
 * An edge: {a, b} as positions in nodes, {kind, missing, hint()}; a missing one does not pull its nodes together.
 * Options: `label` of the picture; `chosen(at)` when a node is chosen; `keys`, whether nodes take the keyboard's focus;
 * `pressed(at, key)` for other keys on a node, returns whether it used the key.
 */
export class Graph {
  constructor({ label, chosen, keys = false, pressed = null }) {
    Object.assign(this, { chosen, keys, pressed, zoom: 1, shift: { x: 0, y: 0 }, lit: null, aspect: 0, flight: 0, moved: 0, current: 0 });
    this.model = { nodes: [], edges: [] };
    this.at = new Map(); // id → place
    this.element = s("svg", { class: "graph", role: keys ? "group" : "img", "aria-label": label });
    this.drag();
    this.watch = new ResizeObserver(() => this.fit());
    this.watch.observe(this.element);
  }

  /** Draws a model; nodes of the model before keep about their places. */
  show(model) {
    const before = this.at.size ? model.nodes.map((node) => this.at.get(node.id) ?? null) : [];
    const focused = this.keys && this.element.contains(document.activeElement) ? this.model.nodes[this.current]?.id : null;
    this.model = model;
    this.lit = null;
    this.places = null;
    this.lines = model.edges.map((edge, at) => this.line(edge, at));
    this.dots = model.nodes.map((node, at) => this.dot(node, at));
    this.element.replaceChildren(s("g", {}, this.lines.map((line) => line.group)), s("g", {}, this.dots.map((dot) => dot.group)));
    by("hint").hidden = true;
    this.reach(Math.max(0, model.nodes.findIndex((node) => node.id === focused)));
    this.aspect = 0;
    this.fit(before);
    if (focused) this.focus(this.current);
  }

  line(edge, at) {
    const shown = s("line", { class: `edge ${edge.kind}` });
    const reach = s("line", { class: "reach" });
    const group = s("g", { "data-edge": at }, shown, reach);
    hint(group, () => edge.hint());
    return { group, parts: [shown, reach] };
  }

  dot(node, at) {
    const text = shortenTo(node.name);
    const label = s("text", { class: "label", dy: "0.35em", "text-anchor": "middle" }, text);
    const order = node.badge === null ? null : s("text", { class: "order", dy: "0.35em", "text-anchor": "middle" }, node.badge);
    const focus = this.keys ? { role: "button", tabindex: "-1", "aria-label": node.label } : {};
    const group = s("g", { class: `node ${node.kind}`, "data-node": at, ...focus, onclick: () => this.moved < 6 && this.choose(at) }, s("circle", { class: "touch" }), s("circle", { class: "dot" }), order, label);
    if (this.keys) group.addEventListener("keydown", (event) => this.key(event, at));
    hint(group, () => node.hint());
    return { group, label, order, circle: group.children[1], width: ems(text) * FONT * (node.rank < 0 ? 1.12 : 1) + 8, radius: 0 }; // bold ones are wider
  }

  choose(at) {
    by("hint").hidden = true;
    if (this.keys) this.focus(at);
    this.chosen(at);
  }

  /** Puts the focus on a node: the only one that the tabulator reaches. */
  focus(at) {
    this.reach(at);
    this.dots[at]?.group.focus({ preventScroll: true });
  }

  reach(at) {
    this.current = at;
    if (this.keys) this.dots.forEach((dot, one) => dot.group.setAttribute("tabindex", one === at ? "0" : "-1"));
  }

  key(event, at) {
    const way = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (way) {
      const next = this.towards(at, way);
      if (next !== null) this.focus(next);
    } else if (event.key === "Enter" || event.key === " ") this.choose(at);
    else if (!this.pressed?.(at, event.key)) return;
    event.preventDefault();
  }

  /** The nearest node in a direction, or null. */
  towards(at, [wx, wy]) {
    const here = this.spots[at];
    let best = null;
    let least = Infinity;
    this.spots.forEach((spot, one) => {
      const along = (spot.x - here.x) * wx + (spot.y - here.y) * wy;
      const aside = Math.abs((spot.x - here.x) * wy) + Math.abs((spot.y - here.y) * wx);
      if (one === at || along <= 0 || along + 2 * aside >= least) return;
      [best, least] = [one, along + 2 * aside];
    });
    return best;
  }

  /** Lays out for the present size; places are computed again only where the shape has changed much. */
  fit(before = []) {
    const { width, height } = this.element.getBoundingClientRect();
    if (width < 40 || height < 40 || !this.model.nodes.length) return;
    const aspect = width / height;
    [this.width, this.height] = [width, height];
    if (this.aspect && Math.abs(Math.log(aspect / this.aspect)) <= 0.35) return void this.draw();
    this.aspect = aspect;
    const pulls = this.model.edges.filter((edge) => !edge.missing).map((edge) => [edge.a, edge.b]);
    const { x, y } = place(this.model.nodes.length, pulls, aspect, before);
    const from = before.some(Boolean) ? before.map((known, i) => known ?? { x: x[i], y: y[i] }) : null;
    this.at = new Map(this.model.nodes.map((node, i) => [node.id, { x: x[i], y: y[i] }]));
    this.move(from, Array.from(x, (one, i) => ({ x: one, y: y[i] })));
  }

  /** Moves the nodes to their places, at once where there are none before or motion is unwanted. */
  move(from, to) {
    cancelAnimationFrame(this.flight);
    const began = performance.now();
    const step = (now) => {
      const part = from && !calm.matches && !document.hidden ? Math.min(1, Math.max(0, now - began) / MOVE_MS) : 1;
      const eased = part * part * (3 - 2 * part);
      this.places = part === 1 ? to : to.map((end, i) => ({ x: from[i].x + (end.x - from[i].x) * eased, y: from[i].y + (end.y - from[i].y) * eased }));
      this.draw();
      if (part < 1) this.flight = requestAnimationFrame(step);
    };
    step(began);
  }

  draw() {
    if (!this.places) return;
    const [left, right] = span(this.places.map((one) => one.x));
    const [top, bottom] = span(this.places.map((one) => one.y));
    const wide = (this.width - 2 * EDGE) / Math.max(right - left, 0.5);
    const high = (this.height - TOP - EDGE - FONT) / Math.max(bottom - top, 0.5);
    const [sx, sy] = [Math.min(wide, high * STRETCH, 110) * this.zoom, Math.min(high, wide * STRETCH, 110) * this.zoom];
    this.spots = this.places.map(({ x, y }) => ({
      x: (x - (left + right) / 2) * sx + this.width / 2 + this.shift.x,
      y: (y - (top + bottom) / 2) * sy + (this.height + TOP - EDGE - FONT) / 2 + this.shift.y,
    }));
    const radius = Math.max(RADIUS.least, Math.min(RADIUS.most, 0.4 * Math.min(sx, sy)));
    this.element.classList.toggle("small", radius < 6);
    this.element.setAttribute("viewBox", `0 0 ${this.width} ${this.height}`);
    this.dots.forEach((dot, at) => {
      dot.radius = Math.max(RADIUS.least - 1, radius * this.model.nodes[at].share);
      dot.circle.setAttribute("r", dot.radius.toFixed(1));
      dot.group.firstChild.setAttribute("r", (dot.radius + 5).toFixed(1)); // a finger needs more than the dot
      dot.order?.setAttribute("font-size", (1.1 * dot.radius).toFixed(1));
      dot.group.setAttribute("transform", `translate(${this.spots[at].x.toFixed(1)} ${this.spots[at].y.toFixed(1)})`);
      dot.group.classList.toggle("dim", Boolean(this.lit) && !this.lit.nodes.has(at));
    });
    this.model.edges.forEach((edge, at) => {
      const lit = !this.lit || this.lit.edges.has(at);
      const [a, b] = [this.spots[edge.a], this.spots[edge.b]];
      this.lines[at].group.classList.toggle("dim", !lit);
      this.lines[at].group.classList.toggle("lit", Boolean(this.lit) && lit);
      for (const part of this.lines[at].parts) {
        for (const [name, value] of [["x1", a.x], ["y1", a.y], ["x2", b.x], ["y2", b.y]]) part.setAttribute(name, value.toFixed(1));
      }
    });
    this.write();
  }

  /** Puts labels below or above their nodes where there is room; of a lit part only, when a part is lit. */
  write() {
    const shown = this.dots.map((_, at) => at).filter((at) => !this.lit || this.lit.nodes.has(at));
    shown.sort((a, b) => this.model.nodes[a].rank - this.model.nodes[b].rank);
    const taken = shown.map((at) => ({ ...this.spots[at], width: 2 * this.dots[at].radius, height: 2 * this.dots[at].radius - 2 }));
    const labels = shown.map((at) => {
      const { width, radius } = this.dots[at];
      const x = Math.min(this.width - width / 2, Math.max(width / 2, this.spots[at].x)); // not over the rim
      const away = radius + FONT / 2 + 3;
      const aside = (side) => ({ x: this.spots[at].x + side * (radius + width / 2), y: this.spots[at].y, width, height: FONT + 2 });
      const beside = [1, -1].map(aside).filter((one) => one.x - width / 2 > 0 && one.x + width / 2 < this.width);
      return [...[away, -away].map((up) => ({ x, y: this.spots[at].y + up, width, height: FONT + 2 })), ...beside];
    });
    for (const dot of this.dots) {
      dot.label.classList.add("off"); // until it has a place, or the pointer is on the node
      dot.label.setAttribute("x", 0);
      dot.label.setAttribute("y", dot.radius + FONT / 2 + 3);
    }
    spread(labels, taken).forEach((found, rank) => {
      if (!found) return;
      const { label } = this.dots[shown[rank]];
      label.setAttribute("x", (found.x - this.spots[shown[rank]].x).toFixed(1));
      label.setAttribute("y", (found.y - this.spots[shown[rank]].y).toFixed(1));
      label.classList.remove("off");
    });
  }

  /** Lights up {nodes, edges}, sets of positions; null for everything. */
  light(lit) {
    this.lit = lit;
    for (const at of lit?.edges ?? []) this.element.firstChild.append(this.lines[at].group); // above the dimmed
    this.draw();
  }

  /** A node, its edges, and the nodes at their other ends. */
  around(at) {
    const edges = new Set(this.model.edges.flatMap((edge, one) => (edge.a === at || edge.b === at ? [one] : [])));
    return { edges, nodes: new Set([at, ...[...edges].flatMap((one) => [this.model.edges[one].a, this.model.edges[one].b])]) };
  }

  /** Nearer (above 1) or farther, around the middle. */
  zoomBy(factor) {
    const zoom = Math.min(8, Math.max(0.5, this.zoom * factor));
    this.shift = { x: (this.shift.x * zoom) / this.zoom, y: (this.shift.y * zoom) / this.zoom };
    this.zoom = zoom;
    this.element.classList.toggle("near", zoom > 1.05); // then a finger moves the graph, else it scrolls the page
    this.draw();
  }

  /** The whole graph again. */
  whole() {
    this.shift = { x: 0, y: 0 };
    this.zoom = 1;
    this.zoomBy(1);
  }

  drag() {
    const held = new Map();
    let apart = 0;
    const listen = (name, act, options) => this.element.addEventListener(name, act, options);
    const end = (event) => {
      held.delete(event.pointerId);
      apart = 0;
    };
    listen("pointerdown", (event) => {
      if (!held.size) this.moved = 0;
      held.set(event.pointerId, { x: event.clientX, y: event.clientY });
    });
    listen("pointermove", (event) => {
      const before = held.get(event.pointerId);
      if (!before || !event.buttons) return;
      const now = { x: event.clientX, y: event.clientY };
      held.set(event.pointerId, now);
      const [one, other] = held.values();
      if (other) {
        const wide = Math.hypot(one.x - other.x, one.y - other.y);
        if (apart) this.zoomBy(wide / apart);
        apart = wide;
      }
      this.moved += Math.hypot(now.x - before.x, now.y - before.y);
      if (this.moved < 6) return;
      const half = other ? 2 : 1; // two fingers move it by their mean
      this.shift = { x: this.shift.x + (now.x - before.x) / half, y: this.shift.y + (now.y - before.y) / half };
      this.draw();
    });
    for (const name of ["pointerup", "pointercancel", "pointerleave"]) listen(name, end);
    listen("wheel", (event) => {
      if (!event.ctrlKey) return; // the wheel alone scrolls the page
      event.preventDefault();
      this.zoomBy(event.deltaY < 0 ? 1.2 : 1 / 1.2);
    }, { passive: false });
  }
}

/** Buttons for a graph; `more` are put before them. */
export function graphTools(graph, more = [], whole = () => graph.whole()) {
  return h("div", { class: "tools", role: "toolbar", "aria-label": "Graph" }, more, tool("−", "Zoom out", () => graph.zoomBy(1 / 1.4)), tool("+", "Zoom in", () => graph.zoomBy(1.4)), tool("⤢", "The whole graph", whole));
}

/** A button with a sign. */
export function tool(sign, label, action) {
  return h("button", { type: "button", title: label, "aria-label": label, onclick: action }, sign);
}

function shortenTo(name) {
  let kept = "";
  for (const character of name) {
    if (ems(kept) > LABEL_EMS * 0.56) return `${kept.trimEnd()}…`;
    kept += character;
  }
  return kept;
}

function span(values) {
  let [low, high] = [Infinity, -Infinity];
  for (const value of values) [low, high] = [Math.min(low, value), Math.max(high, value)];
  return [low, high];
}

/** Shows lines of text near the pointer while it is over an element. */
function hint(element, lines) {
  const box = by("hint");
  element.addEventListener("pointerenter", (event) => {
    if (event.pointerType === "touch") return; // a finger would cover it; the text below the graph says the same
    const [title, kind, text] = lines();
    box.replaceChildren(...[["b", title], ["small", kind], ["p", text]].filter(([, line]) => line).map(([tag, line]) => h(tag, { dir: "auto" }, line)));
    box.hidden = false;
  });
  element.addEventListener("pointermove", (event) => {
    const { width, height } = box.getBoundingClientRect();
    box.style.left = `${Math.max(8, Math.min(event.clientX + 14, innerWidth - width - 8))}px`;
    box.style.top = `${event.clientY + 18 + height > innerHeight ? Math.max(8, event.clientY - height - 12) : event.clientY + 18}px`;
  });
  element.addEventListener("pointerleave", () => {
    box.hidden = true;
  });
}
