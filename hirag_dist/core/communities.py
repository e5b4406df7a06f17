"""Labels of a hierarchical partition to the COMMUNITIES table (paper §4.1; levels as in the GraphRAG paper)."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hirag_dist.core.graph import components, rows_of, subgraph
from hirag_dist.core.ids import content_id
from hirag_dist.schemas import COMMUNITIES
from hirag_dist.types import CsrGraph, IntVector

Partition = Callable[[CsrGraph, int], NDArray[np.int64]]


def hierarchical_labels(graph: CsrGraph, partition: Partition, max_size: int) -> list[NDArray[np.int64]]:
    """Return one array of labels a level, coarsest first; −1 where a node's community is not split further.

    Every community is connected: one that is not is cut into its components. One of more than `max_size` nodes is
    partitioned again by itself, until it fits or cannot be split.

    Args:
        partition: a flat partition of a graph; its second argument numbers the call, for a seed.
    """
    labels = _connected(graph, partition(graph, 0))
    levels = [labels]
    calls = 1
    while True:
        below = np.full(graph.n_nodes, -1, np.int64)
        following = 0
        for community in np.flatnonzero(np.bincount(levels[-1][levels[-1] >= 0]) > max_size):
            nodes = np.flatnonzero(levels[-1] == community)
            inside = subgraph(graph, nodes)
            parts = _connected(inside, partition(inside, calls))
            calls += 1
            if parts.max() == 0:
                continue
            below[nodes] = parts + following
            following += int(parts.max()) + 1
        if following == 0:
            return levels
        levels.append(below)


def _connected(graph: CsrGraph, labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return labels numbered by their lowest node, with each disconnected community cut into its components."""
    heads = np.repeat(np.arange(graph.n_nodes), np.diff(graph.indptr))
    same = labels[heads] == labels[graph.indices]
    kept = np.bincount(heads[same], minlength=graph.n_nodes)
    return components(
        CsrGraph(
            np.concatenate([[0], np.cumsum(kept)]).astype(np.int64),
            graph.indices[same],
            graph.weights[same],
            graph.relation_rows[same],
        )
    )


def community_table(levels: list[NDArray[np.int64]], graph: CsrGraph, entity_ids: pa.ChunkedArray) -> pa.Table:
    """Return COMMUNITIES, sorted by (level, id); ids hash the level and the sorted members."""
    ids = entity_ids.to_pylist()
    heads = np.repeat(np.arange(graph.n_nodes), np.diff(graph.indptr))
    rows = []
    above: list[str] = []
    for level, labels in enumerate(levels):
        n_here = int(labels.max(initial=-1)) + 1
        inner = (labels[heads] >= 0) & (labels[heads] == labels[graph.indices])
        n_relations = np.bincount(labels[heads[inner]], minlength=n_here) // 2
        own_ids = []
        for label, members in enumerate(_members(labels, n_here)):
            names = sorted(ids[row] for row in members)
            own = content_id("community", str(level), *names)
            own_ids.append(own)
            deeper = level + 1 < len(levels) and levels[level + 1][members[0]] >= 0
            rows.append(
                {
                    "community_id": own,
                    "level": level,
                    "parent_id": above[int(levels[level - 1][members[0]])] if level else None,
                    "is_leaf": not deeper,
                    "n_entities": len(names),
                    "n_relations": int(n_relations[label]),
                    "entity_ids": names,
                }
            )
        above = own_ids
    return pa.Table.from_pylist(rows, COMMUNITIES).sort_by([("level", "ascending"), ("community_id", "ascending")])


def membership(communities: pa.Table, entity_ids: pa.ChunkedArray) -> tuple[IntVector, NDArray[np.int32]]:
    """Return (indptr, rows): the member rows of each community, ascending."""
    lists = communities["entity_ids"].combine_chunks()
    rows = rows_of(pa.chunked_array([lists.flatten()]), entity_ids)
    sizes = lists.value_lengths().to_numpy(zero_copy_only=False)
    owner = np.repeat(np.arange(len(sizes)), sizes)
    order = np.lexsort((rows, owner))
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64), rows[order].astype(np.int32)


def _members(labels: NDArray[np.int64], n_labels: int) -> list[IntVector]:
    order = np.argsort(labels, kind="stable")
    starts = np.searchsorted(labels[order], np.arange(n_labels + 1))
    return [order[first:last] for first, last in pairwise(starts)]
