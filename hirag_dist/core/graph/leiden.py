"""Leiden communities of a weighted graph (Traag, Waltman and van Eck, 2019), deterministic on every machine.

Each round has three phases: local moving of nodes between communities while modularity rises, from a queue; refinement
of every community, from single nodes, into well-connected parts; aggregation of each part into one node of a smaller
graph, which starts from the communities found. Refinement merges with the best neighbour, as leidenalg does by default,
not with a random one. Compiled by numba, one thread, sums in float64; nodes come in an order shuffled by our own
generator and ties go to the lowest label, so that nothing depends on a library's version or on a hash seed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hirag_dist.core.numba_jit import compiled
from hirag_dist.types import CsrGraph, IntVector

_MAX_ROUNDS = 10
_MIN_ROUND = 1e-4  # gain in modularity; a round that gains less is the last
_MIN_GAIN = 1e-9  # relative to the weight of a node; a smaller gain is rounding and could repeat for ever


def leiden(graph: CsrGraph, groups: IntVector, resolution: float, seed: int) -> IntVector:
    """Return communities of each group of nodes, found as if the group were the whole graph.

    A group's communities depend on its own nodes, their order and the edges among them, and on nothing outside it.

    Memory: about 40 bytes an entry of `graph.indices` and 100 a node, beyond the graph.

    Args:
        graph: undirected, each edge both ways, no loops; weights that are not positive count as none.
        groups: (n_nodes,) group of each node, −1 where it is in none.
        resolution: of modularity; larger, more and smaller communities.
        seed: of the order in which nodes are visited.

    Returns:
        (n_nodes,) labels from 0 on, each within one group; −1 where `groups` is.
    """
    chosen = np.flatnonzero(groups >= 0)
    order = chosen[np.argsort(groups[chosen], kind="stable")]
    starts = np.flatnonzero(np.diff(groups[order], prepend=-1))
    labels = np.full(graph.n_nodes, -1, np.int64)
    _part_all(
        graph.indptr,
        graph.indices,
        graph.weights,
        order.astype(np.int64),
        np.append(starts, len(order)).astype(np.int64),
        float(resolution),
        np.uint64(seed % (1 << 64)),
        labels,
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
    seed: np.uint64,
    labels: NDArray[np.int64],
) -> None:
    """Partition each run of nodes in `order` separately and write to `labels`; shuffles `order` within the runs.

    Nodes are shuffled here, once, and from then on visited by number: memory is read in order.
    """
    place = np.full(len(indptr) - 1, -1, np.int32)
    following = 0
    for group in range(len(starts) - 1):
        nodes = order[starts[group] : starts[group + 1]]
        _shuffle(nodes, seed)
        own_indptr, own_indices, own_weights = _inside(indptr, indices, weights, nodes, place)
        found, n_found = _part(own_indptr, own_indices, own_weights, resolution)
        for at in range(len(nodes)):
            labels[nodes[at]] = found[at] + following
        following += n_found


@compiled
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


@compiled
def _part(
    indptr: NDArray[np.int64],
    indices: NDArray[np.int32],
    weights: NDArray[np.float64],
    resolution: float,
) -> Any:
    """Return (labels from 0 on, their number) of a whole graph."""
    n_nodes = len(indptr) - 1
    strength = np.zeros(n_nodes, np.float64)
    for node in range(n_nodes):
        for entry in range(indptr[node], indptr[node + 1]):
            strength[node] += weights[entry]
    total = strength.sum()
    labels = np.arange(n_nodes).astype(np.int32)
    if total <= 0.0:
        return labels, n_nodes
    scale = resolution / total
    n_labels = n_nodes
    for _ in range(_MAX_ROUNDS):
        # of the graph as it shrinks: where each original node went, and the community of each node
        here_indptr, here_indices, here_weights, here_strength = indptr, indices, weights, strength
        went = np.arange(n_nodes).astype(np.int32)
        community = labels.copy()
        gained = 0.0
        while True:
            gained += _move(here_indptr, here_indices, here_weights, here_strength, scale, community)
            n_labels = _renumber(community)
            if n_labels == len(community):
                break
            pieces = _refine(here_indptr, here_indices, here_weights, here_strength, scale, community)
            n_pieces = _renumber(pieces)
            if n_pieces == len(pieces):
                break
            above = np.empty(n_pieces, np.int32)
            for node in range(len(pieces)):
                above[pieces[node]] = community[node]
            for node in range(n_nodes):
                went[node] = pieces[went[node]]
            here_indptr, here_indices, here_weights, here_strength = _joined(
                here_indptr, here_indices, here_weights, here_strength, pieces, n_pieces
            )
            community = above
        for node in range(n_nodes):
            labels[node] = community[went[node]]
        if 2.0 * gained / total < _MIN_ROUND:
            break
    return labels, _renumber(labels)


@compiled
def _shuffle(nodes: NDArray[np.int64], seed: np.uint64) -> None:
    """Shuffle nodes by the seed: Fisher-Yates with SplitMix64."""
    state = seed
    for last in range(len(nodes) - 1, 0, -1):
        state += np.uint64(0x9E3779B97F4A7C15)
        mixed = state
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed = mixed ^ (mixed >> np.uint64(31))
        other = np.int64(mixed % np.uint64(last + 1))
        nodes[last], nodes[other] = nodes[other], nodes[last]


@compiled
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


@compiled
def _move(
    indptr: NDArray[np.int64],
    indices: NDArray[np.int32],
    weights: NDArray[np.float64],
    strength: NDArray[np.float64],
    scale: float,
    community: NDArray[np.int32],
) -> Any:
    """Move nodes to the community where modularity gains most, until none gains; return the gain, in weight.

    A node is visited again when a neighbour has moved to another community than its own.
    """
    n_nodes = len(strength)
    weight_of = np.zeros(n_nodes, np.float64)  # of each community's nodes
    size = np.zeros(n_nodes, np.int32)
    for node in range(n_nodes):
        weight_of[community[node]] += strength[node]
        size[community[node]] += 1
    empty = np.empty(n_nodes, np.int32)
    n_empty = 0
    for label in range(n_nodes - 1, -1, -1):
        if size[label] == 0:
            empty[n_empty] = label
            n_empty += 1
    shared = np.zeros(n_nodes, np.float64)  # weight between the node and each adjacent community
    beside = np.empty(n_nodes, np.int32)
    queue = np.arange(n_nodes).astype(np.int32)
    waiting = np.ones(n_nodes, np.bool_)
    first, n_queued = 0, n_nodes
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
    return gained


@compiled
def _refine(
    indptr: NDArray[np.int64],
    indices: NDArray[np.int32],
    weights: NDArray[np.float64],
    strength: NDArray[np.float64],
    scale: float,
    community: NDArray[np.int32],
) -> Any:
    """Return the refinement of each community: its nodes merged again, one by one, into well-connected parts.

    A node joins a part while it is a singleton, and only if both are well connected to the rest of the community; so
    every part is connected, and a community that became disconnected can split.
    """
    n_nodes = len(strength)
    piece = np.arange(n_nodes).astype(np.int32)
    whole = np.zeros(n_nodes, np.float64)  # weight of each community's nodes
    weight_of = strength.copy()  # of each piece's
    outside = np.zeros(n_nodes, np.float64)  # weight between each piece and the rest of its community
    alone = np.ones(n_nodes, np.bool_)
    for node in range(n_nodes):
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


@compiled
def _joined(
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
