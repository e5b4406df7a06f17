"""Leiden communities of a weighted graph (Traag, Waltman and van Eck, 2019), deterministic on every machine.

Each round has three phases: local moving of nodes between communities while modularity rises, from a queue; refinement
of every community, from single nodes, into well-connected parts; aggregation of each part into one node of a smaller
graph, which starts from the communities found. Refinement merges with the best neighbour, as leidenalg does by default,
not with a random one. Compiled by numba, one thread, sums in float64; nodes are visited in the order of keys that the
caller gives and ties go to the lowest label, so that nothing depends on a library's version or on a hash seed.

A warm start (as in dynamic Leiden, arXiv 2405.11658) begins with given communities, and with a queue of the nodes near
a change. A community is *marked* when it has a changed node or when a node has joined or left it. Only marked
communities are refined and divided; the others remain one node of the aggregated graph, which moves only if a
neighbour's move queues it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hirag_dist.core.arrays import compiled, compiled_inside, read_only
from hirag_dist.core.groupby import hashes_of, mixed
from hirag_dist.types import CsrGraph, IntVector


@compiled_inside
def refined(
    indptr: NDArray[np.int64],
    indices: NDArray[np.int32],
    weights: NDArray[np.float64],
    strength: NDArray[np.float64],
    scale: float,
    community: NDArray[np.int32],
    marked: NDArray[np.bool_],
) -> Any:
    """Return the refinement of each marked community: its nodes merged again, one by one, into well-connected parts.

    A node joins a part while it is a singleton, and only if both are well connected to the rest of the community; so
    every part is connected, and a community that became disconnected can split. A part is named by one of its nodes.

    Args:
        community: (n_nodes,) label of each node, below `n_nodes`.
        marked: (n_nodes,) whether the community of each node is refined; one that is not stays one part.
    """
    n_nodes = len(strength)
    piece = np.empty(n_nodes, np.int32)
    whole = np.zeros(n_nodes, np.float64)  # weight of each community's nodes
    weight_of = strength.copy()  # weight of each piece
    outside = np.zeros(n_nodes, np.float64)  # weight between each piece and the rest of its community
    alone = marked.copy()
    first_of = np.full(n_nodes, -1, np.int32)  # first node of each community that is not refined
    for node in range(n_nodes):
        piece[node] = node
        if not marked[node]:
            if first_of[community[node]] < 0:
                first_of[community[node]] = node
            piece[node] = first_of[community[node]]
            continue
        whole[community[node]] += strength[node]
        for entry in range(indptr[node], indptr[node + 1]):
            if community[indices[entry]] == community[node]:
                outside[node] += weights[entry]
    shared = np.zeros(n_nodes, np.float64)
    beside = np.empty(n_nodes, np.int32)
    for node in range(n_nodes):
        if not alone[node]:
            continue
        own = community[node]
        pull = scale * strength[node]
        if outside[node] < pull * (whole[own] - strength[node]):
            continue
        n_beside = 0
        for entry in range(indptr[node], indptr[node + 1]):
            neighbour = indices[entry]
            if community[neighbour] == own:
                label = piece[neighbour]
                if shared[label] == 0.0:
                    beside[n_beside] = label
                    n_beside += 1
                shared[label] += weights[entry]
        best, best_gain, best_shared = node, 0.0, 0.0
        for at in range(n_beside):
            label = beside[at]
            weight = weight_of[label]
            if outside[label] >= scale * weight * (whole[own] - weight):
                gain = shared[label] - pull * weight
                if gain > best_gain or (gain == best_gain and best != node and label < best):
                    best, best_gain, best_shared = label, gain, shared[label]
            shared[label] = 0.0
        if best != node:
            piece[node] = best
            alone[best] = False
            weight_of[best] += strength[node]
            outside[best] += outside[node] - 2.0 * best_shared
    return piece


@compiled_inside
def aggregated(
    indptr: NDArray[np.int64],
    indices: NDArray[np.int32],
    weights: NDArray[np.float64],
    strength: NDArray[np.float64],
    piece: NDArray[np.int32],
    n_pieces: int,
) -> Any:
    """Return CSR and strengths of the graph whose nodes are the pieces; edges inside one count in its strength only."""
    n_nodes = len(strength)
    first = np.zeros(n_pieces + 1, np.int64)
    for node in range(n_nodes):
        first[piece[node] + 1] += 1
    for label in range(n_pieces):
        first[label + 1] += first[label]
    by_piece = np.empty(n_nodes, np.int32)
    following = first[:-1].copy()
    n_between = 0
    for node in range(n_nodes):
        by_piece[following[piece[node]]] = node
        following[piece[node]] += 1
        for entry in range(indptr[node], indptr[node + 1]):
            if piece[indices[entry]] != piece[node]:
                n_between += 1
    new_indptr = np.zeros(n_pieces + 1, np.int64)
    new_indices = np.empty(n_between, np.int32)
    new_weights = np.empty(n_between, np.float64)
    new_strength = np.zeros(n_pieces, np.float64)
    position = np.full(n_pieces, -1, np.int64)  # of a neighbour's entry in this row
    to = 0
    for label in range(n_pieces):
        start = to
        for at in range(first[label], first[label + 1]):
            node = by_piece[at]
            new_strength[label] += strength[node]
            for entry in range(indptr[node], indptr[node + 1]):
                other = piece[indices[entry]]
                if other == label:
                    continue
                if position[other] < start:
                    position[other] = to
                    new_indices[to] = other
                    new_weights[to] = 0.0
                    to += 1
                new_weights[position[other]] += weights[entry]
        new_indptr[label + 1] = to
    return new_indptr, new_indices[:to].copy(), new_weights[:to].copy(), new_strength


_MAX_ROUNDS = 10
_MIN_ROUND = 1e-4  # gain in modularity, relative to the share of the marked nodes; a round that gains less is the last
_MIN_GAIN = 1e-9  # relative to the weight of a node; a smaller gain is rounding and could repeat for ever


def visiting_keys(entity_ids: pa.ChunkedArray, seed: int) -> NDArray[np.uint64]:
    """Return keys that order nodes by a hash of their id and a seed.

    A node more or less leaves the order of the others as it is, so communities without a change tend to be found again.
    """
    return mixed(hashes_of(entity_ids) ^ mixed(np.array([seed % (1 << 64)], np.uint64)))


def leiden(
    graph: CsrGraph,
    groups: IntVector,
    resolution: float,
    order_keys: NDArray[np.uint64],
    initial: IntVector | None = None,
    changed: NDArray[np.bool_] | None = None,
) -> IntVector:
    """Return communities of each group of nodes, found as if the group were the whole graph.

    A group's communities depend on its own nodes, their order and the edges among them, and on nothing outside it.

    Memory: about 40 bytes an entry of `graph.indices` and 100 a node, beyond the graph.

    Args:
        graph: undirected, each edge both ways, no loops; weights that are not positive count as none.
        groups: (n_nodes,) group of each node, −1 where it is in none.
        resolution: of modularity; larger, more and smaller communities.
        order_keys: (n_nodes,) nodes are visited by ascending key, equal keys by row.
        initial: (n_nodes,) labels to start from, −1 for a node that starts alone; None: every node does.
        changed: (n_nodes,) nodes whose edges in the group differ from those that `initial` was found with. They and
            their neighbours are visited first, other nodes when a neighbour moves. Nodes without an initial label
            count as changed. None: all nodes.

    Returns:
        (n_nodes,) labels from 0 on, each within one group; −1 where `groups` is.
    """
    order = np.flatnonzero(groups >= 0)
    order = order[np.argsort(order_keys[order], kind="stable")]
    order = order[np.argsort(groups[order], kind="stable")]
    starts = np.flatnonzero(np.diff(groups[order], prepend=-1))
    unknown = np.full(graph.n_nodes, -1, np.int64)
    before = unknown if initial is None else initial.astype(np.int64)
    labels = unknown.copy()
    _part_all(
        read_only(graph.indptr),
        read_only(graph.indices),
        read_only(graph.weights),
        order.astype(np.int64),
        np.append(starts, len(order)).astype(np.int64),
        float(resolution),
        before,
        np.ones(graph.n_nodes, np.bool_) if changed is None else changed | (before < 0),
        labels,
        np.full(graph.n_nodes, -1, np.int32),
        np.full(before.max(initial=-1) + 1, -1, np.int32),
    )
    return labels


@compiled
def _part_all(
    indptr: NDArray[np.int64],
    indices: NDArray[np.int32],
    weights: NDArray[np.float32],
    order: NDArray[np.int64],
    starts: NDArray[np.int64],
    resolution: float,
    initial: NDArray[np.int64],
    changed: NDArray[np.bool_],
    labels: NDArray[np.int64],
    place: NDArray[np.int32],
    number: NDArray[np.int32],
) -> None:
    """Partition each run of nodes in `order` separately and write to `labels`.

    Nodes are numbered by their place in the run and visited by number: memory is read in order.

    Args:
        place: (n_nodes,) buffer, −1 everywhere before and after.
        number: (n_labels,) buffer, of each initial label its number in a run; −1 everywhere before and after.
    """
    following = 0
    for group in range(len(starts) - 1):
        nodes = order[starts[group] : starts[group + 1]]
        found = np.empty(len(nodes), np.int32)
        own_changed = np.empty(len(nodes), np.bool_)
        n_found = 0
        for at in range(len(nodes)):
            own_changed[at] = changed[nodes[at]]
            label = initial[nodes[at]]
            if label >= 0 and number[label] >= 0:
                found[at] = number[label]
                continue
            found[at] = n_found
            if label >= 0:
                number[label] = n_found
            n_found += 1
        for at in range(len(nodes)):
            if initial[nodes[at]] >= 0:
                number[initial[nodes[at]]] = -1
        own_indptr, own_indices, own_weights = _inside(indptr, indices, weights, nodes, place)
        n_found = _part(own_indptr, own_indices, own_weights, resolution, found, own_changed)
        for at in range(len(nodes)):
            labels[nodes[at]] = found[at] + following
        following += n_found


@compiled_inside
def _inside(
    indptr: NDArray[np.int64],
    indices: NDArray[np.int32],
    weights: NDArray[np.float32],
    nodes: NDArray[np.int64],
    place: NDArray[np.int32],
) -> Any:
    """Return the CSR among some nodes, numbered by their order; `place` is −1 everywhere before and after."""
    for at in range(len(nodes)):
        place[nodes[at]] = at
    own_indptr = np.zeros(len(nodes) + 1, np.int64)
    for at in range(len(nodes)):
        n_inside = 0
        for entry in range(indptr[nodes[at]], indptr[nodes[at] + 1]):
            if place[indices[entry]] >= 0 and weights[entry] > 0:
                n_inside += 1
        own_indptr[at + 1] = own_indptr[at] + n_inside
    own_indices = np.empty(own_indptr[-1], np.int32)
    own_weights = np.empty(own_indptr[-1], np.float64)
    to = 0
    for at in range(len(nodes)):
        for entry in range(indptr[nodes[at]], indptr[nodes[at] + 1]):
            if place[indices[entry]] >= 0 and weights[entry] > 0:
                own_indices[to] = place[indices[entry]]
                own_weights[to] = weights[entry]
                to += 1
    for at in range(len(nodes)):
        place[nodes[at]] = -1
    return own_indptr, own_indices, own_weights


@compiled_inside
def _part(
    indptr: NDArray[np.int64],
    indices: NDArray[np.int32],
    weights: NDArray[np.float64],
    resolution: float,
    labels: NDArray[np.int32],
    changed: NDArray[np.bool_],
) -> Any:
    """Partition a whole graph, starting from `labels` and writing to them; return their number, from 0 on."""
    n_nodes = len(indptr) - 1
    strength = np.zeros(n_nodes, np.float64)
    waiting = changed.copy()
    marked_label = np.zeros(n_nodes, np.bool_)
    for node in range(n_nodes):
        marked_label[labels[node]] |= changed[node]
        for entry in range(indptr[node], indptr[node + 1]):
            strength[node] += weights[entry]
            waiting[indices[entry]] |= changed[node]
    marked = np.empty(n_nodes, np.bool_)
    total = 0.0
    for node in range(n_nodes):
        marked[node] = marked_label[labels[node]]
        total += strength[node]
    if total <= 0.0:
        for node in range(n_nodes):
            labels[node] = node
        return n_nodes
    scale = resolution / total
    for _ in range(_MAX_ROUNDS):
        # of the graph as it shrinks: where each original node went, and the community of each node
        here_indptr, here_indices, here_weights, here_strength = indptr, indices, weights, strength
        went = np.empty(n_nodes, np.int32)
        for node in range(n_nodes):
            went[node] = node
        community, here_marked = labels.copy(), marked.copy()
        gained = 0.0
        while True:
            gained += _move(
                here_indptr, here_indices, here_weights, here_strength, scale, community, waiting, here_marked
            )
            n_labels = _renumber(community)
            if n_labels == len(community):
                break
            pieces = refined(here_indptr, here_indices, here_weights, here_strength, scale, community, here_marked)
            n_pieces = _renumber(pieces)
            if n_pieces == len(pieces):
                break
            above = np.empty(n_pieces, np.int32)
            waiting = np.empty(n_pieces, np.bool_)
            for node in range(len(pieces)):
                above[pieces[node]] = community[node]
                waiting[pieces[node]] = here_marked[node]
            for node in range(n_nodes):
                went[node] = pieces[went[node]]
            here_indptr, here_indices, here_weights, here_strength = aggregated(
                here_indptr, here_indices, here_weights, here_strength, pieces, n_pieces
            )
            community, here_marked = above, waiting.copy()
        at_stake = 0.0
        for node in range(n_nodes):
            labels[node] = community[went[node]]
            marked[node] = here_marked[went[node]]
            if marked[node]:
                at_stake += strength[node]
        if 2.0 * gained <= _MIN_ROUND * at_stake:
            break
        waiting = marked.copy()
    return _renumber(labels)


@compiled_inside
def _renumber(labels: NDArray[np.int32]) -> Any:
    """Renumber labels in the order of their first node; return their number."""
    new = np.full(len(labels), -1, np.int32)
    n_labels = 0
    for at in range(len(labels)):
        if new[labels[at]] < 0:
            new[labels[at]] = n_labels
            n_labels += 1
        labels[at] = new[labels[at]]
    return n_labels


@compiled_inside
def _totals(strength: NDArray[np.float64], community: NDArray[np.int32], marked: NDArray[np.bool_]) -> Any:
    """Return weight, size and mark of each label, then the labels without a node, the lowest last, and their number."""
    n_nodes = len(strength)
    weight_of = np.zeros(n_nodes, np.float64)
    size = np.zeros(n_nodes, np.int32)
    marked_label = np.zeros(n_nodes, np.bool_)
    for node in range(n_nodes):
        weight_of[community[node]] += strength[node]
        size[community[node]] += 1
        marked_label[community[node]] |= marked[node]
    empty = np.empty(n_nodes, np.int32)
    n_empty = 0
    for label in range(n_nodes - 1, -1, -1):
        if size[label] == 0:
            empty[n_empty] = label
            n_empty += 1
    return weight_of, size, marked_label, empty, n_empty


@compiled_inside
def _move(
    indptr: NDArray[np.int64],
    indices: NDArray[np.int32],
    weights: NDArray[np.float64],
    strength: NDArray[np.float64],
    scale: float,
    community: NDArray[np.int32],
    waiting: NDArray[np.bool_],
    marked: NDArray[np.bool_],
) -> Any:
    """Move nodes to the community where modularity gains most, until none gains; return the gain, in weight.

    A node is visited again when a neighbour has moved to another community than its own.

    Args:
        community: (n_nodes,) label of each node, below `n_nodes`; changed.
        waiting: (n_nodes,) nodes that are visited; all False afterwards.
        marked: (n_nodes,) whether the community of each node is marked; changed.
    """
    n_nodes = len(strength)
    weight_of, size, marked_label, empty, n_empty = _totals(strength, community, marked)
    shared = np.zeros(n_nodes, np.float64)  # weight between the node and each adjacent community
    beside = np.empty(n_nodes, np.int32)
    queue = np.empty(n_nodes, np.int32)
    first, n_queued = 0, 0
    for node in range(n_nodes):
        if waiting[node]:
            queue[n_queued] = node
            n_queued += 1
    gained = 0.0
    while n_queued:
        node = queue[first]
        first = first + 1 if first + 1 < n_nodes else 0
        n_queued -= 1
        waiting[node] = False
        own = community[node]
        n_beside = 0
        for entry in range(indptr[node], indptr[node + 1]):
            label = community[indices[entry]]
            if shared[label] == 0.0:
                beside[n_beside] = label
                n_beside += 1
            shared[label] += weights[entry]
        pull = scale * strength[node]
        here = shared[own] - pull * (weight_of[own] - strength[node])
        best, best_gain = own, here + _MIN_GAIN * strength[node]
        for at in range(n_beside):
            label = beside[at]
            if label != own:
                gain = shared[label] - pull * weight_of[label]
                if gain > best_gain or (gain == best_gain and label < best):
                    best, best_gain = label, gain
            shared[label] = 0.0
        if size[own] > 1 and best_gain < 0.0:
            n_empty -= 1
            best, best_gain = empty[n_empty], 0.0
        if best == own:
            continue
        gained += best_gain - here
        community[node] = best
        marked_label[own] = marked_label[best] = True
        weight_of[own] -= strength[node]
        weight_of[best] += strength[node]
        size[own] -= 1
        size[best] += 1
        if size[own] == 0:
            weight_of[own] = 0.0
            empty[n_empty] = own
            n_empty += 1
        for entry in range(indptr[node], indptr[node + 1]):
            neighbour = indices[entry]
            if not waiting[neighbour] and community[neighbour] != best:
                waiting[neighbour] = True
                end = first + n_queued
                queue[end if end < n_nodes else end - n_nodes] = neighbour
                n_queued += 1
    for node in range(n_nodes):
        marked[node] = marked_label[community[node]]
    return gained
