"""Leiden: no move that would help is left, groups do not see each other, and nothing but the seed decides."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys

import networkx as nx
import numpy as np
import pytest

from hirag_dist.core.graph.leiden import leiden
from tests.core.graphs import csr, order_keys


def weighted(seed: int, n_nodes: int = 40) -> nx.Graph:
    graph = nx.barabasi_albert_graph(n_nodes, 3, seed=seed)
    random = np.random.default_rng(seed)
    for _, _, data in graph.edges(data=True):
        data["weight"] = float(random.geometric(0.3))
    return graph


def whole(graph: nx.Graph) -> np.ndarray:
    return np.zeros(graph.number_of_nodes(), np.int64)


def sets(labels: np.ndarray) -> list[set[int]]:
    return [set(np.flatnonzero(labels == label).tolist()) for label in range(int(labels.max()) + 1)]


@pytest.mark.parametrize("resolution", [0.5, 1.0, 3.0])
@pytest.mark.parametrize("seed", range(2))
def test_no_move_of_one_node_would_help(seed: int, resolution: float) -> None:
    graph = weighted(seed)
    labels = leiden(csr(graph), whole(graph), resolution, order_keys(len(graph), seed))
    assert sorted(set(labels.tolist())) == list(range(int(labels.max()) + 1))

    def quality(labels: np.ndarray) -> float:
        parts = [part for part in sets(labels) if part]
        return float(nx.community.modularity(graph, parts, resolution=resolution))

    best = quality(labels)
    for node in graph:
        for label in {*labels[list(graph[node])].tolist(), int(labels.max()) + 1}:
            moved = labels.copy()
            moved[node] = label
            assert quality(moved) <= best + 1e-4  # what the last round may have left
    assert all(nx.is_connected(graph.subgraph(part)) for part in sets(labels))


def test_each_group_is_parted_as_if_it_were_alone() -> None:
    graph = weighted(2, 120)
    groups = np.arange(120) % 3 - 1
    keys = order_keys(120, 5)
    labels = leiden(csr(graph), groups, 1.0, keys)
    assert (labels[groups == -1] == -1).all()
    seen: set[int] = set()
    for group in (0, 1):
        nodes = np.flatnonzero(groups == group)
        part = nx.convert_node_labels_to_integers(graph.subgraph(nodes.tolist()), ordering="sorted")
        alone = leiden(csr(part), whole(part), 1.0, keys[nodes])
        here = labels[nodes]
        assert {frozenset(nodes[list(members)].tolist()) for members in sets(alone)} == {
            frozenset(nodes[here == label].tolist()) for label in np.unique(here)
        }
        assert not seen & set(here.tolist())
        seen |= set(here.tolist())


def digest(seed: int) -> str:
    graph = weighted(3, 400)
    return hashlib.sha256(leiden(csr(graph), whole(graph), 1.0, order_keys(400, seed)).tobytes()).hexdigest()


@pytest.mark.integration
def test_another_process_with_another_hash_seed_gives_the_same() -> None:
    found = subprocess.run(
        [sys.executable, "-c", "from tests.core.graph.test_leiden import digest; print(digest(9))"],
        env=os.environ | {"PYTHONHASHSEED": "77", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.strip() == digest(9) != digest(10)
