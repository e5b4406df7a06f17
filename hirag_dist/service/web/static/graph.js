// The bridge drawn: nodes, edges, labels where there is room, and what the pointer or a chosen pair lights up.

import { by, many, s, shorten } from "./dom.js";
import { ems, place, spread } from "./layout.js";

const LABEL_EMS = 22;
const FONT = 12;
const EDGE = 26; // px around the picture
const RADIUS = { least: 4, most: 10 }; // px of a key entity's node; less where many share little room
const STRETCH = 1.7; // how much wider than high, or higher than wide, the layout may be made to fill the room

/** A drawing of a model of `bridgeModel`. `chosen(node)` is called when a node is chosen. */
export class Graph {
  constructor(model, chosen) {
    this.model = model;
    this.chosen = chosen;
    this.zoom = 1;
    this.shift = { x: 0, y: 0 };
    this.lit = null; // {nodes, edges}: all else is dimmed
    this.aspect = 0;
    this.element = s("svg", { class: "graph", role: "img", "aria-label": `Graph of ${many(model.nodes.length, "entity", "entities")} and ${many(model.edges.length, "relation")}; the list beside it says the same in words` });
    this.lines = model.edges.map((edge, at) => this.line(edge, at));
    this.dots = model.nodes.map((node, at) => this.dot(node, at));
    this.element.append(s("g", {}, this.lines.map((line) => line.group)), s("g", {}, this.dots.map((dot) => dot.group)));
    this.drag();
    this.watch = new ResizeObserver(() => this.fit());
    this.watch.observe(this.element);
  }

  line(edge, at) {
    const kind = edge.missing ? "missing" : edge.pairs.length ? "onpath" : "beside";
    const shown = s("line", { class: `edge ${kind}` });
    const reach = s("line", { class: "reach" });
    const group = s("g", { "data-edge": at }, shown, reach);
    hint(group, () => this.edgeHint(edge));
    return { group, parts: [shown, reach] };
  }

  dot(node, at) {
    const key = node.order !== null;
    const layer = node.layer === null ? "" : ` l${Math.min(node.layer, 7)}`;
    const label = s("text", { class: "label", dy: "0.35em", "text-anchor": "middle" }, shortenTo(node.name));
    const order = key ? s("text", { class: "order", dy: "0.35em", "text-anchor": "middle" }, String(node.order)) : null;
    const group = s("g", { class: key ? `node key${layer}` : `node${layer}`, "data-node": at, onclick: () => this.chosen(at) }, s("circle"), order, label);
    hint(group, () => [node.name, [key ? `key entity ${node.order}` : "on a path", node.type, node.layer === null ? "" : `layer ${node.layer}`].filter(Boolean).join(" · "), shorten(node.description, 240)]);
    return { group, label, order, circle: group.firstChild, width: ems(shortenTo(node.name)) * FONT + 8, share: key ? 1 : 0.5, radius: 0 };
  }

  edgeHint(edge) {
    const names = `${this.model.nodes[edge.a].name} — ${this.model.nodes[edge.b].name}`;
    if (edge.missing) return [names, "no path connects these two", ""];
    const triple = edge.triples[0];
    const more = edge.triples.length > 1 ? ` (and ${edge.triples.length - 1} more)` : "";
    return [names, triple ? `${triple.kind} relation, weight ${triple.weight.toFixed(1)}${more}` : "a relation on the path, not among those ranked nearest to the question", triple ? shorten(triple.description, 320) : ""];
  }

  /** Lays out for the present size; places are computed anew only where the shape has changed much. */
  fit() {
    const { width, height } = this.element.getBoundingClientRect();
    if (width < 40 || height < 40) return;
    const aspect = width / height;
    if (!this.aspect || Math.abs(Math.log(aspect / this.aspect)) > 0.35) {
      this.aspect = aspect;
      this.places = place(this.model.nodes.length, this.model.edges.filter((edge) => !edge.missing).map((edge) => [edge.a, edge.b]), aspect);
    }
    this.width = width;
    this.height = height;
    this.draw();
  }

