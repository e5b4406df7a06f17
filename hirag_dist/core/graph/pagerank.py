"""Personalised PageRank over the graph of entities and chunks: a random walk with restarts at seed nodes.

Edges are the relations between entities and the mentions of entities in chunks. The walk starts at a seed node, follows
an edge chosen uniformly at each step, and restarts with probability `RESTART`. The score of a chunk is the share of
time that the walk spends there. No edge leads from an entity to a higher layer: a summary stands for all of its members
and would connect entities that have nothing else in common.

Scores are computed by local push: mass moves from node to node until no node holds more than `TOLERANCE` per edge
(Andersen, Chung and Lang, Local graph partitioning using PageRank vectors, FOCS 2006). The work is bounded by
1 / (RESTART × TOLERANCE) edges, whatever the size of the graph. Mass passes through a node of high degree only if it
exceeds the tolerance times the degree.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hirag_dist.core.access import HIDDEN
from hirag_dist.core.arrays import Steps, compiled, compiled_inside, lower_bound, read_only
from hirag_dist.core.graph.bfs import has_bit, set_bit
from hirag_dist.types import AccessFilter, FloatVector, IntVector

RESTART: Final = 0.2
TOLERANCE: Final = 1e-4
STEP_EDGES: Final = 20_000  # edges per step, which takes less than a millisecond
_MAX_FREE = 8  # buffers that are kept
_NO_NODES, _NO_SHARES = np.zeros(0, np.int64), np.zeros(0)


class WalkGraph(NamedTuple):
    """Graph of the walk. A node is the row of an entity, or the number of entities plus the row of a chunk.

    All arrays are read-only: the walk is compiled for one type.

    Attributes:
        layers: (n_entities,) layer of each entity, ascending.
        layer_ends: (n_layers,) end row of each layer.
        indptr, indices: CSR, entity → entities that it has relations with, ascending.
        relation_rows: (n_entries,) the relation of each.
        entity_indptr, entity_chunks: CSR, entity → chunk rows.
        chunk_indptr, chunk_entities: CSR, chunk → entity rows, ascending.
    """

    layers: NDArray[np.int32]
    layer_ends: IntVector
    indptr: IntVector
    indices: NDArray[np.int32]
    relation_rows: NDArray[np.int32]
    entity_indptr: IntVector
    entity_chunks: NDArray[np.int32]
    chunk_indptr: IntVector
    chunk_entities: NDArray[np.int32]


class VisibleEdges(NamedTuple):
    """Edges that are visible under one filter, found node by node as walks reach them and kept for the next walks.

    Attributes:
        degrees: (n,) number of visible edges from each node plus 1, 0 where they are not found yet.
        bits: (1, n_words) visible entries of the graph, numbered as in `_find_edges`, of nodes whose edges are found.
    """

    degrees: NDArray[np.int32]
    bits: NDArray[np.uint64]

    @classmethod
    def unknown(cls, graph: WalkGraph) -> VisibleEdges:
        """Return those of a graph, none found yet. Only pages that walks reach take memory."""
        n_nodes = len(graph.layers) + len(graph.chunk_indptr) - 1
        n_entries = len(graph.indices) + len(graph.entity_chunks) + len(graph.chunk_entities)
        return VisibleEdges(np.zeros(n_nodes, np.int32), np.zeros((1, n_entries // 64 + 1), np.uint64))


class _PushState(NamedTuple):
    """State of the push algorithm. All zero between walks, except where an attribute says otherwise.

    Attributes:
        mass: (n, 2) mass of each node that is still to be pushed, and the mass above which the node enters the queue:
            0 for a node that was not reached yet, infinite while the node is in the queue.
        settled: (n,) settled mass.
        degrees: (n,) edges from each node that was reached, −1 where they are not counted yet; undefined elsewhere.
        reached: (n,) nodes in the order in which they were reached.
        queue: (n + 1,) ring buffer of nodes.
        others: (n,) visible neighbours of the node at hand.
        counts: (4,) nodes reached, head of the queue, length of the queue, edges walked.
    """

    mass: NDArray[np.float64]
    settled: FloatVector
    degrees: NDArray[np.int32]
    reached: NDArray[np.int32]
    queue: NDArray[np.int32]
    others: NDArray[np.int32]
    counts: IntVector


class WalkBuffers:
    """Buffers of walks over graphs of one size, which walks one after the other use again.

    Memory: 40 bytes per node are reserved for each walk at a time; only pages that walks reach are touched.
    """

    def __init__(self, graph: WalkGraph) -> None:
        """Reserve nothing yet."""
        self._n_nodes = len(graph.layers) + len(graph.chunk_indptr) - 1
        self._free: list[_PushState] = []

    def take(self) -> _PushState:
        """Return buffers that no other walk uses."""
        try:
            return self._free.pop()
        except IndexError:
            n = self._n_nodes
            return _PushState(
                np.zeros((n, 2)),
                np.zeros(n),
                np.empty(n, np.int32),
                np.empty(n, np.int32),
                np.empty(n + 1, np.int32),
                np.empty(n, np.int32),
                np.zeros(4, np.int64),
            )

    def give_back(self, work: _PushState) -> None:
        """Keep the buffers of a walk that has ended for others."""
        if len(self._free) < _MAX_FREE:
            self._free.append(work)


def pagerank_steps(
    graph: WalkGraph,
    nodes: IntVector,
    shares: FloatVector,
    access: AccessFilter | None = None,
    seen: NDArray[np.bool_] | None = None,
    tolerance: float = TOLERANCE,
    buffers: WalkBuffers | None = None,
    visible: VisibleEdges | None = None,
) -> Steps[tuple[IntVector, FloatVector]]:
    """Return (chunk rows, ascending; share of the walk at each), step by step.

    A node without edges keeps the restart share of its mass, and the rest is lost. Equal input gives equal bits;
    hidden entities, relations and chunks change none of them.

    Args:
        nodes: (n,) seed nodes, visible to the caller; a node may occur several times.
        shares: (n,) restart probability of each; the sum is at most 1.
        access: which entities and relations the caller may see; None: everything.
        seen: (n_chunks,) whether the caller may see a chunk; None: every one.
        tolerance: mass per edge of a node below which it is not pushed.
        buffers: of walks over graphs of this size; None: new ones.
        visible: what walks under the same filter have found; None: nothing. Without a filter it is not read.
    """
    if access is None and seen is None:
        visible = None
    elif visible is None:
        visible = VisibleEdges.unknown(graph)
    buffers = WalkBuffers(graph) if buffers is None else buffers
    access = None if access is None else AccessFilter._make(map(read_only, access))
    mask = np.zeros(0, np.bool_) if seen is None else seen
    work = buffers.take()  # a walk that is not ended leaves mass in its buffers: they are dropped
    _push(graph, access, mask, visible, work, nodes, shares, tolerance)
    yield
    while work.counts[2]:
        _push(graph, access, mask, visible, work, _NO_NODES, _NO_SHARES, tolerance)
        yield
    rows, mass = _end(work, len(graph.layers))
    buffers.give_back(work)
    order = np.argsort(rows)
    return rows[order], mass[order]


@compiled
def _push(
    graph: WalkGraph,
    access: AccessFilter | None,
    seen: NDArray[np.bool_],
    visible: VisibleEdges | None,
    work: _PushState,
    nodes: IntVector,
    shares: FloatVector,
    tolerance: float,
) -> None:
    """Put mass on the seed nodes; then push mass from queued nodes until the queue is empty or the step ends.

    A step ends after `STEP_EDGES` edges; the last node is always finished.
    """
    mass, settled, degrees, reached, queue = work.mass, work.settled, work.degrees, work.reached, work.queue
    n_reached, head, length, edges = work.counts[0], work.counts[1], work.counts[2], work.counts[3]
    until = edges + STEP_EDGES
    seed = 0
    while True:
        if seed < len(nodes):
            work.others[0], count, share = nodes[seed], 1, shares[seed]
            seed += 1
        elif length == 0 or edges >= until:
            break
        else:
            node = np.int64(queue[head])
            head = head + 1 if head + 1 < len(queue) else 0
            length -= 1
            degree, waiting = degrees[node], mass[node, 0]
            mass[node, 0], mass[node, 1] = 0.0, max(tolerance, tolerance * degree)
            settled[node] += RESTART * waiting
            if degree == 0:
                continue
            edges += degree
            count, share = _neighbours(graph, visible, node, work.others), (1.0 - RESTART) * waiting / degree
        for at in range(count):
            node = np.int64(work.others[at])
            waiting, bar = mass[node, 0] + share, mass[node, 1]
            mass[node, 0] = waiting
            if bar == 0.0:
                reached[n_reached], degrees[node] = node, -1
                n_reached += 1
                bar = mass[node, 1] = tolerance
            if waiting > bar and degrees[node] < 0:
                degrees[node] = _degree(graph, access, seen, visible, node)
                bar = mass[node, 1] = max(tolerance, tolerance * degrees[node])
            if waiting > bar:
                queue[head + length if head + length < len(queue) else head + length - len(queue)] = node
                length += 1
                mass[node, 1] = np.inf
    work.counts[0], work.counts[1], work.counts[2], work.counts[3] = n_reached, head, length, edges


@compiled_inside
def _neighbours(graph: WalkGraph, visible: VisibleEdges | None, node: Any, found: NDArray[np.int32]) -> Any:
    """Write the neighbours of a node, whose degree is known, to `found`; return their number."""
    n_entities = len(graph.layers)
    count = 0
    if node >= n_entities:
        chunk = node - n_entities
        first = len(graph.indices) + len(graph.entity_chunks)  # number of the first entry of a chunk
        for entry in range(graph.chunk_indptr[chunk], graph.chunk_indptr[chunk + 1]):
            if _is_visible(visible, first + entry):
                found[count] = graph.chunk_entities[entry]
                count += 1
        return count
    for entry in range(graph.indptr[node], _end_of_relations(graph, node)):
        if _is_visible(visible, entry):
            found[count] = graph.indices[entry]
            count += 1
    first = len(graph.indices)
    for entry in range(graph.entity_indptr[node], graph.entity_indptr[node + 1]):
        if _is_visible(visible, first + entry):
            found[count] = n_entities + graph.entity_chunks[entry]
            count += 1
    return count


@compiled
def _end(work: _PushState, n_entities: int) -> Any:
    """Return (rows, shares) of the chunks reached, in the order in which they were, and clear the buffers.

    The restart share of mass that was not pushed counts as settled.
    """
    n_reached = work.counts[0]
    n_chunks = 0
    for at in range(n_reached):
        n_chunks += work.reached[at] >= n_entities
    rows, shares = np.empty(n_chunks, np.int64), np.empty(n_chunks)
    n_chunks = 0
    for at in range(n_reached):
        node = work.reached[at]
        if node >= n_entities:
            rows[n_chunks] = node - n_entities
            shares[n_chunks] = work.settled[node] + RESTART * work.mass[node, 0]
            n_chunks += 1
        work.mass[node, 0] = work.mass[node, 1] = work.settled[node] = 0.0
    work.counts[0] = work.counts[1] = work.counts[2] = work.counts[3] = 0
    return rows, shares


@compiled_inside
def _degree(
    graph: WalkGraph, access: AccessFilter | None, seen: NDArray[np.bool_], visible: VisibleEdges | None, node: Any
) -> Any:
    """Return the degree of a node. Without a filter it follows from the CSR offsets."""
    if visible is not None:
        if visible.degrees[node] == 0:
            visible.degrees[node] = _find_edges(graph, access, seen, visible.bits, node) + 1
        return np.int64(visible.degrees[node]) - 1
    n_entities = len(graph.layers)
    if node >= n_entities:
        return graph.chunk_indptr[node - n_entities + 1] - graph.chunk_indptr[node - n_entities]
    n_related = _end_of_relations(graph, node) - graph.indptr[node]
    return n_related + graph.entity_indptr[node + 1] - graph.entity_indptr[node]


@compiled_inside
def _find_edges(
    graph: WalkGraph, access: AccessFilter | None, seen: NDArray[np.bool_], bits: NDArray[np.uint64], node: Any
) -> Any:
    """Set the bits of the visible edges from a node; return their number.

    The entries of relations, of the chunks of entities, and of the entities of chunks are numbered in this order.
    """
    n_entities = len(graph.layers)
    count = 0
    if node >= n_entities:
        first = len(graph.indices) + len(graph.entity_chunks)
        for entry in range(graph.chunk_indptr[node - n_entities], graph.chunk_indptr[node - n_entities + 1]):
            if _admits(access, graph.chunk_entities[entry]):
                set_bit(bits, 0, first + entry)
                count += 1
        return count
    for entry in range(graph.indptr[node], _end_of_relations(graph, node)):
        if _admits_relation(access, graph.relation_rows[entry]) and _admits(access, graph.indices[entry]):
            set_bit(bits, 0, entry)
            count += 1
    first = len(graph.indices)
    for entry in range(graph.entity_indptr[node], graph.entity_indptr[node + 1]):
        if len(seen) == 0 or seen[graph.entity_chunks[entry]]:
            set_bit(bits, 0, first + entry)
            count += 1
    return count


@compiled_inside
def _end_of_relations(graph: WalkGraph, node: int) -> Any:
    """Return the end of the relations of an entity to its own layer or below; neighbours are sorted by layer."""
    end = graph.layer_ends[graph.layers[node]]
    return lower_bound(graph.indices, graph.indptr[node], graph.indptr[node + 1], end)


@compiled_inside
def _is_visible(visible: VisibleEdges | None, number: int) -> Any:
    """Return whether an entry is a visible edge; the edges from its node are found."""
    return visible is None or has_bit(visible.bits, 0, number)


@compiled_inside
def _admits(access: AccessFilter | None, entity: int) -> Any:
    return access is None or access.entity_states[access.entity_patterns[entity]] != HIDDEN


@compiled_inside
def _admits_relation(access: AccessFilter | None, relation: int) -> Any:
    return access is None or access.relation_states[access.relation_patterns[relation]] != HIDDEN
