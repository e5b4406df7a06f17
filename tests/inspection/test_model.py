"""Graph measures against networkx and a case worked by hand."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest

from hirag_dist.inspection.model import SimpleGraph, clustering, components, simple_graph, triangles_per_node


def graph_of(edges: list[tuple[int, int]], n_nodes: int) -> SimpleGraph:
    pairs = np.array(edges, dtype=np.int64).reshape(-1, 2)
    return simple_graph(pairs[:, 0], pairs[:, 1], n_nodes)


def random_edges(n_nodes: int, seed: int) -> list[tuple[int, int]]:
    graph = nx.powerlaw_cluster_graph(n_nodes, 4, 0.4, seed=seed)
    return [(int(a), int(b)) for a, b in graph.edges]


def test_a_triangle_with_a_tail_has_three_closed_of_five_triples() -> None:
    # 0-1-2 a triangle, 3 hangs on 2, 4 is alone. Triples: one around 0, one around 1, three around 2; three are closed.
    found = clustering(graph_of([(0, 1), (1, 2), (2, 0), (2, 3)], 5))
    assert found.transitivity == pytest.approx(3 / 5)
    assert found.average_local == pytest.approx((1 + 1 + 1 / 3) / 5)
    assert found.triangles == 1


def test_loops_and_parallel_relations_count_once() -> None:
    graph = graph_of([(0, 1), (1, 0), (0, 1), (2, 2), (1, 2)], 3)
    assert graph.n_edges == 2
    assert graph.degrees.tolist() == [1, 2, 1]


@pytest.mark.parametrize("seed", range(4))
def test_triangles_and_coefficients_agree_with_networkx(seed: int) -> None:
    edges = random_edges(300, seed)
    oracle = nx.Graph(edges)
    oracle.add_nodes_from(range(310))
    graph = graph_of(edges, 310)
    assert triangles_per_node(graph).tolist() == [nx.triangles(oracle)[node] for node in range(310)]
    found = clustering(graph)
    assert found.transitivity == pytest.approx(nx.transitivity(oracle))
    assert found.average_local == pytest.approx(nx.average_clustering(oracle))
    assert components(graph).tolist() == sorted(map(len, nx.connected_components(oracle)), reverse=True)
