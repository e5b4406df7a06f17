"""Second and third phase of a round of Leiden: refinement of the communities, and aggregation of their parts."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hirag_dist.core.numba_jit import compiled


@compiled
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
    piece = np.arange(n_nodes).astype(np.int32)
    whole = np.zeros(n_nodes, np.float64)  # weight of each community's nodes
    weight_of = strength.copy()  # of each piece's
    outside = np.zeros(n_nodes, np.float64)  # weight between each piece and the rest of its community
    alone = marked.copy()
    first_of = np.full(n_nodes, -1, np.int32)  # first node of each community that is not refined
    for node in range(n_nodes):
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


@compiled
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
