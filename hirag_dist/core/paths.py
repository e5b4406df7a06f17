"""Shortest paths between key entities (paper Eq. 15), the same whatever the machine.

Fewest hops; among those the largest smallest edge weight; among those the lexicographically smallest sequence of
rows from the earlier key. The search is bidirectional over CSR, compiled by numba; it touches a few hundred nodes
where the graph holds millions.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from hirag_dist.core.access import HIDDEN, MIXED
from hirag_dist.types import Admission, CsrGraph

_UNSEEN = -1


class PathFinder:
    """Finds paths in one graph; its work arrays are used again, so one finder serves one thread at a time.

    Memory: 16 bytes a node beyond the graph.
    """

    def __init__(self, graph: CsrGraph) -> None:
        self._graph = graph
        n = graph.n_nodes
        self._from_source = np.full(n, _UNSEEN, np.int32)
        self._from_target = np.full(n, _UNSEEN, np.int32)
        self._width = np.zeros(n, np.float32)
        self._queues = np.empty((2, max(n, 1)), np.int32)
        joined = np.flatnonzero(np.diff(graph.indptr))[:1]
        if len(joined):  # compile now, not during the first question
            self.path(int(joined[0]), int(graph.indices[graph.indptr[joined[0]]]))

    def path(self, source: int, target: int, admission: Admission | None = None) -> list[int]:
        """Return the rows of the path, both ends included; [source] to itself; [] where there is none.

        Args:
            source, target: rows that the caller may see.
            admission: what else; entities and relations beyond it are not walked, and those seen in part have the
                weight that is in reach. None: everything.
        """
        if source == target:
            return [source]
        graph = self._graph
        if not _has_edges(graph, source) or not _has_edges(graph, target):
            return []
        found = _search(
            graph.indptr,
            graph.indices,
            graph.weights,
            graph.relation_rows,
            admission,
            source,
            target,
            self._from_source,
            self._from_target,
            self._width,
            self._queues,
        )
        return [int(row) for row in found]

    def chain(self, rows: Sequence[int], admission: Admission | None = None) -> list[list[int]]:
        """Return the path of each consecutive pair of rows."""
        return [self.path(first, second, admission) for first, second in pairwise(rows)]


def _has_edges(graph: CsrGraph, row: int) -> bool:
    return bool(graph.indptr[row + 1] > graph.indptr[row])


@numba.njit(cache=True)
def _admits(admission: Admission | None, relation_rows: NDArray[np.int32], entry: int, neighbour: int) -> Any:
    """Whether a relation may be seen, and the entity that it leads to. Compiled to nothing where everything may."""
    if admission is None:
        return True
    if admission.entity_states[admission.entity_patterns[neighbour]] == HIDDEN:
        return False
    return admission.relation_states[admission.relation_patterns[relation_rows[entry]]] != HIDDEN


@numba.njit(cache=True)
def _weight(
    admission: Admission | None, weights: NDArray[np.float32], relation_rows: NDArray[np.int32], entry: int
) -> Any:
    """The weight of a relation that may be seen: of one seen in part, what its statements in reach add up to."""
    if admission is None:
        return weights[entry]
    row = relation_rows[entry]
    if admission.relation_states[admission.relation_patterns[row]] != MIXED:
        return weights[entry]
    place = np.searchsorted(admission.stated_rows, row)
    total = 0.0
    for at in range(admission.stated_indptr[place], admission.stated_indptr[place + 1]):
        if admission.sets[admission.statement_sets[at]]:
            total += admission.statement_strengths[at]
    return np.float32(total)


@numba.njit(cache=True)
def _search(
    indptr: NDArray[np.int64],
    indices: NDArray[np.int32],
    weights: NDArray[np.float32],
    relation_rows: NDArray[np.int32],
    admission: Admission | None,
    source: int,
    target: int,
    from_source: NDArray[np.int32],
    from_target: NDArray[np.int32],
    width: NDArray[np.float32],
    queues: NDArray[np.int32],
) -> Any:
    """Return the best path as an array of rows; leaves the distance arrays as it found them."""
    seen = queues[0], queues[1]
    first, last = np.zeros(2, np.int64), np.ones(2, np.int64)  # bounds of each side's frontier in its queue
    cost = np.zeros(2, np.int64)
    radius = np.zeros(2, np.int64)
    seen[0][0], seen[1][0] = source, target
    from_source[source] = 0
    from_target[target] = 0
    cost[0] = indptr[source + 1] - indptr[source]
    cost[1] = indptr[target + 1] - indptr[target]
    hops = -1
    while hops < 0 and last[0] > first[0] and last[1] > first[1]:
        side = 0 if cost[0] <= cost[1] else 1
        mine = from_source if side == 0 else from_target
        other = from_target if side == 0 else from_source
        end = last[side]
        radius[side] += 1
        cost[side] = 0
        for at in range(first[side], end):
            node = seen[side][at]
            for entry in range(indptr[node], indptr[node + 1]):
                neighbour = indices[entry]
                if mine[neighbour] == _UNSEEN and _admits(admission, relation_rows, entry, neighbour):
                    mine[neighbour] = radius[side]
                    seen[side][last[side]] = neighbour
                    last[side] += 1
                    cost[side] += indptr[neighbour + 1] - indptr[neighbour]
                    if other[neighbour] != _UNSEEN:
                        length = radius[side] + other[neighbour]
                        if hops < 0 or length < hops:
                            hops = length
        first[side] = end
    path = np.empty(hops + 1 if hops >= 0 else 0, np.int32)
    if hops >= 0:
        _settle(
            indptr,
            indices,
            weights,
            relation_rows,
            admission,
            from_source,
            from_target,
            width,
            seen[0],
            seen[1],
            last,
            hops,
            target,
        )
        _walk(indptr, indices, weights, relation_rows, admission, from_target, width, source, path)
    for side in range(2):
        for at in range(last[side]):
            node = seen[side][at]
            from_source[node] = _UNSEEN
            from_target[node] = _UNSEEN
            width[node] = 0.0
    return path


@numba.njit(cache=True)
def _settle(
    indptr: NDArray[np.int64],
    indices: NDArray[np.int32],
    weights: NDArray[np.float32],
    relation_rows: NDArray[np.int32],
    admission: Admission | None,
    from_source: NDArray[np.int32],
    from_target: NDArray[np.int32],
    width: NDArray[np.float32],
    near_source: NDArray[np.int32],
    near_target: NDArray[np.int32],
    last: NDArray[np.int64],
    hops: int,
    target: int,
) -> None:
    """Give each node on a shortest path its distance to the target and the largest smallest weight from there.

    Nodes are settled outwards from the target: first those that its own search reached, in the order of that
    search, then the rest in the reverse order of the search from the source.
    """
    width[target] = np.inf
    for at in range(1, last[1]):
        node = near_target[at]
        width[node] = _widest(indptr, indices, weights, relation_rows, admission, from_target, width, node)
    for back in range(last[0]):
        node = near_source[last[0] - 1 - back]
        if from_target[node] == _UNSEEN:
            rest = hops - from_source[node]
            best = np.float32(0.0)
            for entry in range(indptr[node], indptr[node + 1]):
                neighbour = indices[entry]
                if (
                    from_target[neighbour] == rest - 1
                    and width[neighbour] > 0
                    and _admits(admission, relation_rows, entry, neighbour)
                ):
                    weight = _weight(admission, weights, relation_rows, entry)
                    best = max(best, min(weight, width[neighbour]))
            if best > 0:
                from_target[node] = rest
                width[node] = best


@numba.njit(cache=True)
def _widest(
    indptr: NDArray[np.int64],
    indices: NDArray[np.int32],
    weights: NDArray[np.float32],
    relation_rows: NDArray[np.int32],
    admission: Admission | None,
    from_target: NDArray[np.int32],
    width: NDArray[np.float32],
    node: int,
) -> Any:
    best = np.float32(0.0)
    for entry in range(indptr[node], indptr[node + 1]):
        neighbour = indices[entry]
        if from_target[neighbour] == from_target[node] - 1 and _admits(admission, relation_rows, entry, neighbour):
            weight = _weight(admission, weights, relation_rows, entry)
            best = max(best, min(weight, width[neighbour]))
    return best


@numba.njit(cache=True)
def _walk(
    indptr: NDArray[np.int64],
    indices: NDArray[np.int32],
    weights: NDArray[np.float32],
    relation_rows: NDArray[np.int32],
    admission: Admission | None,
    from_target: NDArray[np.int32],
    width: NDArray[np.float32],
    source: int,
    path: NDArray[np.int32],
) -> None:
    """Write the path: from the source, always the lowest row that still allows the best smallest weight."""
    node = source
    path[0] = node
    floor = width[source]
    for step in range(1, len(path)):
        for entry in range(indptr[node], indptr[node + 1]):  # neighbours ascend, so the first that fits is lowest
            neighbour = indices[entry]
            if (
                from_target[neighbour] == from_target[node] - 1
                and _admits(admission, relation_rows, entry, neighbour)
                and min(_weight(admission, weights, relation_rows, entry), width[neighbour]) >= floor
            ):
                node = neighbour
                break
        path[step] = node
