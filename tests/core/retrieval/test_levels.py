"""Eq. 13 against the same written as loops over dictionaries. Vectors hold small integers: sums are exact."""

from __future__ import annotations

import numpy as np
import pytest

from hirag_dist.core.retrieval.levels import RankedCommunity, ranked_communities
from tests.core.retrieval.toy_levels import Toy, random_toy


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


def test_invert_lists_the_communities_of_a_row_from_coarse_to_fine() -> None:
    """Row 1 is in a leaf of level 2 that is listed first; row 3 is nowhere."""
    toy = Toy(4, [], [], [(2, [1]), (0, [0, 1, 2]), (1, [1, 2])], [0, 0, 0], np.zeros((4, 1), np.float32))
    index = toy.index()
    lists = [index.of[index.of_indptr[row] : index.of_indptr[row + 1]].tolist() for row in range(4)]
    assert lists == [[1], [1, 2, 0], [1, 2], []]
