// Places for the nodes of a small graph: springs along edges, repulsion between all, the same picture every time.

const ROUNDS = 320;
const APART = 0.8; // between any two nodes at the end, so that none hides another

/**
 * Coordinates for n nodes, roughly 1 apart, wider than high by `aspect`.
 * Nodes begin on a spiral in their order, so that a chain stays a chain and nothing is random. A node with a place in
 * `before` ({x, y} or null for each node) begins there and moves little; a new one begins next to a neighbour.
 */
export function place(n, edges, aspect = 1.6, before = []) {
  const x = new Float64Array(n);
  const y = new Float64Array(n);
  const loose = new Float64Array(n).fill(1); // how far a node may move, of 1
  for (let i = 0; i < n; i += 1) {
    const angle = i * 2.399963; // the golden angle: no two alike
    const radius = 0.9 * Math.sqrt(i + 0.5);
    x[i] = radius * Math.cos(angle) * Math.sqrt(aspect);
    y[i] = (radius * Math.sin(angle)) / Math.sqrt(aspect);
  }
  if (before.some(Boolean)) begin(x, y, loose, edges, before);
  const dx = new Float64Array(n);
  const dy = new Float64Array(n);
  for (let round = 0; round < ROUNDS; round += 1) {
    const heat = 0.6 * (1 - round / ROUNDS) ** 1.5 + 0.005;
    dx.fill(0);
    dy.fill(0);
    for (let i = 0; i < n; i += 1) {
      for (let j = i + 1; j < n; j += 1) {
        const ux = x[i] - x[j];
        const uy = y[i] - y[j];
        const square = ux * ux + uy * uy + 0.01;
        if (square > 36) continue; // too far to matter
        const push = 1.4 / square;
        dx[i] += ux * push;
        dy[i] += uy * push;
        dx[j] -= ux * push;
        dy[j] -= uy * push;
      }
    }
    for (const [a, b] of edges) {
      const ux = x[a] - x[b];
      const uy = y[a] - y[b];
      const pull = 0.35 * Math.hypot(ux, uy);
      dx[a] -= ux * pull;
      dy[a] -= uy * pull;
      dx[b] += ux * pull;
      dy[b] += uy * pull;
    }
    for (let i = 0; i < n; i += 1) {
      dx[i] -= 0.03 * x[i]; // towards the middle, so that parts do not drift away
      dy[i] -= 0.03 * aspect * aspect * y[i];
      const length = Math.hypot(dx[i], dy[i]);
      const step = (length > heat ? heat / length : 1) * loose[i];
      x[i] += dx[i] * step;
      y[i] += dy[i] * step;
    }
  }
  for (let round = 0; round < 40; round += 1) if (!part(x, y)) break;
  return { x, y };
}

/** Sets the first coordinates of nodes that have a place already, and of their neighbours. */
function begin(x, y, loose, edges, before) {
  before.forEach((known, i) => {
    if (known) [x[i], y[i], loose[i]] = [known.x, known.y, 0.15];
  });
  for (const [a, b] of edges) {
    for (const [one, other] of [[a, b], [b, a]]) {
      if (before[one] || !before[other]) continue;
      const away = Math.hypot(before[other].x, before[other].y) || 1;
      const angle = one * 2.399963;
      x[one] = before[other].x * (1 + 1 / away) + 0.7 * Math.cos(angle);
      y[one] = before[other].y * (1 + 1 / away) + 0.7 * Math.sin(angle);
    }
  }
}

/** Moves nodes that are too close away from each other; returns whether there were any. */
function part(x, y) {
  let moved = false;
  for (let i = 0; i < x.length; i += 1) {
    for (let j = i + 1; j < x.length; j += 1) {
      const ux = x[i] - x[j] || 1e-3 * (i - j);
      const uy = y[i] - y[j];
      const distance = Math.hypot(ux, uy);
      if (distance >= APART) continue;
      const step = (APART - distance) / distance / 2;
      x[i] += ux * step;
      y[i] += uy * step;
      x[j] -= ux * step;
      y[j] -= uy * step;
      moved = true;
    }
  }
  return moved;
}

/**
 * Chooses for each label the first of its places {x, y, width, height} that covers no label before it and nothing taken;
 * null where it has none.
 */
export function spread(labels, taken) {
  const kept = [...taken];
  const clear = (one) => kept.every((other) => Math.abs(one.x - other.x) * 2 >= one.width + other.width || Math.abs(one.y - other.y) * 2 >= one.height + other.height);
  return labels.map((places) => {
    const found = places.find(clear) ?? null;
    if (found) kept.push(found);
    return found;
  });
}

/** About how wide a text is in ems: ideographs and the like are as wide as high. */
export function ems(text) {
  let width = 0;
  for (const character of text) width += character.codePointAt(0) >= 0x1100 ? 1 : 0.56;
  return width;
}
