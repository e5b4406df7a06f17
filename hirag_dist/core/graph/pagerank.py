"""Personalised PageRank over the graph of entities and chunks: a random walk with restarts at seed nodes.

Entities are joined as relations join them, and to the chunks that mention them. A walker starts at one of the starting
points, goes from where it is to one of the places joined to it, each as likely as the others, and starts again with
probability `RESTART` at every step. What share of its time it spends at a chunk says how near that is. From an entity
of a lower layer no way leads up: a summary stands for all of its members, and would join what has nothing else in
common.

The shares are found by pushing mass on from place to place until none holds more than `TOLERANCE` for each of its
ways (Andersen, Chung and Lang, Local graph partitioning using PageRank vectors, FOCS 2006). What is walked is a
neighbourhood of the starting points, of at most 1 / (RESTART × TOLERANCE) ways whatever the size of the graph. A place
of very many ways is passed through only by mass that is worth it.
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
STEP_WAYS: Final = 20_000  # walked in a step, which takes less than a millisecond
_FIRST_PLACES = 1024


class WalkGraph(NamedTuple):
    """Graph of the walk. A node is the row of an entity, or the number of entities plus the row of a chunk.

    Attributes:
        layers: (n_entities,) layer of each entity, ascending.
        layer_ends: (n_layers,) the first row behind each layer.
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
        slots: (2^s,) hash table of places, −1 where there is none; at most half full.
        nodes: (capacity,) node of each place.
        settled, waiting: (capacity,) mass that stays there, and that is still to go on.
        degrees: (capacity,) edges from it; −1: not computed yet.
        queued: (capacity,) whether it is in the queue.
        queue: (capacity,) ring of places.
        others: (capacity,) where the ways from a node lead.
        counts: (4,) places, first of the queue, length of the queue, ways walked.
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
    ways: WalkGraph,
    nodes: IntVector,
    shares: FloatVector,
    admission: AccessFilter | None = None,
    seen: NDArray[np.bool_] | None = None,
    tolerance: float = TOLERANCE,
) -> tuple[IntVector, FloatVector]:
    """Return the nodes reached and their scores; runs `pagerank_steps` to its end."""
    return all_at_once(pagerank_steps(ways, nodes, shares, admission, seen, tolerance))


def pagerank_steps(
    ways: WalkGraph,
    nodes: IntVector,
    shares: FloatVector,
    admission: AccessFilter | None = None,
    seen: NDArray[np.bool_] | None = None,
    tolerance: float = TOLERANCE,
    step_ways: int = STEP_WAYS,
) -> Steps[tuple[IntVector, FloatVector]]:
    """Return (chunk rows, ascending; share of the walk at each), step by step.

    A node without any way keeps the mass that every node keeps, and the rest of its mass is lost. Equal input gives
    equal bits, and what may not be seen changes none of them.

    Args:
        ways: where it may go.
        nodes: (n,) starting points, which the caller may see; one may come several times.
        shares: (n,) how often a walk starts at each; they add up to 1 at most.
        admission: which entities and relations the caller may see; None: everything.
        seen: (n_chunks,) whether the caller may see a chunk; None: every one.
        tolerance: mass for each way of a node that is not pushed on.
        step_ways: ways that are walked in a step, and those of one node more.
    """
    mask = np.zeros(0, np.bool_) if seen is None else seen
    work = _begin(max(_FIRST_PLACES, 2 * len(nodes)))
    work = _start(ways, admission, mask, work, nodes, shares, tolerance)
    while work.counts[2]:
        work = _push(ways, admission, mask, work, tolerance, step_ways)
        yield
    n_reached = int(work.counts[0])
    reached = work.nodes[:n_reached]
    mass = work.settled[:n_reached] + RESTART * work.waiting[:n_reached]  # of what waits, as much would stay
    n_entities = len(ways.layers)
    chunks = np.flatnonzero(reached >= n_entities)
    chunks = chunks[np.argsort(reached[chunks])]
    return reached[chunks] - n_entities, mass[chunks]


def _begin(capacity: int) -> _PushState:
    capacity = 1 << (capacity - 1).bit_length()  # the ends of the ring are found by a mask
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
    ways: WalkGraph,
    admission: AccessFilter | None,
    seen: NDArray[np.bool_],
    work: _PushState,
    nodes: IntVector,
    shares: FloatVector,
    tolerance: float,
) -> Any:
    """Put the mass where the walk begins; there must be room for all starting points."""
    for at in range(len(nodes)):
        _give(ways, admission, seen, work, nodes[at : at + 1], shares[at], tolerance)
    return work


@compiled
def _push(
    ways: WalkGraph,
    admission: AccessFilter | None,
    seen: NDArray[np.bool_],
    work: _PushState,
    tolerance: float,
    n_ways: int,
) -> Any:
    """Push mass on from places in the queue, until it is empty or so many ways were walked; return the work, grown."""
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
        count = _others(ways, admission, seen, work.nodes[place], work.others)
        _give(ways, admission, seen, work, work.others[:count], (1.0 - RESTART) * mass / degree, tolerance)
    return work


