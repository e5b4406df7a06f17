// The part of the graph that is in view while one walks it: entities, relations, and who brought them in. No elements.

export const STEP = 8; // entities that one step adds

const HIERARCHY = "summary"; // kind of an edge between an entity and its summary, where no relation says it

/** Entities and relations in view. `cards` are replies of GetEntity by the entity's id. */
export class Walk {
  constructor() {
    this.clear();
  }

  clear() {
    this.nodes = new Map(); // id → {entity, from: id of the entity that brought it in, or null}
    this.edges = new Map(); // "id id" → {a, b, triples, kind}
    this.cards = new Map();
    this.path = null; // {nodes: ids in order, edges: keys}
  }

  /** Puts an entity in view, brought in by another one. */
  add(entity, from = null) {
    const known = this.nodes.get(entity.entity_id);
    if (known) known.entity = { ...known.entity, ...entity };
    else this.nodes.set(entity.entity_id, { entity, from: this.nodes.has(from) ? from : null });
  }

  /** Takes note of a card: its entity comes into view, and its relations to what is in view. */
  learn(card) {
    const id = card.entity.entity_id;
    this.cards.set(id, card);
    this.add(card.entity);
    this.tie();
  }

  /** Ties the entities in view by all that the cards say of them. */
  tie() {
    for (const card of this.cards.values()) {
      const here = card.entity;
      if (!this.nodes.has(here.entity_id)) continue;
      for (const triple of card.relations) this.join(triple.source_id, triple.target_id, triple);
      for (const above of card.ancestors) if (above.layer === here.layer + 1) this.join(above.entity_id, here.entity_id, null);
      for (const below of card.members) this.join(here.entity_id, below.entity_id, null);
    }
  }

  /** Ties two entities, if both are in view. */
  join(a, b, triple) {
    if (a === b || !this.nodes.has(a) || !this.nodes.has(b)) return;
    const key = edgeKey(a, b);
    if (!this.edges.has(key)) this.edges.set(key, { a, b, triples: [], kind: HIERARCHY });
    const edge = this.edges.get(key);
    if (!triple || edge.triples.some((one) => one.relation_id === triple.relation_id)) return;
    edge.triples.push(triple);
    edge.kind = triple.kind;
  }

  /** Entities around one, of a way: "neighbours", "up" or "down"; in the order of its card. */
  around(id, way) {
    const card = this.cards.get(id);
    if (!card) return [];
    if (way === "down") return card.members;
    if (way === "up") return card.ancestors.filter((one) => one.layer === card.entity.layer + 1);
    const known = new Map(card.neighbours.map((one) => [one.entity_id, one]));
    const ends = card.relations.map((triple) => (triple.source_id === id ? triple.target_id : triple.source_id));
    return [...new Set(ends)].map((end) => known.get(end)).filter(Boolean);
  }

  /** Those of them that are not in view. */
  hidden(id, way = "neighbours") {
    return this.around(id, way).filter((one) => !this.nodes.has(one.entity_id));
  }

  /** Brings the next few of them into view; returns how many. */
  expand(id, way = "neighbours", few = STEP) {
    const next = this.hidden(id, way).slice(0, few);
    for (const entity of next) this.add(entity, id);
    this.tie();
    return next.length;
  }

  /** Takes out of view what an entity brought in, and what that brought in; returns how many. */
  collapse(id) {
    const gone = this.brought(id);
    for (const one of gone) this.drop(one);
    return gone.size;
  }

  /** Ids of all that an entity brought in, directly or not. */
  brought(id) {
    const gone = new Set();
    const open = [id];
    while (open.length) {
      const at = open.pop();
      for (const [one, { from }] of this.nodes) {
        if (from !== at || one === id || gone.has(one)) continue;
        gone.add(one);
        open.push(one);
      }
    }
    return gone;
  }

  /** Takes an entity out of view; what it brought in stays. */
  drop(id) {
    this.nodes.delete(id);
    for (const node of this.nodes.values()) if (node.from === id) node.from = null;
    for (const [key, edge] of this.edges) if (edge.a === id || edge.b === id) this.edges.delete(key);
    if (this.path?.nodes.includes(id)) this.path = null;
  }

  /** Puts a path in view and lights it up. */
  follow(found) {
    found.entities.forEach((entity, step) => this.add(entity, found.entities[step - 1]?.entity_id ?? null));
    for (const triple of found.triples) this.join(triple.source_id, triple.target_id, triple);
    const ids = found.entities.map((entity) => entity.entity_id);
    for (let step = 1; step < ids.length; step += 1) this.join(ids[step - 1], ids[step], null);
    this.tie();
    this.path = { nodes: ids, edges: ids.slice(1).map((id, step) => edgeKey(ids[step], id)) };
  }

  /** Relations in view of an entity. */
  links(id) {
    return [...this.edges.values()].filter((edge) => edge.a === id || edge.b === id);
  }
}

export function edgeKey(a, b) {
  return a < b ? `${a} ${b}` : `${b} ${a}`;
}
