"""Tables to CSR: the hierarchical graph G_k (paper Eq. 11) over entity rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hirag_dist.core.arrays import compiled_apart, compiled_inside, read_only
from hirag_dist.core.groupby import bounds_of, spans
from hirag_dist.core.id_rows import IdRows
from hirag_dist.types import CsrGraph, IntVector


def rows_of(ids: pa.ChunkedArray | pa.Array, order: pa.ChunkedArray) -> IntVector:
    """Return the row in `order` of each id, the first one, −1 where it is not there."""
    return IdRows(order).rows(ids)


def relation_ends(entity_ids: pa.ChunkedArray, relations: pa.Table) -> tuple[IntVector, IntVector]:
    """Return the rows of the source and of the target of each relation, −1 for an unknown one.

    Args:
        entity_ids: ids in row order.
    """
    order = IdRows(entity_ids)
    return order.rows(relations["source_id"]), order.rows(relations["target_id"])


def build_graph(
    entity_ids: pa.ChunkedArray, relations: pa.Table, ends: tuple[IntVector, IntVector] | None = None
) -> CsrGraph:
    """Return the undirected graph of all relations, parallel ones added up.

    Args:
        entity_ids: ids in row order.
        relations: RELATIONS, of all layers; those with an unknown endpoint, and loops, are left out.
        ends: `relation_ends` of them, where they are known.
    """
    source, target = ends or relation_ends(entity_ids, relations)
    n_nodes, weight = len(entity_ids), relations["weight"].to_numpy()
    row = np.flatnonzero((source >= 0) & (target >= 0) & (source != target))
    order = np.argsort(-weight[row], kind="stable")  # of parallel relations the heaviest comes first, then the lowest
    row = row[order]
    pair = np.minimum(source, target)[row].astype(np.int64) * n_nodes  # one key sorts many times faster than two
    pair += np.maximum(source, target)[row]
    order = np.argsort(pair, kind="stable")
    row, pair = row[order], pair[order]
    del order
    first = np.flatnonzero(np.diff(pair, prepend=-1))
    weight = weight[row].astype(np.float64, copy=False)
    summed = np.add.reduceat(weight, first) if len(first) else weight
    edge_rows, pair = row[first].astype(np.int32), pair[first]
    del first, row, weight
    low, high = (pair // n_nodes).astype(np.int32), (pair % n_nodes).astype(np.int32)
    del pair
    indptr, indices, entries = _both_ways(low, high, n_nodes)
    return CsrGraph(indptr, indices, summed.astype(np.float32)[entries], edge_rows[entries])


def _both_ways(
    low: NDArray[np.int32], high: NDArray[np.int32], n_nodes: int
) -> tuple[IntVector, NDArray[np.int32], NDArray[np.int32]]:
    """Return CSR (indptr, indices) of distinct edges sorted by (low, high), and the edge of each entry.

    Where entries keep their order within a row, first those to lower nodes and then those to higher ones ascend.
    """
    starts = np.concatenate([high, low])
    order = np.argsort(starts, kind="stable")
    bounds = bounds_of(starts, n_nodes)
    del starts
    indices = np.concatenate([low, high])[order]
    return bounds, indices, np.where(order < len(low), order, order - len(low)).astype(np.int32)


def subgraph(graph: CsrGraph, nodes: IntVector) -> CsrGraph:
    """Return the graph among some nodes, renumbered by their order in `nodes`; neighbours ascend where `nodes` do."""
    place = np.full(graph.n_nodes, -1, np.int32)
    place[nodes] = np.arange(len(nodes), dtype=np.int32)
    start, at = entries_of(graph, nodes)
    tails = place[graph.indices[at]]
    inside = tails >= 0
    return CsrGraph(
        indptr=bounds_of(start[inside], len(nodes)),
        indices=tails[inside],
        weights=graph.weights[at][inside],
        relation_rows=graph.relation_rows[at][inside],
    )


def entries_of(graph: CsrGraph, nodes: IntVector) -> tuple[IntVector, IntVector]:
    """Return the places in `graph.indices` of the entries of some nodes, and the place in `nodes` of each entry's node.

    Returns:
        (place in `nodes`, place in `graph.indices`), both (n_entries,).
    """
    return spans(graph.indptr[nodes], graph.indptr[nodes + 1])


def components(graph: CsrGraph) -> NDArray[np.int64]:
    """Return (n_nodes,) connected component labels, numbered by their lowest node."""
    return component_labels(heads(graph), graph.indices, graph.n_nodes)


def component_labels(sources: NDArray[np.integer], targets: NDArray[np.integer], n_nodes: int) -> NDArray[np.int64]:
    """Return (n_nodes,) connected component labels of an undirected graph, numbered by their lowest node.

    In memory besides the result: up to 24 bytes a node, and four for each end of an edge that is copied to int32.

    Args:
        sources: (n_edges,) one end of each edge, in one direction or both.
        targets: (n_edges,) the other end of each edge.

    >>> component_labels(np.array([3, 1]), np.array([0, 2]), 5).tolist()
    [0, 1, 1, 0, 2]
    """
    one, other = (read_only(np.ascontiguousarray(ends, np.int32)) for ends in (sources, targets))
    lowest = _lowest_nodes(one, other, n_nodes)
    numbers = np.cumsum(lowest == np.arange(n_nodes)) - 1
    labels: NDArray[np.int64] = numbers[lowest]
    return labels


@compiled_apart
def _lowest_nodes(sources: NDArray[np.int32], targets: NDArray[np.int32], n_nodes: int) -> Any:
    """Return (n_nodes,) the lowest node of each node's component."""
    parents = np.arange(n_nodes).astype(np.int32)  # never above the node itself
    for edge in range(len(sources)):
        one, other = root(parents, sources[edge]), root(parents, targets[edge])
        parents[max(one, other)] = min(one, other)
    for node in range(n_nodes):
        parents[node] = parents[parents[node]]  # lower nodes have their root already
    return parents


@compiled_inside
def root(parents: NDArray[np.int32], node: int) -> Any:
    """Return the root of a node's tree, and shorten the way to it.

    Args:
        parents: (n_nodes,) parent of each node; a root is its own.
    """
    while parents[node] != node:
        parents[node] = parents[parents[node]]  # path halving
        node = parents[node]
    return node


def by_lowest_node(labels: IntVector) -> IntVector:
    """Return labels renumbered from 0, in the order of the lowest node of each; −1 stays."""
    named = np.flatnonzero(labels >= 0)
    _, first, inverse = np.unique(labels[named], return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    found = np.full(len(labels), -1, np.int64)
    found[named] = rank[inverse]
    return found


def heads(graph: CsrGraph) -> IntVector:
    """Return the node at which each entry of `graph.indices` starts."""
    return np.repeat(np.arange(graph.n_nodes), np.diff(graph.indptr))


def within(graph: CsrGraph, labels: IntVector) -> CsrGraph:
    """Return the graph without the edges between nodes of different labels, and those of nodes labelled −1."""
    start = heads(graph)
    same = (labels[start] >= 0) & (labels[start] == labels[graph.indices])
    indptr = bounds_of(start[same], graph.n_nodes)
    return CsrGraph(indptr, graph.indices[same], graph.weights[same], graph.relation_rows[same])