  draw() {
    if (!this.places) return;
    const { x, y } = this.places;
    const [left, right] = span(x);
    const [top, bottom] = span(y);
    const wide = (this.width - 2 * EDGE) / Math.max(right - left, 0.5);
    const high = (this.height - 2 * EDGE - FONT) / Math.max(bottom - top, 0.5);
    const [sx, sy] = [Math.min(wide, high * STRETCH, 110) * this.zoom, Math.min(high, wide * STRETCH, 110) * this.zoom];
    const px = (i) => (x[i] - (left + right) / 2) * sx + this.width / 2 + this.shift.x;
    const py = (i) => (y[i] - (top + bottom) / 2) * sy + (this.height - FONT) / 2 + this.shift.y;
    const radius = Math.max(RADIUS.least, Math.min(RADIUS.most, 0.4 * Math.min(sx, sy)));
    this.element.classList.toggle("small", radius < 6);
    for (const dot of this.dots) {
      dot.radius = Math.max(RADIUS.least - 1, radius * dot.share);
      dot.circle.setAttribute("r", dot.radius.toFixed(1));
      dot.order?.setAttribute("font-size", (1.1 * dot.radius).toFixed(1));
    }
    this.element.setAttribute("viewBox", `0 0 ${this.width} ${this.height}`);
    this.model.edges.forEach((edge, at) => {
      const lit = !this.lit || this.lit.edges.has(at);
      this.lines[at].group.classList.toggle("dim", !lit);
      this.lines[at].group.classList.toggle("lit", Boolean(this.lit) && lit);
      for (const part of this.lines[at].parts) {
        for (const [name, value] of [["x1", px(edge.a)], ["y1", py(edge.a)], ["x2", px(edge.b)], ["y2", py(edge.b)]]) part.setAttribute(name, value.toFixed(1));
      }
    });
    this.write(px, py);
    this.dots.forEach((dot, at) => {
      dot.group.setAttribute("transform", `translate(${px(at).toFixed(1)} ${py(at).toFixed(1)})`);
      dot.group.classList.toggle("dim", Boolean(this.lit) && !this.lit.nodes.has(at));
    });
  }

  /** Puts labels below or above their nodes where there is room; of a lit part only, when a part is lit. */
  write(px, py) {
    const shown = this.dots.map((_, at) => at).filter((at) => !this.lit || this.lit.nodes.has(at));
    shown.sort((a, b) => this.weight(a) - this.weight(b));
    const taken = shown.map((at) => ({ x: px(at), y: py(at), width: 2 * this.dots[at].radius, height: 2 * this.dots[at].radius - 2 }));
    const labels = shown.map((at) => {
      const { width, radius } = this.dots[at];
      const x = Math.min(this.width - width / 2, Math.max(width / 2, px(at))); // not over the rim
      const away = radius + FONT / 2 + 3;
      return [py(at) + away, py(at) - away].map((y) => ({ x, y, width, height: FONT + 2 }));
    });
    for (const dot of this.dots) {
      dot.label.classList.add("off"); // until it has a place, or the pointer is on the node
      dot.label.setAttribute("x", 0);
      dot.label.setAttribute("y", dot.radius + FONT / 2 + 3);
    }
    spread(labels, taken).forEach((found, rank) => {
      if (!found) return;
      const { label } = this.dots[shown[rank]];
      label.setAttribute("x", (found.x - px(shown[rank])).toFixed(1));
      label.setAttribute("y", (found.y - py(shown[rank])).toFixed(1));
      label.classList.remove("off");
    });
  }

  /** What gets its label first: keys in order, then the best connected. */
  weight(at) {
    const node = this.model.nodes[at];
    return node.order ?? 1e4 - node.degree;
  }

  /** Lights up a pair's path, or a node with what it touches; null for everything. */
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
    this.draw();
  }

  /** The whole graph again. */
  whole() {
    this.zoom = 1;
    this.shift = { x: 0, y: 0 };
    this.draw();
  }

  drag() {
    let from = null;
    this.element.addEventListener("pointerdown", (event) => {
      from = { x: event.clientX - this.shift.x, y: event.clientY - this.shift.y };
    });
    this.element.addEventListener("pointermove", (event) => {
      if (!from || !event.buttons || event.pointerType === "touch") return; // a finger scrolls the page
      this.shift = { x: event.clientX - from.x, y: event.clientY - from.y };
      this.draw();
    });
    this.element.addEventListener("pointerup", () => {
      from = null;
    });
    this.element.addEventListener("wheel", (event) => {
      if (!event.ctrlKey) return; // the wheel alone scrolls the page
      event.preventDefault();
      this.zoomBy(event.deltaY < 0 ? 1.2 : 1 / 1.2);
    }, { passive: false });
  }
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
  element.addEventListener("pointerenter", () => {
    const [title, kind, text] = lines();
    box.replaceChildren(...[["b", title], ["small", kind], ["p", text]].filter(([, said]) => said).map(([tag, said]) => Object.assign(document.createElement(tag), { textContent: said, dir: "auto" })));
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
