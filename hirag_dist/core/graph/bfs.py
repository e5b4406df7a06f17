"""Breadth-first search from many nodes to all others, for offline path statistics.

Two implementations of the same result. `hop_distances` is compiled for the CPU and processes up to 64 sources at a
time, one bit per source in a word per node (Then et al., "The More the Merrier", VLDB 2014), so that the edges of a
small-world graph are read once for all of them. `frontier_hops` is written in whole-array operations, for an array
module that has a GPU behind it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hirag_dist.core.arrays import compiled, compiled_inside
from hirag_dist.types import CsrGraph, IntVector


@compiled_inside
def has_bit(bits: NDArray[np.uint64], row: int, number: int) -> Any:
    """Return whether a bit of a row of `bits`, (n_rows, n_words), is set."""
    return (bits[row, number >> 6] >> np.uint64(number & 63)) & np.uint64(1) != 0


@compiled_inside
def set_bit(bits: NDArray[np.uint64], row: int, number: int) -> None:
    """Set a bit of a row."""
    bits[row, number >> 6] |= np.uint64(1) << np.uint64(number & 63)


@compiled_inside
def clear_bit(bits: NDArray[np.uint64], row: int, number: int) -> None:
    """Clear a bit of a row."""
    bits[row, number >> 6] &= ~(np.uint64(1) << np.uint64(number & 63))


UNREACHED = -1
_TOGETHER = 64  # sources of one pass: the bits of a word
_MAX_ENTRIES = 1 << 24  # edges that `frontier_hops` expands at a time: some 800 MB of working arrays


def hop_distances(graph: CsrGraph, sources: IntVector) -> NDArray[np.int32]:
    """Return (n_sources, n_nodes) the fewest hops from each source to each node, −1 where there is no path.

    Memory: 4 bytes an element of the result, which is column-major, and 40 bytes a node.

    Args:
        graph: weights are not used.
        sources: (n_sources,) rows, in any order; one may stand there twice.

    Raises:
        IndexError: a source that is no node.
    """
    check_sources(graph, sources)
    hops = np.full((graph.n_nodes, len(sources)), UNREACHED, np.int32)  # a node's numbers are written together
    for first in range(0, len(sources), _TOGETHER):
        part = slice(first, first + _TOGETHER)
        _walk(graph.indptr, graph.indices, sources[part].astype(np.int64), hops[:, part])
    return hops.T


def frontier_hops(xp: Any, graph: CsrGraph, sources: IntVector, most_entries: int = _MAX_ENTRIES) -> Any:
    """Return hop distances as an array of `xp`, by breadth-first search from all sources at once; as `hop_distances`.

    A (source, node) pair is the number `source · n_nodes + node`. Memory: 4 bytes a pair, 16 bytes a pair of the
    widest frontier, the graph, and what `most_entries` costs.

    Args:
        xp: the array module: numpy, or one like it.
        graph: numpy arrays, which are copied to where `xp` computes.
        sources: (n_sources,) as of `hop_distances`.
        most_entries: edges expanded at a time, about 48 bytes each.

    Raises:
        IndexError: a source that is no node.
    """
    check_sources(graph, sources)
    n_nodes = graph.n_nodes
    starts, neighbours = xp.asarray(graph.indptr), xp.asarray(graph.indices)
    hops = xp.full(len(sources) * n_nodes, UNREACHED, dtype=xp.int32)
    frontier = xp.arange(len(sources), dtype=xp.int64) * n_nodes + xp.asarray(sources.astype(np.int64))
    hops[frontier] = 0
    level = 0
    while frontier.size:
        level += 1
        nodes = frontier % n_nodes
        heads = starts[nodes]
        ends = xp.cumsum(starts[nodes + 1] - heads)
        shift = heads - xp.concatenate(
            [xp.zeros(1, dtype=ends.dtype), ends[:-1]]
        )  # from position in the frontier to entry of the graph
        found = []
        for first in range(0, int(ends[-1]), most_entries):
            place = xp.arange(first, min(first + most_entries, int(ends[-1])), dtype=xp.int64)
            owner = xp.searchsorted(ends, place, side="right")
            pairs = frontier[owner] - nodes[owner] + neighbours[place + shift[owner]]
            pairs = xp.unique(pairs[hops[pairs] == UNREACHED])
            hops[pairs] = level
            found.append(pairs)
        frontier = xp.concatenate(found) if found else frontier[:0]
    return hops.reshape(len(sources), n_nodes)


def check_sources(graph: CsrGraph, sources: IntVector) -> None:
    """Raise IndexError if a source is not a node; compiled code and GPUs do not check bounds."""
    if len(sources) and not 0 <= sources.min() <= sources.max() < graph.n_nodes:
        raise IndexError(f"sources must be rows from 0 to {graph.n_nodes - 1}")


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
