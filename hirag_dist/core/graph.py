"""Tables to CSR: the hierarchical graph G_k (paper Eq. 11) over entity rows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hirag_dist.types import CsrGraph, IntVector


def rows_of(ids: pa.ChunkedArray, order: pa.ChunkedArray) -> IntVector:
    """Return the row in `order` of each id, −1 where it is not there."""
    found = pc.index_in(ids.combine_chunks(), value_set=order.combine_chunks())
    rows: IntVector = found.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    return rows


def build_graph(entity_ids: pa.ChunkedArray, relations: pa.Table) -> CsrGraph:
    """Return the undirected graph of all relations, parallel ones added up.

    Args:
        entity_ids: ids in row order.
        relations: RELATIONS, of all layers; those with an unknown endpoint, and loops, are left out.
    """
    source = rows_of(relations["source_id"], entity_ids)
    target = rows_of(relations["target_id"], entity_ids)
    weight = relations["weight"].to_numpy().astype(np.float64)
    row = np.arange(len(source))
    usable = (source >= 0) & (target >= 0) & (source != target)
    source, target, weight, row = source[usable], target[usable], weight[usable], row[usable]
    heads, tails = np.concatenate([source, target]), np.concatenate([target, source])
    weights, rows = np.concatenate([weight, weight]), np.concatenate([row, row])
    order = np.lexsort((rows, -weights, tails, heads))
    heads, tails, weights, rows = heads[order], tails[order], weights[order], rows[order]
    new = np.ones(len(heads), bool)
    new[1:] = (heads[1:] != heads[:-1]) | (tails[1:] != tails[:-1])
    first = np.flatnonzero(new)
    summed = np.add.reduceat(weights, first) if len(first) else weights
    counts = np.bincount(heads[first], minlength=len(entity_ids)) if len(first) else np.zeros(len(entity_ids), np.int64)
    return CsrGraph(
        indptr=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        indices=tails[first].astype(np.int32),
        weights=summed.astype(np.float32),
        relation_rows=rows[first].astype(np.int32),
    )


def subgraph(graph: CsrGraph, nodes: IntVector) -> CsrGraph:
    """Return the graph among some nodes, renumbered by their order in `nodes` (ascending)."""
    place = np.full(graph.n_nodes, -1, np.int32)
    place[nodes] = np.arange(len(nodes), dtype=np.int32)
    counts = graph.indptr[nodes + 1] - graph.indptr[nodes]
    at = np.repeat(graph.indptr[nodes] - np.concatenate([[0], np.cumsum(counts)[:-1]]), counts) + np.arange(
        counts.sum()
    )
    heads = np.repeat(np.arange(len(nodes)), counts)
    tails = place[graph.indices[at]]
    inside = tails >= 0
    kept = np.bincount(heads[inside], minlength=len(nodes))
    return CsrGraph(
        indptr=np.concatenate([[0], np.cumsum(kept)]).astype(np.int64),
        indices=tails[inside],
        weights=graph.weights[at][inside],
        relation_rows=graph.relation_rows[at][inside],
    )


def components(graph: CsrGraph) -> NDArray[np.int64]:
    """Return (n_nodes,) connected component labels, numbered by their lowest node."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    n = graph.n_nodes
    matrix = csr_array((np.ones(len(graph.indices), np.int8), graph.indices, graph.indptr), shape=(n, n))
    _, labels = connected_components(matrix, directed=False)
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[inverse]
