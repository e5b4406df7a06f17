"""Measures of an undirected graph: its simple form, components, triangles and clustering coefficients.

All are plain functions on numpy arrays; a node is a row number.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hirag_dist.core.graph.csr import component_labels, distinct
from hirag_dist.core.numba_jit import compiled_apart
from hirag_dist.types import IntVector


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
        triangles: number of triangles.
    """

    transitivity: float
    average_local: float
    triangles: int


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


def triangles_per_node(graph: SimpleGraph) -> IntVector:
    """Return (n_nodes,) the number of triangles that each node is part of.

    Edges point from the lower to the higher degree, so that a hub with many neighbours costs no more than the square
    root of the number of edges.
    """
    order = np.lexsort((np.arange(graph.n_nodes), graph.degrees))
    rank = np.empty(graph.n_nodes, np.int64)
    rank[order] = np.arange(graph.n_nodes)
    rows, columns = rank[np.repeat(np.arange(graph.n_nodes), graph.degrees)], rank[graph.indices]
    rows, columns = rows[rows < columns], columns[rows < columns]
    indptr = np.zeros(graph.n_nodes + 1, np.int64)
    np.cumsum(np.bincount(rows, minlength=graph.n_nodes), out=indptr[1:])
    result: IntVector = _triangles(indptr, columns[np.argsort(rows, kind="stable")])[rank]
    return result


@compiled_apart
def _triangles(indptr: NDArray[np.int64], indices: NDArray[np.int64]) -> NDArray[np.int64]:
    """Count the triangles of each node of a graph whose edges point from the lower to the higher number."""
    n_nodes = len(indptr) - 1
    counts = np.zeros(n_nodes, np.int64)
    seen_from = np.full(n_nodes, -1, np.int64)  # the last node that the node is a neighbour of
    for low in range(n_nodes):
        for edge in range(indptr[low], indptr[low + 1]):
            seen_from[indices[edge]] = low
        for edge in range(indptr[low], indptr[low + 1]):
            middle = indices[edge]
            for other in range(indptr[middle], indptr[middle + 1]):
                high = indices[other]
                if seen_from[high] == low:
                    counts[low] += 1
                    counts[middle] += 1
                    counts[high] += 1
    return counts


def clustering(graph: SimpleGraph) -> ClusteringCoefficients:
    """Return the clustering coefficients of a graph, as `simple_graph` makes it.

    Paper: Eq. 18 (the global coefficient, closed triples over all triples), and the mean of the local ones.
    """
    triples = graph.degrees * (graph.degrees - 1) // 2
    n_triples = int(triples.sum())
    if not n_triples:
        return ClusteringCoefficients(0.0, 0.0, 0)
    triangles = triangles_per_node(graph)
    local = np.divide(triangles, triples, out=np.zeros(graph.n_nodes), where=triples > 0)
    closed = int(triangles.sum())  # a triangle is three closed triples, one around each corner
    return ClusteringCoefficients(closed / n_triples, float(local.mean()), closed // 3)
