"""The bridge level of HiRetrieval as arithmetic on arrays (paper §4.2, Eq. 14–16). Nodes are row numbers.

Key entities of each community (Eq. 14) and the relations among the nodes of the paths that join them (Eq. 16); the
paths (Eq. 15) are found by `core.graph.shortest_paths`, the triples ranked by `triple_ranking`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hirag_dist.core.access.filter import spans
from hirag_dist.core.cooperative import Steps, all_at_once
from hirag_dist.core.numba_jit import compiled
from hirag_dist.core.retrieval.levels import CommunityIndex
from hirag_dist.core.retrieval.vector_scoring import filtered_product, keep_best
from hirag_dist.types import AccessFilter, CsrGraph, FloatMatrix, IntVector

_BLOCK = 4096  # members scored in a step


@dataclass(frozen=True, slots=True)
class Parallel:
    """The further relations of entity pairs with more than one; the graph has the heaviest of each pair.

    Attributes:
        of: (n,) the relation rows that the graph has for those pairs, ascending.
        indptr, rows: CSR, position in `of` → the pair's other relations.
    """

    of: NDArray[np.int32]
    indptr: IntVector
    rows: NDArray[np.int32]


def key_entities(
    index: CommunityIndex,
    communities: Sequence[int],
    vectors: FloatMatrix,
    query: NDArray[np.float32],
    limit: int,
    access: AccessFilter | None = None,
) -> list[tuple[int, float]]:
    """Return the result of `key_entity_steps`, computed in one go (Eq. 14)."""
    return all_at_once(key_entity_steps(index, communities, vectors, query, limit, access))


def key_entity_steps(
    index: CommunityIndex,
    communities: Sequence[int],
    vectors: FloatMatrix,
    query: NDArray[np.float32],
    limit: int,
    access: AccessFilter | None = None,
) -> Steps[list[tuple[int, float]]]:
    """Return (row, similarity) of the top-m members of each community, in community order (Eq. 14), step by step.

    All visible members are scored, a block of them at a time. Ties go by row, which is by id within a layer. A row that
    several communities give keeps its first position.
    """
    found: dict[int, float] = {}
    exact = query.astype(np.float64)
    best, scores = np.empty(limit, np.int64), np.empty(limit, np.float32)
    left = _BLOCK  # members until the next step
    for community in communities:
        at, last = int(index.indptr[community]), int(index.indptr[community + 1])
        count = 0
        while at < last:
            end = min(at + left, last)
            count = _keep_best_members(index.members, at, end, vectors, exact, access, best, scores, count)
            left -= end - at
            at = end
            if not left:
                yield
                left = _BLOCK
        for row, score in zip(best[:count].tolist(), scores[:count].tolist(), strict=True):
            found.setdefault(row, score)
    return list(found.items())


@compiled
def _keep_best_members(
    members: NDArray[np.int32],
    first: int,
    last: int,
    vectors: FloatMatrix,
    query: NDArray[np.float64],
    access: AccessFilter | None,
    best: NDArray[np.int64],
    scores: NDArray[np.float32],
    count: int,
) -> Any:
    """Score some members of a community, and keep those that are among its best; return how many these are."""
    for at in range(first, last):
        visible, score = filtered_product(access, vectors, members[at], query)
        if visible:
            count = keep_best(members[at], score, best, scores, count)
    return count


def bridge_relations(graph: CsrGraph, parallel: Parallel, nodes: Sequence[int]) -> list[int]:
    """Return the rows of all relations with both endpoints among the path nodes (Eq. 16), ascending."""
    inside = np.unique(np.asarray(nodes, np.int64))
    joined = _joined(graph.indptr, graph.indices, graph.relation_rows, inside)
    return sorted([*joined.tolist(), *further_relations(parallel, joined).tolist()])


def further_relations(parallel: Parallel, heads: NDArray[np.integer[Any]]) -> NDArray[np.int32]:
    """Return the other relations of the pairs whose relations in the graph are `heads`.

    Takes time that grows with `heads`, and not with how many pairs have several relations.
    """
    if not len(parallel.of):
        return np.zeros(0, np.int32)
    at = np.minimum(np.searchsorted(parallel.of, heads), len(parallel.of) - 1)
    at = at[parallel.of[at] == heads]
    _, positions = spans(parallel.indptr[at], parallel.indptr[at + 1])
    found: NDArray[np.int32] = parallel.rows[positions]
    return found


@compiled
def _joined(
    indptr: NDArray[np.int64], indices: NDArray[np.int32], relation_rows: NDArray[np.int32], inside: NDArray[np.int64]
) -> Any:
    """Return the relation row of every edge among `inside`, which ascends."""
    found = []
    for position in range(len(inside)):
        node = inside[position]
        first, last = indptr[node], indptr[node + 1]
        others = inside[position + 1 :]
        if last - first <= 4 * len(others):  # both lists ascend: walk along them
            at = 0
            for entry in range(first, last):
                while at < len(others) and others[at] < indices[entry]:
                    at += 1
                if at == len(others):
                    break
                if others[at] == indices[entry]:
                    found.append(relation_rows[entry])
        else:  # a hub: look each of the few up among its many
            neighbours = indices[first:last]
            for other in others:
                entry = np.searchsorted(neighbours, other)
                if entry < len(neighbours) and neighbours[entry] == other:
                    found.append(relation_rows[first + entry])
    joined = np.empty(len(found), np.int32)
    for at in range(len(found)):
        joined[at] = found[at]
    return joined