@compiled
def _others(
    ways: WalkGraph, admission: AccessFilter | None, seen: NDArray[np.bool_], node: int, found: IntVector
) -> Any:
    """Write down where the ways from a node lead; return how many they are."""
    n_entities = len(ways.layers)
    count = 0
    if node < n_entities:
        for entry in range(ways.indptr[node], _last_way(ways, node)):
            if _relates(ways, admission, entry):
                found[count] = ways.indices[entry]
                count += 1
        for entry in range(ways.entity_indptr[node], ways.entity_indptr[node + 1]):
            chunk = ways.entity_chunks[entry]
            if len(seen) == 0 or seen[chunk]:
                found[count] = n_entities + chunk
                count += 1
    else:
        chunk = node - n_entities
        for entry in range(ways.chunk_indptr[chunk], ways.chunk_indptr[chunk + 1]):
            entity = ways.chunk_entities[entry]
            if _admits(admission, entity):
                found[count] = entity
                count += 1
    return count


@compiled
def _give(
    ways: WalkGraph,
    admission: AccessFilter | None,
    seen: NDArray[np.bool_],
    work: _PushState,
    nodes: IntVector,
    share: float,
    tolerance: float,
) -> None:
    """Give nodes a share of mass each, and queue those that have more than their ways let them keep.

    There must be room for all of them.
    """
    slots, places, waiting, degrees, queued = work.slots, work.nodes, work.waiting, work.degrees, work.queued
    for node in nodes:
        slot = _slot(slots, places, node)
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
            degrees[place] = _degree(ways, admission, seen, node)
        if waiting[place] > tolerance * degrees[place]:
            work.queue[(work.counts[1] + work.counts[2]) & (len(work.queue) - 1)] = place
            work.counts[2] += 1
            queued[place] = True


@compiled
def _slot(slots: NDArray[np.int32], nodes: IntVector, node: int) -> Any:
    """Return the slot that holds a node's place, or the free one where it belongs."""
    mask = len(slots) - 1
    mixed = np.uint64(node) * np.uint64(0x9E3779B97F4A7C15)  # Fibonacci hashing: rows in a run are spread
    slot = np.int64(mixed >> np.uint64(32)) & mask
    while slots[slot] >= 0 and nodes[slots[slot]] != node:
        slot = (slot + 1) & mask
    return slot


@compiled
def _grown(work: _PushState, needed: int) -> Any:
    """Return the same work with room for at least so many places."""
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
        slots[_slot(slots, nodes, nodes[place])] = place
    for at in range(work.counts[2]):
        queue[at] = work.queue[(work.counts[1] + at) & (len(work.queue) - 1)]
    work.counts[1] = 0
    return _PushState(slots, nodes, settled, waiting, degrees, queued, queue, np.empty(capacity, np.int64), work.counts)


@compiled
def _degree(ways: WalkGraph, admission: AccessFilter | None, seen: NDArray[np.bool_], node: int) -> Any:
    """Return how many ways lead from a node. For who sees everything they need not be counted one by one."""
    n_entities = len(ways.layers)
    if node >= n_entities:
        first, last = ways.chunk_indptr[node - n_entities], ways.chunk_indptr[node - n_entities + 1]
        if admission is None:
            return last - first
        count = 0
        for entry in range(first, last):
            count += _admits(admission, ways.chunk_entities[entry])
        return count
    count = 0
    if admission is None:
        count += _last_way(ways, node) - ways.indptr[node]
    else:
        for entry in range(ways.indptr[node], _last_way(ways, node)):
            count += _relates(ways, admission, entry)
    if len(seen) == 0:
        return count + ways.entity_indptr[node + 1] - ways.entity_indptr[node]
    for entry in range(ways.entity_indptr[node], ways.entity_indptr[node + 1]):
        count += seen[ways.entity_chunks[entry]]
    return count


@compiled
def _last_way(ways: WalkGraph, node: int) -> Any:
    """Return where the relations of an entity end that lead to its own layer or below: rows are sorted by layer."""
    first, last = ways.indptr[node], ways.indptr[node + 1]
    return first + np.searchsorted(ways.indices[first:last], ways.layer_ends[ways.layers[node]])


@compiled
def _relates(ways: WalkGraph, admission: AccessFilter | None, entry: int) -> Any:
    """Return whether the caller may see the relation of an entry of the graph, and the entity that it leads to."""
    if admission is None:
        return True
    if admission.relation_states[admission.relation_patterns[ways.relation_rows[entry]]] == HIDDEN:
        return False
    return _admits(admission, ways.indices[entry])


@compiled
def _admits(admission: AccessFilter | None, entity: int) -> Any:
    return admission is None or admission.entity_states[admission.entity_patterns[entity]] != HIDDEN
