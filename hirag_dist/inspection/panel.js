// The panel next to the map: cards of communities and entities, and the way from one to another.
// ---- side panel ---------------------------------------------------------------------------------------------------------
function make(tag, {text, ...attributes} = {}, ...inner) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  if (text !== undefined) node.textContent = text;
  node.append(...inner);
  return node;
}
function jump(item, note) {
  const button = make("button", {type: "button"}), dot = make("i");
  dot.style.background = item.kind === "e" ? palette[group[item.id]] : "transparent";
  if (item.kind === "c") dot.style.border = "1.5px solid " + theme.soft;
  button.append(dot, make("span", {text: item.kind === "e" ? E.name[item.id] : titles[item.id], dir: "auto"}), make("small", {text: note}));
  button.addEventListener("click", () => pick(item, true));
  return button;
}
function longList(items, row, first) {
  const list = make("ul"), rest = items.slice(first);
  list.append(...items.slice(0, first).map(row));
  if (!rest.length) return [list];
  const more = make("button", {type: "button", class: "more", text: "show " + Math.min(rest.length, 500).toLocaleString("en") + " more"});
  more.addEventListener("click", () => {
    list.append(...rest.splice(0, 500).map(row));
    if (rest.length) more.textContent = "show " + Math.min(rest.length, 500) + " more"; else more.remove();
  });
  return [list, more];
}
function fact(value, name) { return make("span", {}, make("b", {text: value}), " " + name); }
function showCommunity(c) {
  const up = chain(c).slice(0, -1), inner = members(c), parts = [make("p", {class: "kicker", text: "Community · level " + C.level[c]})];
  if (up.length) parts.push(make("div", {class: "up"}, ...up.map(p => jump({kind: "c", id: p}, "level " + C.level[p]))));
  parts.push(make("h2", {text: titles[c], dir: "auto"}));
  const facts = make("div", {class: "facts"}, fact(C.size[c].toLocaleString("en"), C.size[c] === 1 ? "entity" : "entities"), fact(C.relations[c].toLocaleString("en"), C.relations[c] === 1 ? "relation" : "relations"));
  if (C.rating[c] !== null) facts.append(fact(C.rating[c].toFixed(1), "of 10"));
  parts.push(facts);
  if (C.summary[c]) parts.push(make("p", {text: C.summary[c], dir: "auto"}));
  else parts.push(make("p", {class: "soft", text: C.rating[c] === null ? "No report." : "The report is left out of this page."}));
  for (const [summary, explanation] of C.findings[c]) parts.push(make("details", {}, make("summary", {text: summary, dir: "auto"}), make("p", {text: explanation, dir: "auto"})));
  if (children[c].length) parts.push(make("h3", {text: count(children[c].length, "community", "communities") + " inside"}), ...longList(children[c], s => make("li", {}, jump({kind: "c", id: s}, C.size[s].toLocaleString("en"))), 8));
  if (inner.length) parts.push(make("h3", {text: inner.length < C.size[c] ? "Members, " + inner.length.toLocaleString("en") + " of " + C.size[c].toLocaleString("en") : "Members"}), ...longList(inner, e => make("li", {}, jump({kind: "e", id: e}, data.types[E.type[e]])), 25));
  return parts;
}
function showEntity(e) {
  const parts = [make("p", {class: "kicker", text: "Entity · layer " + E.layer[e] + " · " + data.types[E.type[e]]}), make("h2", {text: E.name[e], dir: "auto"})];
  parts.push(make("p", E.about[e] ? {text: E.about[e], dir: "auto"} : {text: "No description.", class: "soft"}));
  parts.push(make("div", {class: "facts"}, fact(E.degree[e].toLocaleString("en"), E.degree[e] === 1 ? "neighbour" : "neighbours")), actsOf(e));
  const entities = (title, list) => { if (list.length) parts.push(make("h3", {text: title}), ...longList(list, one => make("li", {}, jump({kind: "e", id: one}, "layer " + E.layer[one])), 12)); };
  entities("Above: its summaries", above[e]);
  entities("Below: what it summarises", below[e]);
  parts.push(...passagesOf(e));
  if (E.home[e] >= 0) parts.push(make("h3", {text: "In"}), make("ul", {}, ...chain(E.home[e]).map(c => make("li", {}, jump({kind: "c", id: c}, "level " + C.level[c])))));
  const rows = Array.from(linksOf(e));
  if (rows.length) parts.push(make("h3", {text: "Relations, heaviest first"}), ...longList(rows, r => {
    const item = make("li", {}, jump({kind: "e", id: other(r, e)}, data.kinds[R.kind[r]] + " · " + R.weight[r]));
    if (R.about[r]) item.append(make("p", {text: R.about[r], dir: "auto"}));
    return item;
  }, 25));
  return parts;
}
function action(text, act) { const button = make("button", {type: "button", class: "more", text}); button.addEventListener("click", act); return button; }
function actsOf(e) {
  const acts = make("div", {class: "acts"}, action("Path from here", () => { pathStart = e; tellPath("Path from " + E.name[e] + ": choose the other end on the map, in a list or by search, then “Path to here”."); }));
  if (pathStart >= 0 && pathStart !== e) acts.append(action("Path to here", () => showPath(pathStart, e)));
  if (/^https?:/.test(data.page)) acts.append(make("a", {class: "more", href: data.page.replace(/#.*$/, "") + "#view=explore&entity=" + encodeURIComponent(E.id[e]), target: "_blank", rel: "noopener noreferrer", text: "Question page"}));
  acts.append(make("p", {class: "soft", role: "status"}));
  return acts;
}
function tellPath(text) { const said = panel.querySelector(".acts p"); if (said) said.textContent = text; }

// ---- a path between two entities: fewest relations, among those drawn -----------------------------------------------------
let pathStart = -1;
function pathBetween(a, b) {
  const before = new Int32Array(nE).fill(-1), queue = [a]; before[a] = a;
  for (let i = 0; i < queue.length && before[b] < 0; i++) for (const r of linksOf(queue[i])) { const o = other(r, queue[i]); if (before[o] < 0) { before[o] = queue[i]; queue.push(o); } }
  if (before[b] < 0) return null;
  const path = [b]; while (path[0] !== a) path.unshift(before[path[0]]);
  return path;
}
function showPath(a, b) {
  const path = pathBetween(a, b);
  if (!path) { tellPath("No path of the relations on this page connects the two."); return; }
  pick(null, false); way = path; pathStart = -1;
  const rows = path.flatMap((e, i) => {
    const row = make("li", {}, jump({kind: "e", id: e}, "layer " + E.layer[e])), r = i ? linksOf(e).find(one => other(one, e) === path[i - 1]) : -1;
    if (i && R.about[r]) row.prepend(make("p", {text: R.about[r], dir: "auto"}));
    return row;
  });
  panel.replaceChildren(make("p", {class: "kicker", text: "Path of " + count(path.length - 1, "relation", "relations")}), make("h2", {text: E.name[a] + " → " + E.name[b], dir: "auto"}), make("ul", {class: "way"}, ...rows));
  fly(boundsOf(path)); redraw();
}
function boundsOf(entities) {
  const xs = entities.map(e => E.x[e]), ys = entities.map(e => E.y[e]), [l, r, t, b] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
  return {x: (l + r) / 2, y: (t + b) / 2, k: Math.min(W / (r - l + 200), H / (b - t + 200))};
}

// ---- passages and documents ---------------------------------------------------------------------------------------------
function sentencesOf(text) {
  const found = [];
  for (const {index, segment} of new Intl.Segmenter("en", {granularity: "sentence"}).segment(text)) {
    const last = found.at(-1), said = segment.trim(), from = index + segment.indexOf(said);
    if (!said) continue;
    if (last && /\b(?:Mr|Mrs|Ms|Messrs|Dr|St|No)\.$/.test(text.slice(last[0], last[1]))) last[1] = from + said.length; else found.push([from, from + said.length]);
  }
  return found;
}
function markOf(text, e) { // the first sentence that names the entity, else the one with most of its name's words
  const words = fold(E.name[e]).split(/\s+/), name = words.join(" ");
  let best = null, most = 0;
  for (const [a, b] of sentencesOf(text)) {
    const said = fold(text.slice(a, b)), shared = said.includes(name) ? words.length + 1 : words.filter(w => w.length > 2 && said.includes(w)).length;
    const weight = shared - (text[a] === "#" ? 0.5 : 0); // a heading names much and states little
    if (weight > most) { best = [a, b]; most = weight; }
  }
  return best;
}
function marked(text, e) {
  const mark = markOf(text, e);
  return mark ? [text.slice(0, mark[0]), make("mark", {text: text.slice(...mark)}), text.slice(mark[1])] : [text];
}
function passagesOf(e) {
  const held = data.passages[e] || [];
  if (!held.length) return [];
  const rows = held.map(k => {
    const text = D.text[K.document[k]].slice(K.start[k], K.end[k]), mark = markOf(text, e) || [0, 200];
    const open = make("button", {type: "button", class: "passage"}, make("b", {text: D.title[K.document[k]] || "Untitled document", dir: "auto"}), make("span", {text: text.slice(mark[0], Math.min(mark[1], mark[0] + 240)), dir: "auto"}));
    open.addEventListener("click", () => showDocument(k, e));
    return make("li", {}, open);
  });
  return [make("h3", {text: "Passages that mention it"}), make("ul", {}, ...rows)];
}
function showDocument(k, e) {
  const d = K.document[k], text = D.text[d], back = action("‹ " + E.name[e], () => pick({kind: "e", id: e}, false));
  const chunk = make("span", {class: "chunk"}, ...marked(text.slice(K.start[k], K.end[k]), e));
  panel.replaceChildren(back, make("p", {class: "kicker", text: "Document"}), make("h2", {text: D.title[d] || "Untitled document", dir: "auto"}), make("p", {class: "soft", text: D.uri[d]}), make("div", {class: "document", dir: "auto"}, text.slice(0, K.start[k]), chunk, text.slice(K.end[k])));
  const place = panel.querySelector("mark") || chunk;
  panel.scrollTop += place.getBoundingClientRect().top - panel.getBoundingClientRect().top - panel.clientHeight / 3;
  back.focus({preventScroll: true});
}
function showStart() {
  const biggest = tops.slice(0, 12);
  return [make("h2", {text: "Communities"}), make("p", {class: "soft", text: "Each circle is a community, circles inside it are its sub-communities, each dot is an entity; the more neighbours, the larger. Point at something for its description, click for its report and members, scroll to zoom, drag to move."}),
    make("h3", {text: "Largest"}), make("ul", {}, ...biggest.map(c => make("li", {}, jump({kind: "c", id: c}, C.size[c].toLocaleString("en")))))];
}
function pick(item, move) {
  picked = item; way = null;
  if (item) remember(item.kind === "e" ? "entity=" + encodeURIComponent(E.id[item.id]) : "community=" + encodeURIComponent(C.id[item.id]));
  panel.replaceChildren(...(!item ? showStart() : item.kind === "c" ? showCommunity(item.id) : showEntity(item.id)));
  panel.scrollTop = 0;
  if (item && move) { found = null; goTo(item); unhover(); }
  if (asTable) drawTable();
  redraw();
}

function remember(fragment) { try { history.replaceState(null, "", "#" + fragment); } catch { /* some viewers forbid it: the link is a nicety */ } }
