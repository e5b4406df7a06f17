"""Breadth-first search from many nodes to all others, for offline path statistics.

Up to 64 sources are processed at a time, one bit per source in a word per node (Then et al., "The More the Merrier",
VLDB 2014), so that the edges of a small-world graph are read once for all of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hirag_dist.core.arrays import compiled
from hirag_dist.types import CsrGraph, IntVector


@compiled
def has_bit(bits: NDArray[np.uint64], row: int, number: int) -> Any:
    """Return whether a bit of a row of `bits`, (n_rows, n_words), is set."""
    return (bits[row, number >> 6] >> np.uint64(number & 63)) & np.uint64(1) != 0


@compiled
def set_bit(bits: NDArray[np.uint64], row: int, number: int) -> None:
    """Set a bit of a row."""
    bits[row, number >> 6] |= np.uint64(1) << np.uint64(number & 63)


@compiled
def clear_bit(bits: NDArray[np.uint64], row: int, number: int) -> None:
    """Clear a bit of a row."""
    bits[row, number >> 6] &= ~(np.uint64(1) << np.uint64(number & 63))


UNREACHED = -1
_TOGETHER = 64  # sources of one pass: the bits of a word


def hop_distances(graph: CsrGraph, sources: IntVector) -> NDArray[np.int32]:
    """Return (n_sources, n_nodes) the fewest hops from each source to each node, −1 where there is no path.

    Memory: 4 bytes an element of the result, which is column-major, and 40 bytes a node.

    Args:
        graph: weights are not used.
        sources: (n_sources,) rows, in any order; one may stand there twice.

    Raises:
        IndexError: a source that is no node.
    """
    if len(sources) and not 0 <= sources.min() <= sources.max() < graph.n_nodes:  # compiled code does not check bounds
        raise IndexError(f"sources must be rows from 0 to {graph.n_nodes - 1}")
    hops = np.full((graph.n_nodes, len(sources)), UNREACHED, np.int32)  # a node's numbers are written together
    for first in range(0, len(sources), _TOGETHER):
        part = slice(first, first + _TOGETHER)
        _walk(graph.indptr, graph.indices, sources[part].astype(np.int64), hops[:, part])
    return hops.T


@compiled
def _walk(
    indptr: NDArray[np.int64], indices: NDArray[np.int32], sources: NDArray[np.int64], hops: NDArray[np.int32]
) -> None:
    """Fill `hops`, (n_nodes, n_sources), which is all −1, for at most 64 sources."""
    n_nodes = len(indptr) - 1
    none, one = np.uint64(0), np.uint64(1)
    # per node one bit per source: sources that reached it before, and with this hop; read together, hence
    # stored together
    seen, coming = 0, 1
    state = np.zeros((n_nodes, 2), np.uint64)
    fresh = np.zeros(n_nodes, np.uint64)  # sources that reached the node with the last hop
    frontier, touched = np.empty(n_nodes, np.int32), np.empty(n_nodes, np.int32)
    n_frontier = 0
    for number in range(len(sources)):
        node = sources[number]
        if fresh[node] == none:
            frontier[n_frontier] = node
            n_frontier += 1
        fresh[node] |= one << np.uint64(number)
        state[node, seen] = fresh[node]
        hops[node, number] = 0
    level = 0
    while n_frontier:
        level += 1
        n_touched = 0
        for at in range(n_frontier):
            node = frontier[at]
            bits = fresh[node]
            fresh[node] = none
            for entry in range(indptr[node], indptr[node + 1]):
                neighbour = indices[entry]
                new = bits & ~state[neighbour, seen]
                if new != none:
                    if state[neighbour, coming] == none:
                        touched[n_touched] = neighbour
                        n_touched += 1
                    state[neighbour, coming] |= new
        for at in range(n_touched):
            node = touched[at]
            new = state[node, coming]
            state[node, coming] = none
            state[node, seen] |= new
            fresh[node] = new
            for number in range(len(sources)):
                if (new >> np.uint64(number)) & one:
                    hops[node, number] = level
        frontier, touched = touched, frontier
        n_frontier = n_touched
