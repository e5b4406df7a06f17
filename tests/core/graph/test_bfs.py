"""Both ways to count hops, against scipy, wherever their work is cut."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.sparse.csgraph import shortest_path

from hirag_dist.core.graph.bfs import frontier_hops, hop_distances
from hirag_dist.types import CsrGraph, IntVector


def graph_of(sources: IntVector, targets: IntVector, n_nodes: int) -> tuple[CsrGraph, csr_array]:
    ends = np.concatenate([sources, targets]), np.concatenate([targets, sources])
    matrix = csr_array((np.ones(len(ends[0]), np.float32), ends), shape=(n_nodes, n_nodes))
    matrix.sum_duplicates()
    matrix.sort_indices()
    rows = np.zeros(matrix.nnz, np.int32)
    return CsrGraph(matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32), matrix.data, rows), matrix


def heavy_tailed(n_nodes: int, n_edges: int, seed: int) -> tuple[CsrGraph, csr_array]:
    """A few hubs, many nodes of one or two edges, some of none, in several parts."""
    random = np.random.default_rng(seed)
    heads = (n_nodes * random.random(n_edges) ** 3).astype(np.int64)
    return graph_of(heads, random.integers(0, n_nodes, n_edges), n_nodes)


@pytest.mark.parametrize("n_sources", [1, 64, 130])
def test_hops_are_scipys_on_either_side_of_a_word(n_sources: int) -> None:
    graph, matrix = heavy_tailed(400, 380, seed=n_sources)
    sources = np.random.default_rng(1).integers(0, 400, n_sources)
    expected = shortest_path(matrix, unweighted=True, indices=sources)
    expected[np.isinf(expected)] = -1
    assert np.array_equal(hop_distances(graph, sources), expected)
    assert np.array_equal(frontier_hops(np, graph, sources), expected)


@pytest.mark.parametrize("most_entries", [1, 7, 1000])
def test_a_frontier_may_be_expanded_in_parts(most_entries: int) -> None:
    graph, _ = heavy_tailed(120, 200, seed=3)
    sources = np.arange(0, 120, 5)
    assert np.array_equal(frontier_hops(np, graph, sources, most_entries), hop_distances(graph, sources))


def test_a_long_path_is_walked_to_its_end() -> None:
    graph, _ = graph_of(np.arange(2_999), np.arange(1, 3_000), 3_000)
    assert hop_distances(graph, np.array([0, 2_999]))[:, [0, 1_500, 2_999]].tolist() == [
        [0, 1500, 2999],
        [2999, 1499, 0],
    ]
    assert frontier_hops(np, graph, np.array([10]))[0, [0, 10, 2_999]].tolist() == [10, 0, 2989]
