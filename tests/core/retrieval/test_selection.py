"""Choice of records by what they add, against the same written as loops. Sums of quarters are exact."""

from __future__ import annotations

import numpy as np
import pytest

from hirag_dist.core.access.labels import PARTIAL, VISIBLE
from hirag_dist.core.retrieval.selection import (
    REPETITION,
    covering_order,
    marginal_order,
    similarities_among,
    visible_vectors,
)
from hirag_dist.types import AccessFilter

SEEDS = range(20)


def symmetric(rng: np.random.Generator, n: int) -> np.ndarray:
    table = rng.integers(-2, 5, (n, n)).astype(np.float32) / 4
    return np.triu(table) + np.triu(table, 1).T


@pytest.mark.parametrize("seed", SEEDS)
def test_entities_by_maximal_marginal_relevance(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(0, 12))
    scores, among = rng.integers(-2, 5, n).astype(np.float32) / 4, symmetric(rng, n)
    for limit in (1, 3, 20):
        expected: list[int] = []
        for _ in range(min(limit, n)):

            def worth(at: int) -> float:
                nearest = max((max(float(among[other, at]), 0.0) for other in expected), default=0.0)  # noqa: B023
                return float(scores[at]) - REPETITION * nearest

            expected.append(min((at for at in range(n) if at not in expected), key=lambda at: (-worth(at), at)))
        assert marginal_order(scores, among, limit) == expected


def coverage(chosen: list[int], weights: list[float], among: np.ndarray, held: list[list[int]]) -> float:
    own = [at for community in chosen for at in held[community]]
    return sum(
        weight * max((max(float(among[at, entity]), 0.0) for at in own), default=0.0)
        for entity, weight in enumerate(weights)
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_reports_by_the_coverage_that_they_add_for_each_token(seed: int) -> None:
    """A community is worth the growth of the coverage of all chosen ones."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 9))
    scores, among = rng.integers(0, 5, n).astype(np.float32), symmetric(rng, n)
    held = [rng.choice(n, int(rng.integers(1, n + 1)), replace=False).tolist() for _ in range(int(rng.integers(0, 7)))]
    costs = (2 ** rng.integers(0, 3, len(held))).tolist()
    least = float(scores.min())
    weights = [(float(score) - least) ** 2 for score in scores]
    if not any(weights):
        weights = [1.0] * n
    for limit in (1, 4, 10):
        chosen: list[int] = []
        while len(chosen) < min(limit, len(held)):
            base = coverage(chosen, weights, among, held)

            def gain(at: int) -> float:
                return (coverage([*chosen, at], weights, among, held) - base) / costs[at]  # noqa: B023

            chosen.append(min((at for at in range(len(held)) if at not in chosen), key=lambda at: (-gain(at), at)))
        assert covering_order(scores, among, held, costs, limit) == chosen


def test_coverage_gains_shrink_with_what_is_chosen() -> None:
    """The measure is submodular: a greedy choice has at least 1 − 1/e of the best coverage of as many reports."""
    rng = np.random.default_rng(3)
    for _ in range(30):
        among, weights = symmetric(rng, 6), [1.0] * 6
        held = [[at] for at in range(6)]
        few, more = coverage([0], weights, among, held), coverage([0, 1], weights, among, held)
        with_few, with_more = coverage([0, 2], weights, among, held), coverage([0, 1, 2], weights, among, held)
        assert with_few - few >= with_more - more - 1e-9


def test_what_repeats_comes_last() -> None:
    twins = np.array([[1, 0], [1, 0], [0, 1]], np.float32)
    among = similarities_among(twins)
    assert among.tolist() == (twins @ twins.T).tolist()
    scores = np.array([0.8, 0.8, 0.6], np.float32)
    assert marginal_order(scores, among, 3) == [0, 2, 1]
    assert covering_order(scores, among, [[0], [1], [2]], [5, 5, 5], 2) == [0, 1], "the third has no weight"
    assert covering_order(scores[::-1], among, [[0], [1], [2]], [9, 5, 5], 3) == [1, 2, 0]
    assert similarities_among(np.zeros((0, 4), np.float32)).shape == (0, 0)
    assert covering_order(np.zeros(0, np.float32), np.zeros((0, 0), np.float32), [], [], 5) == []


def test_vectors_of_partially_visible_entities_are_those_of_a_visible_part() -> None:
    """Of entity 1 two of three parts are visible; the third is the nearest to the question and hidden."""
    vectors = np.array([[1, 0], [9, 9], [0, 1]], np.float32)
    parts = np.array([[0, 1], [1, 0], [2, 0]], np.float32)
    none = np.zeros(0, np.int64)
    access = AccessFilter(
        sets=np.array([True, False, False]),
        entity_patterns=np.array([0, 1, 0], np.int32),
        entity_states=np.array([VISIBLE, PARTIAL], np.uint8),
        relation_patterns=none.astype(np.int32),
        relation_states=none.astype(np.uint8),
        part_entities=np.array([1, 1, 1], np.int32),
        part_sets=np.array([0, 0, 1], np.int32),
        part_vectors=parts,
        stated_rows=none.astype(np.int32),
        stated_indptr=np.zeros(1, np.int64),
        statement_sets=none.astype(np.int32),
        statement_strengths=none.astype(np.float64),
    )
    query = np.array([1, 0], np.float32)
    rows = np.array([2, 1, 0])
    assert visible_vectors(vectors, rows, query, None).tolist() == [[0, 1], [9, 9], [1, 0]]
    assert visible_vectors(vectors, rows, query, access).tolist() == [[0, 1], [1, 0], [1, 0]]
    tied = access._replace(part_vectors=np.array([[1, 5], [1, 7], [2, 0]], np.float32))
    assert visible_vectors(vectors, rows, query, tied)[1].tolist() == [1, 5], "the first of equal ones"
