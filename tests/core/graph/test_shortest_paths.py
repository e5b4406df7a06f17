"""Shortest paths against all shortest paths written out, with the three tie rules applied to the list."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest

from hirag_dist.core.arrays import all_at_once
from hirag_dist.core.graph.shortest_paths import PathFinder
from tests.core.graphs import best_path, csr


def weighted(rng: np.random.Generator, graph: nx.Graph, n_weights: int) -> nx.Graph:
    """Return the graph with rows in no natural order and few different weights."""
    found = nx.Graph()
    found.add_nodes_from(range(len(graph)))
    rows = dict(zip(graph, rng.permutation(len(graph)).tolist(), strict=True))
    found.add_weighted_edges_from((rows[a], rows[b], rng.integers(1, n_weights + 1) / 2) for a, b in graph.edges)
    return found


def check(finder: PathFinder, graph: nx.Graph, source: int, target: int) -> None:
    assert all_at_once(finder.chain_steps([source, target])) == [best_path(graph, source, target)]
    assert not finder._work.seen.any(), "what a search noted does not reach the next"


@pytest.mark.parametrize("n_weights", [1, 3])
@pytest.mark.parametrize("share", [0.08, 0.15, 0.7])
def test_random_graphs_agree_with_brute_force_in_both_directions(share: float, n_weights: int) -> None:
    rng = np.random.default_rng([round(share * 100), n_weights])
    for _ in range(10):
        shape = nx.gnp_random_graph(int(rng.integers(2, 17)), share, seed=int(rng.integers(1000)))
        graph = weighted(rng, shape, n_weights)
        finder = PathFinder(csr(graph))
        for source, target in rng.integers(0, len(graph), (6, 2)).tolist():
            check(finder, graph, source, target)


@pytest.mark.parametrize(
    "shape",
    [nx.grid_2d_graph(5, 6), nx.hypercube_graph(4), nx.complete_multipartite_graph(3, 4, 3, 4)],
    ids=["grid", "hypercube", "layers"],
)
def test_graphs_with_many_equal_paths_agree_with_brute_force(shape: nx.Graph) -> None:
    rng = np.random.default_rng(7)
    graph = weighted(rng, shape, 3)
    finder = PathFinder(csr(graph))
    for source, target in rng.integers(0, len(graph), (40, 2)).tolist():
        check(finder, graph, source, target)


def test_the_neighbours_of_a_hub_are_found_by_the_other_end() -> None:
    """Too many to look through: the lowest is taken of the few nodes two hops from the target, 2, 5, 3, 4 in turn.

    The hub 0 has no edge to 2, and a weak one to 3.
    """
    graph = nx.empty_graph(410)
    edges = [(9, 7, 2), (9, 8, 2), (7, 2, 2), (7, 5, 2), (8, 3, 2), (8, 4, 2), (0, 3, 1), (0, 4, 2), (0, 5, 2)]
    graph.add_weighted_edges_from([*edges, *((0, leaf, 2) for leaf in range(10, 410))])
    finder = PathFinder(csr(graph))
    assert best_path(graph, 0, 9) == [0, 4, 8, 9]
    for ends in ((0, 9), (9, 0)):
        check(finder, graph, *ends)
