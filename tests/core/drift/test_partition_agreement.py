"""Agreement of groupings: worked by hand, and against scikit-learn on random ones."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from hirag_dist.core.drift.measures import (
    adjusted_rand_index,
    best_jaccard,
    groups_of,
    groups_of_labels,
    weighted_jaccard,
)


def test_best_jaccard_of_overlapping_groups() -> None:
    # {0, 1, 2}, {2, 3} against {0, 1}, {2, 3, 4}: 2/3 and 2/3; the first also shares one of five with the second
    groups = groups_of(np.array([0, 0, 0, 1, 1]), np.array([0, 1, 2, 2, 3]))
    others = groups_of(np.array([0, 0, 1, 1, 1]), np.array([0, 1, 2, 3, 4]))
    assert best_jaccard(groups, others).tolist() == [2 / 3, 2 / 3]
    assert best_jaccard(others, groups).tolist() == [2 / 3, 2 / 3]


def test_a_group_that_shares_no_row_counts_zero_by_its_size() -> None:
    groups, others = groups_of_labels(np.array([0, 0, 0, 1])), groups_of_labels(np.array([0, 0, 0, -1]))
    assert best_jaccard(groups, others).tolist() == [1.0, 0.0]
    assert weighted_jaccard(groups, others) == 0.75
    assert weighted_jaccard(others, groups) == 1.0


def test_equal_groupings_agree_whatever_their_labels_are() -> None:
    first, second = np.array([0, 1, 1, 2, -1]), np.array([2, 0, 0, 1, -1])
    assert weighted_jaccard(groups_of_labels(first), groups_of_labels(second)) == 1.0
    assert adjusted_rand_index(first, second) == 1.0


def test_no_groups() -> None:
    none, some = groups_of_labels(np.full(3, -1)), groups_of_labels(np.array([0, 0, 0]))
    assert weighted_jaccard(none, none) == 1.0
    assert weighted_jaccard(none, some) == 0.0
    assert weighted_jaccard(some, none) == 0.0
    assert adjusted_rand_index(np.zeros(0, np.int64), np.zeros(0, np.int64)) == 1.0


@pytest.mark.parametrize("seed", range(5))
def test_adjusted_rand_index_is_that_of_scikit_learn(seed: int) -> None:
    random = np.random.default_rng(seed)
    first, second = random.integers(0, 5, 200), random.integers(0, 7, 200)
    second[:100] = first[:100] * 100  # numbers without a row
    assert adjusted_rand_index(first, second) == pytest.approx(adjusted_rand_score(first, second), abs=1e-12)
