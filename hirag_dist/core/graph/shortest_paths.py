"""Shortest paths between key entities (paper Eq. 15), deterministic on every machine.

Fewest hops; among those the largest smallest edge weight; among those the lexicographically smallest sequence of
rows from the earlier key. All pairs of a question take one call of compiled code, or several if they read much of the
graph.

Two breadth-first searches grow from the ends of a pair; the cheaper one takes the next step, after the edges between
the two frontiers are checked. Each node stores the largest smallest weight among its shortest paths to the start, so
the edges that join the frontiers determine the widest path. The last step, which would be the largest, only reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hirag_dist.core.access import HIDDEN, PARTIAL
from hirag_dist.core.arrays import Steps, all_at_once, compiled, compiled_inside, lower_bound, read_only
from hirag_dist.core.graph.bfs import clear_bit, has_bit, set_bit
from hirag_dist.types import AccessFilter, CsrGraph

_SOURCE, _TARGET, _GOOD = 0, 1, 2
_HALVINGS = 64  # neighbours scanned in the time of one binary search


class KernelGraph(NamedTuple):
    """The fields of `CsrGraph`, as compiled code takes them."""

    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]
    weights: NDArray[np.float32]
    relation_rows: NDArray[np.int32]


class PathBuffers(NamedTuple):
    """Buffers reused for each pair.

    Attributes:
        seen: (3, n / 64) bits: reached from the source, reached from the target, on a best path. All zero between
            pairs.
        depth: (2, n) hops from the start, for reached nodes.
        width: (2, n) the largest smallest weight among the shortest paths to the start.
        queue: (3, n) the reached nodes of each search, and those of the best paths, by depth.
        degrees: (2, n) of the nodes in the queues.
        starts: (3, n + 2) where each depth begins in its queue.
        path: (n,) the path found last.
        read: (1,) entries of the graph that were read in this step.
        frontiers: (4, 2) of each search: its radius, the edges of its frontier, the end of its queue, and the entries
            to read for the edges between the frontiers.
    """

    seen: NDArray[np.uint64]
    depth: NDArray[np.int32]
    width: NDArray[np.float32]
    queue: NDArray[np.int32]
    degrees: NDArray[np.int64]
    starts: NDArray[np.int64]
    path: NDArray[np.int32]
    read: NDArray[np.int64]
    frontiers: NDArray[np.int64]


@compiled
def chain(
    graph: KernelGraph,
    access: AccessFilter | None,
    components: NDArray[np.int32],
    keys: NDArray[np.int64],
    work: PathBuffers,
    most_read: int,
) -> Any:
    """Return (bounds, nodes): the paths of the first consecutive keys as lists in one array.

    Args:
        most_read: entries of the graph, after which no other pair is begun.
    """
    work.read[0] = 0
    n_pairs = max(len(keys) - 1, 0)
    bounds = np.zeros(n_pairs + 1, np.int64)
    nodes = np.empty(8 * n_pairs, np.int32)
    for at in range(n_pairs):
        if work.read[0] > most_read:
            n_pairs = at
            break
        length = 0
        if len(components) == 0 or components[keys[at]] == components[keys[at + 1]]:
            length = _search(graph, access, keys[at], keys[at + 1], work)
        first = bounds[at]
        if first + length > len(nodes):
            longer = np.empty(2 * (first + length), np.int32)
            for place in range(first):
                longer[place] = nodes[place]
            nodes = longer
        for place in range(length):
            nodes[first + place] = work.path[place]
        bounds[at + 1] = first + length
    return bounds[: n_pairs + 1], nodes[: bounds[n_pairs]]


@compiled_inside
def _search(graph: KernelGraph, access: AccessFilter | None, source: int, target: int, work: PathBuffers) -> Any:
    """Write the best path to `work.path` and return how many nodes it has, 0 where there is none."""
    if source == target:
        work.path[0] = source
        return 1
    radius, cost, end = work.frontiers[0], work.frontiers[1], work.frontiers[2]
    radius[0], radius[1] = 0, 0
    for side, node in ((_SOURCE, source), (_TARGET, target)):
        work.starts[side, 0] = 0
        work.width[side, node] = np.inf
        cost[side] = _enter(graph, work, side, node, 0, 0)
        end[side] = 1
    length = 0
    while cost[0] > 0 and cost[1] > 0:
        best, n_good = _meet(graph, access, work, radius, end)
        if n_good:
            length = radius[0] + radius[1] + 2
            end_good = _trace(graph, access, work, radius, n_good, best)
            _walk(graph, access, work, radius, end, source, target, best)
            for at in range(end_good):
                clear_bit(work.seen, _GOOD, work.queue[_GOOD, at])
            break
        side = _SOURCE if cost[0] <= cost[1] else _TARGET
        radius[side] += 1
        end[side], cost[side] = _expand(graph, access, work, side, radius[side], end[side])
    for side in range(2):
        for at in range(end[side]):
            clear_bit(work.seen, side, work.queue[side, at])
    return length


@compiled_inside
def _meet(
    graph: KernelGraph,
    access: AccessFilter | None,
    work: PathBuffers,
    radius: NDArray[np.int64],
    end: NDArray[np.int64],
) -> Any:
    """Check the edges between the two frontiers.

    Returns:
        The largest smallest weight of the paths over them, and the number of nodes of the source's frontier on such
        a path; these are then marked and queued.
    """
    begin = (work.starts[0, radius[0]], work.starts[1, radius[1]])
    sizes = (end[0] - begin[0], end[1] - begin[1])
    reads = work.frontiers[3]
    reads[0], reads[1] = 0, 0
    for one in range(2):
        for at in range(begin[one], end[one]):
            reads[one] += min(work.degrees[one, at], _HALVINGS * sizes[1 - one])
    side = 0 if reads[0] <= reads[1] else 1
    work.read[0] += reads[side]
    other = 1 - side
    best = np.float32(-np.inf)
    n_good = 0
    for at in range(begin[side], end[side]):
        node = work.queue[side, at]
        if work.width[side, node] < best:
            continue
        if work.degrees[side, at] <= _HALVINGS * sizes[other]:
            for entry in range(graph.indptr[node], graph.indptr[node + 1]):
                if has_bit(work.seen, other, graph.indices[entry]):
                    best, n_good = _join(graph, access, work, side, node, entry, best, n_good)
        else:  # a hub: binary search of each frontier node among its neighbours
            for place in range(begin[other], end[other]):
                entry = entry_of(graph.indices, graph.indptr[node], graph.indptr[node + 1], work.queue[other, place])
                if entry >= 0:
                    best, n_good = _join(graph, access, work, side, node, entry, best, n_good)
    return best, n_good


@compiled_inside
def _join(
    graph: KernelGraph,
    access: AccessFilter | None,
    work: PathBuffers,
    side: int,
    node: int,
    entry: int,
    best: Any,
    n_good: int,
) -> Any:
    """Update (best, n_good) with an edge between the frontiers."""
    neighbour = graph.indices[entry]
    if not _admits(access, graph.relation_rows, entry, neighbour):
        return best, n_good
    weight = _weight(access, graph.weights, graph.relation_rows, entry)
    width = min(work.width[side, node], weight, work.width[1 - side, neighbour])
    if width < best:
        return best, n_good
    if width > best:
        for at in range(n_good):
            clear_bit(work.seen, _GOOD, work.queue[_GOOD, at])
        n_good = 0
    near = node if side == _SOURCE else neighbour
    if not has_bit(work.seen, _GOOD, near):
        set_bit(work.seen, _GOOD, near)
        work.queue[_GOOD, n_good] = near
        n_good += 1
    return width, n_good


@compiled_inside
def _expand(
    graph: KernelGraph, access: AccessFilter | None, work: PathBuffers, side: int, radius: int, end: int
) -> Any:
    """Expand a search by one hop; return the end of its queue, and the edges of its new frontier."""
    work.starts[side, radius] = end
    cost = 0
    last = end
    for at in range(work.starts[side, radius - 1], end):
        node = work.queue[side, at]
        width = work.width[side, node]
        work.read[0] += graph.indptr[node + 1] - graph.indptr[node]
        for entry in range(graph.indptr[node], graph.indptr[node + 1]):
            neighbour = graph.indices[entry]
            known = has_bit(work.seen, side, neighbour)
            if known and work.depth[side, neighbour] < radius:
                continue
            if not _admits(access, graph.relation_rows, entry, neighbour):
                continue
            through = min(width, _weight(access, graph.weights, graph.relation_rows, entry))
            if not known:
                work.width[side, neighbour] = through
                cost += _enter(graph, work, side, neighbour, radius, last)
                last += 1
            elif through > work.width[side, neighbour]:
                work.width[side, neighbour] = through
    return last, cost


@compiled_inside
def _enter(graph: KernelGraph, work: PathBuffers, side: int, node: int, depth: int, at: int) -> Any:
    """Mark a node as reached and queue it; return its degree."""
    degree = graph.indptr[node + 1] - graph.indptr[node]
    set_bit(work.seen, side, node)
    work.depth[side, node] = depth
    work.queue[side, at] = node
    work.degrees[side, at] = degree
    return degree


@compiled_inside
def _trace(
    graph: KernelGraph,
    access: AccessFilter | None,
    work: PathBuffers,
    radius: NDArray[np.int64],
    n_good: int,
    best: float,
) -> Any:
    """Mark the nodes of the best paths from the frontier back to the source; return their number."""
    first, last = 0, n_good
    work.starts[_GOOD, radius[0]] = 0
    for depth in range(radius[0] - 1, 0, -1):
        work.starts[_GOOD, depth] = last
        end = last
        for at in range(first, last):
            node = work.queue[_GOOD, at]
            for entry in range(graph.indptr[node], graph.indptr[node + 1]):
                neighbour = graph.indices[entry]
                if (
                    has_bit(work.seen, _SOURCE, neighbour)
                    and work.depth[_SOURCE, neighbour] == depth
                    and work.width[_SOURCE, neighbour] >= best
                    and not has_bit(work.seen, _GOOD, neighbour)
                    and _admits(access, graph.relation_rows, entry, neighbour)
                    and _weight(access, graph.weights, graph.relation_rows, entry) >= best
                ):
                    set_bit(work.seen, _GOOD, neighbour)
                    work.queue[_GOOD, end] = neighbour
                    end += 1
        first, last = last, end
    work.starts[_GOOD, 0] = last
    return last


@compiled_inside
def _walk(
    graph: KernelGraph,
    access: AccessFilter | None,
    work: PathBuffers,
    radius: NDArray[np.int64],
    end: NDArray[np.int64],
    source: int,
    target: int,
    best: float,
) -> None:
    """Write the path: from the source, always the lowest row that still allows the best smallest weight."""
    node = source
    work.path[0] = node
    for depth in range(1, radius[0] + 1):
        first, last = work.starts[_GOOD, depth], work.starts[_GOOD, depth - 1]
        node = _lowest(graph, access, work, node, _GOOD, _SOURCE, depth, first, last, best)
        work.path[depth] = node
    at = radius[0] + 1
    for depth in range(radius[1], 0, -1):
        first = work.starts[_TARGET, depth]
        last = work.starts[_TARGET, depth + 1] if depth < radius[1] else end[1]
        node = _lowest(graph, access, work, node, _TARGET, _TARGET, depth, first, last, best)
        work.path[at] = node
        at += 1
    work.path[at] = target


@compiled_inside
def _lowest(
    graph: KernelGraph,
    access: AccessFilter | None,
    work: PathBuffers,
    node: int,
    marked: int,
    side: int,
    depth: int,
    first: int,
    last: int,
    best: float,
) -> Any:
    """Return the lowest neighbour of a node among those of one depth that allow the best smallest weight.

    Args:
        marked: which bits and which queue hold the candidates.
        side: whose depth and width they have.
        first, last: where they are in the queue.
    """
    begin, end = graph.indptr[node], graph.indptr[node + 1]
    if end - begin <= _HALVINGS * (last - first):
        for entry in range(begin, end):  # neighbours ascend, so the first that fits is lowest
            neighbour = graph.indices[entry]
            if (
                has_bit(work.seen, marked, neighbour)
                and work.depth[side, neighbour] == depth
                and _allows(graph, access, work, side, entry, best)
            ):
                return neighbour
    lowest = np.int32(-1)
    for at in range(first, last):
        neighbour = work.queue[marked, at]
        if lowest < 0 or neighbour < lowest:
            entry = entry_of(graph.indices, graph.indptr[node], graph.indptr[node + 1], neighbour)
            if entry >= 0 and _allows(graph, access, work, side, entry, best):
                lowest = neighbour
    return lowest


@compiled_inside
def _allows(
    graph: KernelGraph, access: AccessFilter | None, work: PathBuffers, side: int, entry: int, best: float
) -> Any:
    """Return whether an edge and the way on from its end have at least the best smallest weight."""
    neighbour = graph.indices[entry]
    return (
        work.width[side, neighbour] >= best
        and _admits(access, graph.relation_rows, entry, neighbour)
        and _weight(access, graph.weights, graph.relation_rows, entry) >= best
    )


@compiled_inside
def entry_of(indices: NDArray[np.int32], first: int, last: int, neighbour: int) -> Any:
    """Return where a neighbour is among the entries [first, last), which ascend; −1 where it is not."""
    entry = lower_bound(indices, first, last, neighbour)
    return entry if entry < last and indices[entry] == neighbour else -1


@compiled_inside
def _admits(access: AccessFilter | None, relation_rows: NDArray[np.int32], entry: int, neighbour: int) -> Any:
    """Return whether a relation and the entity at its end are visible. Compiles to nothing without a filter."""
    if access is None:
        return True
    if access.entity_states[access.entity_patterns[neighbour]] == HIDDEN:
        return False
    return access.relation_states[access.relation_patterns[relation_rows[entry]]] != HIDDEN


@compiled_inside
def _weight(
    access: AccessFilter | None, weights: NDArray[np.float32], relation_rows: NDArray[np.int32], entry: int
) -> Any:
    """Return the weight of a visible relation; of a partially visible one, the sum of its visible statements."""
    if access is None:
        return weights[entry]
    row = relation_rows[entry]
    if access.relation_states[access.relation_patterns[row]] != PARTIAL:
        return weights[entry]
    place = lower_bound(access.stated_rows, 0, len(access.stated_rows), row)
    total = 0.0
    for at in range(access.stated_indptr[place], access.stated_indptr[place + 1]):
        if access.sets[access.statement_sets[at]]:
            total += access.statement_strengths[at]
    return np.float32(total)


_READ = 100_000  # entries of the graph per step: one to two milliseconds


class PathFinder:
    """Path search in one graph. Its buffers are reused, so one finder serves one thread at a time.

    Memory: 80 bytes per node are reserved in addition to the graph; only pages that searches reach are touched.
    """

    def __init__(self, graph: CsrGraph, components: NDArray[np.int32] | None = None) -> None:
        """Allocate the buffers, and compile.

        Args:
            components: (n_nodes,) connected component of each node, so that unconnected pairs cost nothing.
        """
        n = graph.n_nodes
        self._graph = KernelGraph(
            read_only(graph.indptr),
            read_only(graph.indices),
            read_only(graph.weights),
            read_only(graph.relation_rows),
        )
        self._components = read_only(np.zeros(0, np.int32) if components is None else components)
        self._work = PathBuffers(
            seen=np.zeros((3, n // 64 + 1), np.uint64),
            depth=np.empty((2, n), np.int32),
            width=np.empty((2, n), np.float32),
            queue=np.empty((3, n), np.int32),
            degrees=np.empty((2, n), np.int64),
            starts=np.empty((3, n + 2), np.int64),
            path=np.empty(n, np.int32),
            read=np.zeros(1, np.int64),
            frontiers=np.zeros((4, 2), np.int64),
        )
        all_at_once(self.chain_steps([]))  # compile now, not during the first question

    def chain_steps(
        self,
        rows: Sequence[int],
        access: AccessFilter | None = None,
        components: NDArray[np.int32] | None = None,
        most_read: int = _READ,
    ) -> Steps[list[list[int]]]:
        """Return the path of each consecutive pair of rows, step by step: its rows, both ends included.

        [row] from a row to itself; [] where there is no path.

        Args:
            rows: that the caller may see.
            access: what else; entities and relations beyond it are not walked, and those seen in part have the
                weight that is in reach. None: everything.
            components: (n_nodes,) connected component of each node in what the caller may see (`seen_components`).
                Without it pairs that only something hidden connects are looked for in all that may be seen.
            most_read: entries of the graph, after which a step ends with the pair at hand.
        """
        keys = np.array(rows, np.int64)
        known = self._components if components is None else read_only(components)
        access = None if access is None else AccessFilter._make(map(read_only, access))
        found: list[list[int]] = []
        while True:
            bounds, nodes = chain(self._graph, access, known, keys[len(found) :], self._work, most_read)
            listed = nodes.tolist()
            found += [listed[begin:end] for begin, end in pairwise(bounds.tolist())]
            yield
            if len(found) >= len(keys) - 1:
                return found
