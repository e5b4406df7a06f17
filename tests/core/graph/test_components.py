"""Connected components: those that a search from each node finds."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest

from hirag_dist.core.graph.csr import component_labels


@pytest.mark.parametrize("n_edges", [0, 40, 90, 400])
def test_components_are_numbered_by_their_lowest_node(n_edges: int) -> None:
    edges = np.random.default_rng(n_edges).integers(0, 100, (n_edges, 2), np.int32)
    graph = nx.Graph()
    graph.add_nodes_from(range(100))
    graph.add_edges_from(edges.tolist())
    labels = np.empty(100, np.int64)
    for number, nodes in enumerate(sorted(nx.connected_components(graph), key=min)):
        labels[list(nodes)] = number
    assert component_labels(edges[:, 0], edges[:, 1], 100).tolist() == labels.tolist()
