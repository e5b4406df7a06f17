"""Measures of an undirected graph: its simple form, components, triangles and clustering coefficients.

All are plain functions on numpy arrays; a node is a row number.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hirag_dist.core.graph.components import component_labels
from hirag_dist.types import FloatVector, IntVector

_BLOCK_WEDGES = 2_000_000  # wedges expanded at a time: some 100 MB of working arrays
_MAX_WEDGES = 300_000_000  # above it the coefficients are estimated; some two minutes of one core
_SAMPLES = 400_000  # standard error of an estimate: below 0.001


@dataclass(frozen=True, slots=True)
class SimpleGraph:
    """An undirected graph without loops or parallel edges, as CSR with each edge stored in both directions.

    Attributes:
        indptr: (n_nodes + 1,) int64.
        indices: (2 * n_edges,) int64 neighbours, ascending within a row.
    """

    indptr: NDArray[np.int64]
    indices: NDArray[np.int64]

    @property
    def n_nodes(self) -> int:
        """Nodes, isolated ones too."""
        return len(self.indptr) - 1

    @property
    def n_edges(self) -> int:
        """Edges, each counted once."""
        return len(self.indices) // 2

    @property
    def degrees(self) -> IntVector:
        """(n_nodes,) distinct neighbours of each node."""
        return np.diff(self.indptr)


@dataclass(frozen=True, slots=True)
class ClusteringCoefficients:
    """Clustering coefficients: the share of pairs of neighbours that are neighbours of each other.

    Attributes:
        transitivity: closed triples over all triples, Eq. 18 of the HiRAG paper; 0.0 where there is no triple.
        average_local: mean over all nodes of the share of closed triples around each; below two neighbours it is 0.
        triangles: number of triangles, None where the values are estimates.
        exact: whether the values are counted, not estimated from a sample.
    """

    transitivity: float
    average_local: float
    triangles: int | None
    exact: bool


def distinct(keys: IntVector) -> IntVector:
    """Return the different values, ascending: by sorting, which is many times faster than `np.unique`'s hashing."""
    ordered = np.sort(keys)
    new = np.ones(len(ordered), dtype=bool)
    new[1:] = ordered[1:] != ordered[:-1]
    return ordered[new]


def simple_graph(sources: IntVector, targets: IntVector, n_nodes: int) -> SimpleGraph:
    """Return the simple graph of a list of edges: loops dropped, parallel and opposite edges joined.

    Args:
        sources: (n,) node numbers.
        targets: (n,) node numbers.
        n_nodes: nodes, isolated ones too.

    >>> simple_graph(np.array([0, 1, 2]), np.array([1, 0, 2]), 3).degrees.tolist()
    [1, 1, 0]
    """
    keep = sources != targets
    low = np.minimum(sources, targets)[keep].astype(np.int64)
    high = np.maximum(sources, targets)[keep].astype(np.int64)
    keys = distinct(low * n_nodes + high)
    low, high = np.divmod(keys, max(n_nodes, 1))
    rows, columns = np.concatenate([low, high]), np.concatenate([high, low])
    order = np.lexsort((columns, rows))
    indptr = np.zeros(n_nodes + 1, dtype=np.int64)
    np.cumsum(np.bincount(rows, minlength=n_nodes), out=indptr[1:])
    return SimpleGraph(indptr, columns[order])


def components(graph: SimpleGraph) -> IntVector:
    """Return the sizes of the connected components, largest first; isolated nodes are components of one."""
    if not graph.n_nodes:
        return np.zeros(0, dtype=np.int64)
    labels = component_labels(np.repeat(np.arange(graph.n_nodes), graph.degrees), graph.indices, graph.n_nodes)
    return np.sort(np.bincount(labels).astype(np.int64))[::-1]


