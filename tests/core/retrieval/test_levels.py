"""Eq. 12–16 against the same written as loops over dictionaries. Vectors hold small integers: sums are exact."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

from hirag_dist.core.retrieval.levels import (
    CommunityIndex,
    Parallel,
    RankedCommunity,
    bridge_relations,
    invert,
    key_entities,
    ranked_communities,
)
from hirag_dist.core.retrieval.vector_scoring import exact_scores, nearest
from hirag_dist.types import CsrGraph


@dataclass
class Toy:
    """A graph of entity rows, relations (row, row) in any direction, and communities as (level, members)."""

    n_rows: int
    relations: list[tuple[int, int]]
    weights: list[float]
    communities: list[tuple[int, list[int]]]
    ratings: list[float]
    vectors: NDArray[np.float32]

    def index(self) -> CommunityIndex:
        indptr = np.cumsum([0, *(len(members) for _, members in self.communities)]).astype(np.int64)
        members = np.array([row for _, rows in self.communities for row in rows], np.int32)
        levels = np.array([level for level, _ in self.communities], np.int32)
        order = np.arange(len(self.communities))[::-1].copy()  # ids in the opposite order of places
        of_indptr, of = invert(indptr, members, levels, self.n_rows)
        return CommunityIndex(levels, np.array(self.ratings), order, indptr, members, of_indptr, of)

    def graph(self) -> tuple[CsrGraph, Parallel]:
        """The graph with the heaviest relation of each pair, and the others of pairs with several."""
        by_pair: dict[tuple[int, int], list[int]] = {}
        for at, (a, b) in enumerate(self.relations):
            if a != b:
                by_pair.setdefault((min(a, b), max(a, b)), []).append(at)
        entries = []
        others: dict[int, list[int]] = {}
        for (a, b), rows in by_pair.items():
            heaviest = max(rows, key=lambda at: (self.weights[at], -at))
            if len(rows) > 1:
                others[heaviest] = [at for at in rows if at != heaviest]
            total = sum(self.weights[at] for at in rows)
            entries += [(a, b, total, heaviest), (b, a, total, heaviest)]
        entries.sort()
        counts = np.bincount(np.array([entry[0] for entry in entries], np.int64), minlength=self.n_rows)
        graph = CsrGraph(
            np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
            np.array([entry[1] for entry in entries], np.int32),
            np.array([entry[2] for entry in entries], np.float32),
            np.array([entry[3] for entry in entries], np.int32),
        )
        of = sorted(others)
        parallel = Parallel(
            np.array(of, np.int32),
            np.cumsum([0, *(len(others[head]) for head in of)]).astype(np.int64),
            np.array([at for head in of for at in others[head]], np.int32),
        )
        return graph, parallel


def random_toy(seed: int) -> Toy:
    """Two or three nested levels; some leaves end early; many equal similarities and ratings."""
    rng = np.random.default_rng(seed)
    n_rows = int(rng.integers(3, 40))
    relations = [tuple(int(row) for row in rng.integers(0, n_rows, 2)) for _ in range(int(rng.integers(0, 4 * n_rows)))]
    communities: list[tuple[int, list[int]]] = []

    def divide(level: int, rows: NDArray[np.int64]) -> None:
        labels = rng.integers(0, 3, len(rows))
        for label in range(3):
            inside = np.sort(rows[labels == label])
            if len(inside):
                communities.append((level, inside.tolist()))
                if level < 2 and len(inside) > 2 and rng.random() < 0.6:
                    divide(level + 1, inside)

    divide(0, np.arange(n_rows))
    shuffled = [communities[at] for at in rng.permutation(len(communities))]
    vectors = rng.integers(-2, 3, (n_rows, 4)).astype(np.float32)
    weights = [float(rng.integers(1, 4)) for _ in relations]
    ratings = [float(rng.integers(0, 3)) for _ in shuffled]
    return Toy(n_rows, relations, weights, shuffled, ratings, vectors)


def slow_top(scores: dict[int, float], limit: int) -> list[int]:
    return sorted(scores, key=lambda row: (-scores[row], row))[:limit]


def slow_communities(toy: Toy, local: dict[int, float], level: str, limit: int) -> list[RankedCommunity]:
    index = toy.index()
    hits: dict[int, list[float]] = {}
    for row, score in local.items():
        holders = [at for at, (_, members) in enumerate(toy.communities) if row in members]
        holders.sort(key=lambda at: toy.communities[at][0])
        if level == "leaf":
            holders = holders[-1:]
        elif level != "all":
            holders = [at for at in holders if toy.communities[at][0] <= int(level)][-1:]
        for at in holders:
            hits.setdefault(at, []).append(score)
    ranked = sorted(hits, key=lambda at: (-len(hits[at]), -max(hits[at]), -toy.ratings[at], index.order[at]))
    return [RankedCommunity(at, len(hits[at]), max(hits[at])) for at in ranked[:limit]]


@pytest.mark.parametrize("limit", [1, 3, 10, 1000])
def test_the_best_rows_come_first_and_ties_go_by_row(limit: int) -> None:
    """Eq. 12."""
    rng = np.random.default_rng(limit)
    for _ in range(50):
        n_scores = int(rng.integers(1, 60))
        rows = rng.permutation(200)[:n_scores].astype(np.int64)
        scores = rng.integers(0, 5, n_scores).astype(np.float32)
        vectors = np.zeros((200, 1), np.float32)
        vectors[rows, 0] = scores
        found = nearest(vectors, rows, np.ones(1, np.float32), limit)[0].tolist()
        assert found == slow_top(dict(zip(rows.tolist(), scores.tolist(), strict=True)), limit)


def test_no_candidates_give_no_rows() -> None:
    assert len(nearest(np.ones((3, 1), np.float32), np.array([], np.int64), np.ones(1, np.float32), 5)[0]) == 0


@pytest.mark.parametrize("level", ["leaf", "all", "0", "1", "2", "7"])
def test_communities_are_ranked_as_the_slow_version_ranks_them(level: str) -> None:
    """Eq. 13, then hits, best similarity, rating, id."""
    for seed in range(40):
        toy = random_toy(seed)
        rng = np.random.default_rng(seed)
        rows = rng.permutation(toy.n_rows)[: int(rng.integers(1, 12))]
        scores = rng.integers(0, 4, len(rows)).astype(np.float32)
        for limit in (1, 3, 100):
            found = ranked_communities(toy.index(), rows.astype(np.int64), scores, level, limit)
            local = dict(zip(rows.tolist(), scores.tolist(), strict=True))
            assert found == slow_communities(toy, local, level, limit)


def test_all_levels_is_equation_13_to_the_letter() -> None:
    for seed in range(20):
        toy = random_toy(seed)
        found = ranked_communities(toy.index(), np.array([0, 1]), np.array([1, 2], np.float32), "all", 1000)
        touching = {at for at, (_, members) in enumerate(toy.communities) if {0, 1} & set(members)}
        assert {community.community for community in found} == touching


def test_each_tie_of_communities_falls_to_the_next_criterion() -> None:
    """Five singletons of rows 0–4 and a pair {5, 6}: the pair by hits, then similarity, rating, and id from the end."""
    toy = Toy(
        7, [], [], [(0, [row]) for row in range(5)] + [(0, [5, 6])], [0, 0, 5, 5, 0, 0], np.zeros((7, 2), np.float32)
    )
    found = ranked_communities(
        toy.index(), np.arange(7), np.array([0.5, 0.9, 0.5, 0.5, 0.5, 0.1, 0.1], np.float32), "leaf", 9
    )
    assert [community.community for community in found] == [5, 1, 3, 2, 4, 0]


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


def test_invert_lists_the_communities_of_a_row_from_coarse_to_fine() -> None:
    """Row 1 is in a leaf of level 2 that is listed first; row 3 is nowhere."""
    toy = Toy(4, [], [], [(2, [1]), (0, [0, 1, 2]), (1, [1, 2])], [0, 0, 0], np.zeros((4, 1), np.float32))
    index = toy.index()
    lists = [index.of[index.of_indptr[row] : index.of_indptr[row + 1]].tolist() for row in range(4)]
    assert lists == [[1], [1, 2, 0], [1, 2], []]


def test_equal_vectors_have_equal_scores_wherever_they_lie() -> None:
    rng = np.random.default_rng(5)
    vectors = rng.standard_normal((5003, 384)).astype(np.float32)
    vectors[[7, 2500, 5002]] = vectors[0]
    query = rng.standard_normal(384).astype(np.float32)
    rows = np.array([5002, 7, 0, 2500])
    assert len(set(exact_scores(vectors, rows, query).tolist())) == 1
    found, scores = nearest(vectors, rows, query, 3)
    assert found.tolist() == [0, 7, 2500]
    assert np.array_equal(scores, exact_scores(vectors, found, query))
