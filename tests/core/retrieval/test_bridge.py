"""Eq. 14 and 16 against the same written as loops over dictionaries. Vectors hold small integers: sums are exact."""

from __future__ import annotations

import numpy as np
import pytest

from hirag_dist.core.retrieval.bridge import bridge_relations, key_entities
from tests.core.retrieval.toy_levels import Toy, random_toy, slow_top


@pytest.mark.parametrize("limit", [1, 2, 10])
def test_key_entities_follow_the_communities_and_keep_the_first_occurrence(limit: int) -> None:
    """Eq. 14, in order, without duplicates."""
    for seed in range(40):
        toy = random_toy(seed)
        query = np.random.default_rng(seed).integers(-2, 3, 4).astype(np.float32)
        order = np.random.default_rng(seed).permutation(len(toy.communities))[:4].tolist()
        expected: dict[int, float] = {}
        for community in order:
            scores = {row: float(toy.vectors[row] @ query) for row in toy.communities[community][1]}
            for row in slow_top(scores, limit):
                expected.setdefault(row, scores[row])
        assert key_entities(toy.index(), order, toy.vectors, query, limit) == list(expected.items())


def test_bridge_relations_are_all_triples_among_the_path_nodes() -> None:
    """Eq. 16, parallel relations too."""
    for seed in range(120):
        toy = random_toy(seed)
        graph, parallel = toy.graph()
        rng = np.random.default_rng(seed)
        nodes = rng.integers(0, toy.n_rows, int(rng.integers(0, 12))).tolist()  # unsorted, with repetitions
        expected = [at for at, (a, b) in enumerate(toy.relations) if a != b and a in nodes and b in nodes]
        assert bridge_relations(graph, parallel, nodes) == expected


def test_bridge_relations_of_hubs_are_found() -> None:
    """Two hubs, rows 0 and 500, joined to each other and to everything else; the path visits both and row 999."""
    n_rows = 1000
    relations = [(0, row) for row in range(1, n_rows)] + [(row, 500) for row in range(1, n_rows) if row != 500]
    toy = Toy(n_rows, relations, [1.0] * len(relations), [], [], np.zeros((n_rows, 1), np.float32))
    graph, parallel = toy.graph()
    found = [relations[at] for at in bridge_relations(graph, parallel, [999, 500, 0])]
    assert found == [(0, 500), (0, 999), (999, 500)]
    assert bridge_relations(graph, parallel, [999]) == []
    assert bridge_relations(graph, parallel, []) == []
