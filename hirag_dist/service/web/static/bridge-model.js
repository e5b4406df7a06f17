// The bridge as a graph: which nodes and edges the paths and triples of a retrieval make.

/**
 * Returns {nodes, edges, pairs}.
 * A node: {id, name, order (1 for the first key entity, null for one that only lies on a path), layer, description}.
 * An edge: {a, b} as positions in nodes, {pairs} the pairs whose path takes it, {triples} what the index says of it, and
 * {missing} for a pair that no path connects.
 * A pair: {from, to, nodes, edges} as positions.
 */
export function bridgeModel(retrieval) {
  const nodes = [];
  const at = new Map();
  const node = (id, name) => {
    if (!at.has(id)) {
      at.set(id, nodes.length);
      nodes.push({ id, name, order: null, layer: null, type: "", description: "", degree: 0 });
    }
    return at.get(id);
  };
  retrieval.key_entities.forEach((item, order) => {
    Object.assign(nodes[node(item.entity_id, item.name)], { order: order + 1, layer: item.layer, type: item.type, description: item.description });
  });
  const edges = [];
  const between = new Map();
  const edge = (a, b, missing = false) => {
    const key = `${Math.min(a, b)} ${Math.max(a, b)}`;
    if (!between.has(key)) {
      between.set(key, edges.length);
      edges.push({ a, b, pairs: [], triples: [], missing });
      nodes[a].degree += 1;
      nodes[b].degree += 1;
    }
    const found = between.get(key);
    if (!missing) edges[found].missing = false;
    return found;
  };
  const pairs = retrieval.paths.map((path, pair) => {
    const from = node(path.source_id, path.source_id);
    const to = node(path.target_id, path.target_id);
    const taken = { from, to, nodes: path.entity_ids.map((id, step) => node(id, path.entity_names[step])), edges: [] };
    for (let step = 1; step < taken.nodes.length; step += 1) taken.edges.push(edge(taken.nodes[step - 1], taken.nodes[step]));
    if (!taken.nodes.length && from !== to) taken.edges.push(edge(from, to, true));
    for (const one of taken.edges) edges[one].pairs.push(pair);
    return taken;
  });
  for (const triple of retrieval.triples) {
    const a = node(triple.source_id, triple.source_name);
    const b = node(triple.target_id, triple.target_name);
    if (a !== b) edges[edge(a, b)].triples.push(triple);
  }
  for (const item of retrieval.local) {
    if (at.has(item.entity_id)) Object.assign(nodes[at.get(item.entity_id)], { layer: item.layer, type: item.type, description: item.description });
  }
  return { nodes, edges, pairs };
}
