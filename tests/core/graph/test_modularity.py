"""Modularity: worked by hand, and against networkx."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pyarrow as pa
import pytest

from hirag_dist.core.graph.csr import build_graph
from hirag_dist.core.graph.hierarchy_metrics import modularity
from hirag_dist.types import CsrGraph


def csr(graph: nx.Graph) -> CsrGraph:
    rows = [(f"{a:03}", f"{b:03}", float(weight)) for a, b, weight in graph.edges(data="weight", default=1.0)]
    sources, targets, weights = zip(*rows, strict=True) if rows else ((), (), ())
    columns = [pa.array(sources, pa.string()), pa.array(targets, pa.string()), pa.array(weights, pa.float64())]
    ids = pa.chunked_array([[f"{node:03}" for node in sorted(graph)]], pa.string())
    return build_graph(ids, pa.table(columns, names=["source_id", "target_id", "weight"]))


def test_two_triangles_with_a_bridge() -> None:
    # 7 edges; each triangle has 3 of them and a degree of 7: 2 · (3/7 − 1/4)
    graph = csr(nx.Graph([(0, 1), (0, 2), (1, 2), (3, 4), (3, 5), (4, 5), (2, 3)]))
    halves = np.array([0, 0, 0, 1, 1, 1])
    assert modularity(graph, halves) == pytest.approx(5 / 14)
    assert modularity(graph, 1 - halves) == modularity(graph, halves), "labels do not matter"
    assert modularity(graph, np.zeros(6, np.int64)) == 0.0
    assert modularity(graph, np.full(6, -1)) == modularity(graph, np.arange(6)), "a node without a label is alone"


@pytest.mark.parametrize("resolution", [0.5, 1.0, 2.0])
def test_it_is_that_of_networkx(resolution: float) -> None:
    random = np.random.default_rng(1)
    graph = nx.gnm_random_graph(40, 120, seed=2)
    for _, _, data in graph.edges(data=True):
        data["weight"] = float(random.integers(1, 9))
    labels = random.integers(0, 6, 40)
    parts = [set(np.flatnonzero(labels == label)) for label in np.unique(labels)]
    expected = nx.community.modularity(graph, parts, resolution=resolution)
    assert modularity(csr(graph), labels, resolution) == pytest.approx(expected, abs=1e-12)


def test_a_graph_without_edges() -> None:
    assert modularity(csr(nx.empty_graph(3)), np.arange(3)) == 0.0
