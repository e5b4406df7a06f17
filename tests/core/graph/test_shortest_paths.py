"""Shortest paths against all shortest paths written out, with the three tie rules applied to the list."""

from __future__ import annotations

from itertools import pairwise

import networkx as nx
import numpy as np
import pytest

from hirag_dist.core.graph.shortest_paths import PathFinder
from tests.core.graphs import Edges, csr_of


def brute_force(n_nodes: int, edges: Edges, source: int, target: int) -> list[int]:
    graph = nx.Graph()
    graph.add_nodes_from(range(n_nodes))
    graph.add_weighted_edges_from(edges)
    if source == target:
        return [source]
    if not nx.has_path(graph, source, target):
        return []

    def smallest_weight(path: list[int]) -> float:
        return min(graph[a][b]["weight"] for a, b in pairwise(path))

    return min(nx.all_shortest_paths(graph, source, target), key=lambda path: (-smallest_weight(path), path))


def random_edges(rng: np.random.Generator, n_nodes: int, share: float, n_weights: int) -> Edges:
    return [
        (a, b, float(rng.integers(1, n_weights + 1)) / 2)
        for a in range(n_nodes)
        for b in range(a + 1, n_nodes)
        if rng.random() < share
    ]


@pytest.mark.parametrize("n_weights", [1, 3])
@pytest.mark.parametrize("share", [0.08, 0.15, 0.7])
def test_random_graphs_agree_with_brute_force_in_both_directions(share: float, n_weights: int) -> None:
    rng = np.random.default_rng([round(share * 100), n_weights])
    for _ in range(10):
        n_nodes = int(rng.integers(2, 17))
        edges = random_edges(rng, n_nodes, share, n_weights)
        finder = PathFinder(csr_of(n_nodes, edges))
        for _ in range(6):
            source, target = (int(row) for row in rng.integers(0, n_nodes, 2))
            assert finder.path(source, target) == brute_force(n_nodes, edges, source, target)
            assert not finder._work.seen.any()


@pytest.mark.parametrize("shape", ["grid", "hypercube", "layers"])
def test_graphs_with_many_equal_paths_agree_with_brute_force(shape: str) -> None:
    graph = {
        "grid": lambda: nx.convert_node_labels_to_integers(nx.grid_2d_graph(5, 6)),
        "hypercube": lambda: nx.convert_node_labels_to_integers(nx.hypercube_graph(4)),
        "layers": lambda: nx.complete_multipartite_graph(3, 4, 3, 4),
    }[shape]()
    rng = np.random.default_rng(7)
    rename = rng.permutation(len(graph))  # rows in no natural order
    edges = [(int(rename[a]), int(rename[b]), float(rng.integers(1, 4))) for a, b in graph.edges]
    finder = PathFinder(csr_of(len(graph), edges))
    for _ in range(40):
        source, target = (int(row) for row in rng.integers(0, len(graph), 2))
        assert finder.path(source, target) == brute_force(len(graph), edges, source, target)
    assert not finder._work.seen.any()


def test_the_neighbours_of_a_hub_are_found_by_the_other_end() -> None:
    """Too many to look through: the lowest is taken of the few nodes two hops from the target, 2, 5, 3, 4 in turn.

    The hub 0 has no edge to 2, and a weak one to 3.
    """
    edges = [(9, 7, 2), (9, 8, 2), (7, 2, 2), (7, 5, 2), (8, 3, 2), (8, 4, 2), (0, 3, 1), (0, 4, 2), (0, 5, 2)]
    edges += [(0, leaf, 2) for leaf in range(10, 410)]
    finder = PathFinder(csr_of(410, edges))
    assert finder.path(0, 9) == brute_force(410, edges, 0, 9) == [0, 4, 8, 9]
    assert finder.path(9, 0) == brute_force(410, edges, 9, 0)
    assert not finder._work.seen.any()