def triangles_per_node(graph: SimpleGraph, block_wedges: int = _BLOCK_WEDGES) -> IntVector:
    """Return (n_nodes,) the number of triangles that each node is part of, exactly.

    Edges point from the lower to the higher degree, so that a hub with many neighbours costs no more than the square
    root of the number of edges; memory is bounded by `block_wedges`, not by the graph's wedges.
    """
    n_nodes = graph.n_nodes
    order = np.lexsort((np.arange(n_nodes), graph.degrees))
    keys, starts = _oriented_edges(graph, order)
    low, high = np.divmod(keys, max(n_nodes, 1))
    later = starts[low + 1] - np.arange(len(keys)) - 1  # edges of the same row that follow
    reach = np.cumsum(later)
    counts = np.zeros(n_nodes, dtype=np.int64)
    begin = 0
    while begin < len(keys):
        done = reach[begin - 1] if begin else 0
        end = max(begin + 1, int(np.searchsorted(reach, done + block_wedges, side="right")))
        first = np.repeat(np.arange(begin, end), later[begin:end])
        within = np.arange(len(first)) - np.repeat(reach[begin:end] - later[begin:end] - done, later[begin:end])
        second = first + 1 + within
        wanted = high[first] * n_nodes + high[second]
        at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        closed = keys[at] == wanted
        for ends in (low[first], high[first], high[second]):
            counts += np.bincount(ends[closed], minlength=n_nodes)
        begin = end
    result = np.empty(n_nodes, dtype=np.int64)
    result[order] = counts
    return result


def clustering(graph: SimpleGraph, max_wedges: int = _MAX_WEDGES, seed: int = 0) -> ClusteringCoefficients:
    """Return the clustering coefficients of a graph.

    Paper: Eq. 18 (the global coefficient, closed triples over all triples), and the mean of the local ones.

    Args:
        graph: as `simple_graph` makes it.
        max_wedges: work that the exact count may cost; above it both values come from a seeded sample of triples.
        seed: of that sample.
    """
    degrees = graph.degrees
    triples = degrees * (degrees - 1) // 2
    n_triples = int(triples.sum())
    if not n_triples:
        return ClusteringCoefficients(0.0, 0.0, 0, True)
    if _wedges(graph) > max_wedges:
        return _estimated(graph, triples.astype(np.float64), seed)
    triangles = triangles_per_node(graph)
    local = np.divide(triangles, triples, out=np.zeros(graph.n_nodes), where=triples > 0)
    closed = int(triangles.sum())  # a triangle is three closed triples, one around each corner
    return ClusteringCoefficients(closed / n_triples, float(local.mean()), closed // 3, True)


def _oriented_edges(graph: SimpleGraph, order: IntVector) -> tuple[IntVector, IntVector]:
    """Edges between ranks, lower rank first, as sorted keys `low * n + high`, and where each row starts."""
    n_nodes = graph.n_nodes
    rank = np.empty(n_nodes, dtype=np.int64)
    rank[order] = np.arange(n_nodes)
    rows = rank[np.repeat(np.arange(n_nodes), graph.degrees)]
    columns = rank[graph.indices]
    upward = rows < columns
    keys = np.sort(rows[upward] * n_nodes + columns[upward])
    starts = np.zeros(n_nodes + 1, dtype=np.int64)
    np.cumsum(np.bincount(keys // max(n_nodes, 1), minlength=n_nodes), out=starts[1:])
    return keys, starts


def _wedges(graph: SimpleGraph) -> int:
    """Return the number of pairs that `triangles_per_node` would test."""
    order = np.lexsort((np.arange(graph.n_nodes), graph.degrees))
    _, starts = _oriented_edges(graph, order)
    out = np.diff(starts)
    return int((out * (out - 1) // 2).sum())


def _estimated(graph: SimpleGraph, triples: FloatVector, seed: int) -> ClusteringCoefficients:
    generator = np.random.default_rng(seed)
    centres = generator.choice(graph.n_nodes, size=_SAMPLES, p=triples / triples.sum())
    inner = np.flatnonzero(triples > 0)
    uniform = inner[generator.integers(len(inner), size=_SAMPLES)]
    local = _share_closed(graph, uniform, generator) * len(inner) / graph.n_nodes
    return ClusteringCoefficients(_share_closed(graph, centres, generator), local, None, False)


def _share_closed(graph: SimpleGraph, centres: IntVector, generator: np.random.Generator) -> float:
    """The share of closed ones among triples with the given centres and two random neighbours of each."""
    degrees = graph.degrees[centres]
    first = generator.integers(degrees)
    second = (first + 1 + generator.integers(degrees - 1)) % degrees
    ends = [graph.indices[graph.indptr[centres] + place] for place in (first, second)]
    edges = np.repeat(np.arange(graph.n_nodes), graph.degrees) * graph.n_nodes + graph.indices
    wanted = ends[0] * graph.n_nodes + ends[1]
    at = np.minimum(np.searchsorted(edges, wanted), len(edges) - 1)
    return float(np.mean(edges[at] == wanted))
