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

from hirag_dist.core.access.labels import HIDDEN
from hirag_dist.core.cooperative import Steps, all_at_once
from hirag_dist.core.numba_jit import compiled
from hirag_dist.types import AccessFilter, FloatVector, IntVector

RESTART: Final = 0.2
TOLERANCE: Final = 1e-4
STEP_EDGES: Final = 20_000  # edges per step, which takes less than a millisecond
_INITIAL_SLOTS = 1024


class WalkGraph(NamedTuple):
    """Graph of the walk. A node is the row of an entity, or the number of entities plus the row of a chunk.

    Attributes:
        layers: (n_entities,) layer of each entity, ascending.
        layer_ends: (n_layers,) end row of each layer.
        indptr, indices: CSR, entity → entities that it has relations with, ascending.
        relation_rows: (n_entries,) the relation of each.
        entity_indptr, entity_chunks: CSR, entity → chunk rows.
        chunk_indptr, chunk_entities: CSR, chunk → entity rows.
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


class _PushState(NamedTuple):
    """State of the push algorithm. A slot is the number of a node in the order in which nodes were reached.

    Attributes:
        slots: (2^s,) hash table of slots, −1 where empty; at most half full.
        nodes: (capacity,) node of each slot.
        settled, waiting: (capacity,) settled mass, and mass that is still to be pushed.
        degrees: (capacity,) edges from it; −1: not computed yet.
        queued: (capacity,) whether it is in the queue.
        queue: (capacity,) ring buffer of slots.
        others: (capacity,) neighbours of the node at hand.
        counts: (4,) slots in use, head of the queue, length of the queue, edges walked.
    """

    slots: NDArray[np.int32]
    nodes: IntVector
    settled: FloatVector
    waiting: FloatVector
    degrees: IntVector
    queued: NDArray[np.bool_]
    queue: NDArray[np.int32]
    others: IntVector
    counts: IntVector


def personalised_pagerank(
    graph: WalkGraph,
    nodes: IntVector,
    shares: FloatVector,
    access: AccessFilter | None = None,
    seen: NDArray[np.bool_] | None = None,
    tolerance: float = TOLERANCE,
) -> tuple[IntVector, FloatVector]:
    """Return the nodes reached and their scores; runs `pagerank_steps` to its end."""
    return all_at_once(pagerank_steps(graph, nodes, shares, access, seen, tolerance))


def pagerank_steps(
    graph: WalkGraph,
    nodes: IntVector,
    shares: FloatVector,
    access: AccessFilter | None = None,
    seen: NDArray[np.bool_] | None = None,
    tolerance: float = TOLERANCE,
    step_edges: int = STEP_EDGES,
) -> Steps[tuple[IntVector, FloatVector]]:
    """Return (chunk rows, ascending; share of the walk at each), step by step.

    A node without edges keeps the restart share of its mass, and the rest is lost. Equal input gives equal bits;
    hidden entities, relations and chunks change none of them.

    Args:
        graph: the graph.
        nodes: (n,) seed nodes, visible to the caller; a node may occur several times.
        shares: (n,) restart probability of each; the sum is at most 1.
        access: which entities and relations the caller may see; None: everything.
        seen: (n_chunks,) whether the caller may see a chunk; None: every one.
        tolerance: mass per edge of a node below which it is not pushed.
        step_edges: edges walked in a step; the last node is always finished.
    """
    mask = np.zeros(0, np.bool_) if seen is None else seen
    work = _begin(max(_INITIAL_SLOTS, 2 * len(nodes)))
    work = _start(graph, access, mask, work, nodes, shares, tolerance)
    while work.counts[2]:
        work = _push(graph, access, mask, work, tolerance, step_edges)
        yield
    n_reached = int(work.counts[0])
    reached = work.nodes[:n_reached]
    mass = (
        work.settled[:n_reached] + RESTART * work.waiting[:n_reached]
    )  # the restart share of unpushed mass counts as settled
    n_entities = len(graph.layers)
    chunks = np.flatnonzero(reached >= n_entities)
    chunks = chunks[np.argsort(reached[chunks])]
    return reached[chunks] - n_entities, mass[chunks]


def _begin(capacity: int) -> _PushState:
    capacity = 1 << (capacity - 1).bit_length()  # a power of two, so that the ring buffer wraps by a mask
    size = 2 * capacity
    return _PushState(
        np.full(size, -1, np.int32),
        np.empty(capacity, np.int64),
        np.zeros(capacity),
        np.zeros(capacity),
        np.full(capacity, -1, np.int64),
        np.zeros(capacity, np.bool_),
        np.empty(capacity, np.int32),
        np.empty(capacity, np.int64),
        np.zeros(4, np.int64),
    )


@compiled
def _start(
    graph: WalkGraph,
    access: AccessFilter | None,
    seen: NDArray[np.bool_],
    work: _PushState,
    nodes: IntVector,
    shares: FloatVector,
    tolerance: float,
) -> Any:
    """Put mass on the seed nodes; the capacity must suffice for all of them."""
    for at in range(len(nodes)):
        _add_mass(graph, access, seen, work, nodes[at : at + 1], shares[at], tolerance)
    return work


@compiled
def _push(
    graph: WalkGraph,
    access: AccessFilter | None,
    seen: NDArray[np.bool_],
    work: _PushState,
    tolerance: float,
    n_ways: int,
) -> Any:
    """Push mass from queued slots until the queue is empty or the step limit is reached; return the state, grown."""
    until = work.counts[3] + n_ways
    while work.counts[2] and work.counts[3] < until:
        place = work.queue[work.counts[1]]
        degree = work.degrees[place]
        if work.counts[0] + degree > len(work.nodes):
            work = _grown(work, work.counts[0] + degree)
            place = work.queue[work.counts[1]]
        work.counts[1] = (work.counts[1] + 1) & (len(work.queue) - 1)
        work.counts[2] -= 1
        work.queued[place] = False
        mass = work.waiting[place]
        work.waiting[place] = 0.0
        work.settled[place] += RESTART * mass
        if degree == 0:
            continue
        work.counts[3] += degree
        count = _neighbours(graph, access, seen, work.nodes[place], work.others)
        _add_mass(graph, access, seen, work, work.others[:count], (1.0 - RESTART) * mass / degree, tolerance)
    return work


@compiled
def _neighbours(
    graph: WalkGraph, access: AccessFilter | None, seen: NDArray[np.bool_], node: int, found: IntVector
) -> Any:
    """Write the neighbours of a node to `others`; return their number."""
    n_entities = len(graph.layers)
    count = 0
    if node < n_entities:
        for entry in range(graph.indptr[node], _end_of_relations(graph, node)):
            if _is_visible(graph, access, entry):
                found[count] = graph.indices[entry]
                count += 1
        for entry in range(graph.entity_indptr[node], graph.entity_indptr[node + 1]):
            chunk = graph.entity_chunks[entry]
            if len(seen) == 0 or seen[chunk]:
                found[count] = n_entities + chunk
                count += 1
    else:
        chunk = node - n_entities
        for entry in range(graph.chunk_indptr[chunk], graph.chunk_indptr[chunk + 1]):
            entity = graph.chunk_entities[entry]
            if _admits(access, entity):
                found[count] = entity
                count += 1
    return count


@compiled
def _add_mass(
    graph: WalkGraph,
    access: AccessFilter | None,
    seen: NDArray[np.bool_],
    work: _PushState,
    nodes: IntVector,
    share: float,
    tolerance: float,
) -> None:
    """Add mass to nodes, and queue those whose mass exceeds the tolerance times their degree.

    The capacity must suffice for all of them.
    """
    slots, places, waiting, degrees, queued = work.slots, work.nodes, work.waiting, work.degrees, work.queued
    for node in nodes:
        slot = _table_position(slots, places, node)
        place = slots[slot]
        if place < 0:
            place = np.int32(work.counts[0])
            work.counts[0] += 1
            slots[slot] = place
            places[place] = node
        waiting[place] += share
        if queued[place] or waiting[place] <= tolerance:
            continue
        if degrees[place] < 0:
            degrees[place] = _degree(graph, access, seen, node)
        if waiting[place] > tolerance * degrees[place]:
            work.queue[(work.counts[1] + work.counts[2]) & (len(work.queue) - 1)] = place
            work.counts[2] += 1
            queued[place] = True


@compiled
def _table_position(slots: NDArray[np.int32], nodes: IntVector, node: int) -> Any:
    """Return the position of a node in the hash table, or the free position where it belongs."""
    mask = len(slots) - 1
    mixed = np.uint64(node) * np.uint64(0x9E3779B97F4A7C15)  # Fibonacci hashing spreads consecutive rows
    slot = np.int64(mixed >> np.uint64(32)) & mask
    while slots[slot] >= 0 and nodes[slots[slot]] != node:
        slot = (slot + 1) & mask
    return slot


@compiled
def _grown(work: _PushState, needed: int) -> Any:
    """Return the same state with capacity for at least `n` slots."""
    count, capacity = work.counts[0], len(work.nodes)
    while capacity < needed:
        capacity *= 2
    size = 2 * capacity
    slots = np.full(size, -1, np.int32)
    nodes = np.empty(capacity, np.int64)
    settled, waiting = np.zeros(capacity), np.zeros(capacity)
    degrees, queued = np.full(capacity, -1, np.int64), np.zeros(capacity, np.bool_)
    queue = np.empty(capacity, np.int32)
    nodes[:count] = work.nodes[:count]
    settled[:count] = work.settled[:count]
    waiting[:count] = work.waiting[:count]
    degrees[:count] = work.degrees[:count]
    queued[:count] = work.queued[:count]
    for place in range(count):
        slots[_table_position(slots, nodes, nodes[place])] = place
    for at in range(work.counts[2]):
        queue[at] = work.queue[(work.counts[1] + at) & (len(work.queue) - 1)]
    work.counts[1] = 0
    return _PushState(slots, nodes, settled, waiting, degrees, queued, queue, np.empty(capacity, np.int64), work.counts)


@compiled
def _degree(graph: WalkGraph, access: AccessFilter | None, seen: NDArray[np.bool_], node: int) -> Any:
    """Return the degree of a node. Without a filter it follows from the CSR offsets."""
    n_entities = len(graph.layers)
    if node >= n_entities:
        first, last = graph.chunk_indptr[node - n_entities], graph.chunk_indptr[node - n_entities + 1]
        if access is None:
            return last - first
        count = 0
        for entry in range(first, last):
            count += _admits(access, graph.chunk_entities[entry])
        return count
    count = 0
    if access is None:
        count += _end_of_relations(graph, node) - graph.indptr[node]
    else:
        for entry in range(graph.indptr[node], _end_of_relations(graph, node)):
            count += _is_visible(graph, access, entry)
    if len(seen) == 0:
        return count + graph.entity_indptr[node + 1] - graph.entity_indptr[node]
    for entry in range(graph.entity_indptr[node], graph.entity_indptr[node + 1]):
        count += seen[graph.entity_chunks[entry]]
    return count


@compiled
def _end_of_relations(graph: WalkGraph, node: int) -> Any:
    """Return the end of the relations of an entity to its own layer or below; neighbours are sorted by layer."""
    first, last = graph.indptr[node], graph.indptr[node + 1]
    return first + np.searchsorted(graph.indices[first:last], graph.layer_ends[graph.layers[node]])


@compiled
def _is_visible(graph: WalkGraph, access: AccessFilter | None, entry: int) -> Any:
    """Return whether the caller may see the relation of an entry of the graph, and the entity that it leads to."""
    if access is None:
        return True
    if access.relation_states[access.relation_patterns[graph.relation_rows[entry]]] == HIDDEN:
        return False
    return _admits(access, graph.indices[entry])


@compiled
def _admits(access: AccessFilter | None, entity: int) -> Any:
    return access is None or access.entity_states[access.entity_patterns[entity]] != HIDDEN
