"""Agreement of overlapping clusters, by cases worked by hand."""

from __future__ import annotations

from math import log2
from pathlib import Path

import numpy as np
import pytest

from benchmarks.agreement import agreement, members
from benchmarks.planted import plant


def sets(n_rows: int, *clusters: list[int]) -> object:
    numbers = np.concatenate([np.full(len(rows), cluster) for cluster, rows in enumerate(clusters)])
    return members(numbers, np.concatenate(clusters), n_rows)


def test_equal_sets_agree_wholly_also_where_they_overlap() -> None:
    both = sets(6, [0, 1, 2], [2, 3], [4, 5])
    found = agreement(both, sets(6, [4, 5], [0, 1, 2], [2, 3]))
    assert found.f1 == pytest.approx(1)
    assert found.nmi == pytest.approx(1)


def test_halves_of_a_cluster() -> None:
    """Of {0,1,2,3}, two halves were found and {4…7} is right: F1 is 2·2/(2+4) for a half."""
    found = agreement(sets(8, [0, 1], [2, 3], [4, 5, 6, 7]), sets(8, [0, 1, 2, 3], [4, 5, 6, 7]))
    assert found.f1 == pytest.approx(((2 / 3 + 2 / 3 + 1) / 3 + (2 / 3 + 1) / 2) / 2)


def test_mutual_information_of_halves() -> None:
    """H of two in eight is h(1/4), of four 1 bit. A half is what it is, given its whole: joint entropy over the parts
    2/8 (both), 2/8 (the whole alone), 4/8 (neither) = 1.5 bits, so 0.5 bits remain of the half, 1.5 − h(1/4) of the
    whole.
    """
    quarter = -0.25 * log2(0.25) - 0.75 * log2(0.75)
    found = agreement(sets(8, [0, 1], [2, 3], [4, 5, 6, 7]), sets(8, [0, 1, 2, 3], [4, 5, 6, 7]))
    mine, theirs = 2 * quarter + 1, 2.0
    # {4…7} is known from {0…3} as well as from itself; the halves are known from either whole alike
    information = (2 * (quarter - 0.5) + 1 + 1 + 1) / 2
    best_of_first = 1 - (1.5 - quarter)
    information = (2 * (quarter - 0.5) + 1 + best_of_first + 1) / 2
    assert found.nmi == pytest.approx(information / max(mine, theirs))


def test_clusters_without_a_common_member_share_nothing() -> None:
    found = agreement(sets(9, [0, 1, 2]), sets(9, [3, 4, 5]))
    assert found.f1 == 0
    assert found.nmi == 0


def test_planted_clusters_are_what_was_asked_for(tmp_path: Path) -> None:
    planted = plant(tmp_path, 3000, 12, seed=1)
    assert planted.vectors.shape == (3000, 12)
    assert isinstance(planted.vectors, np.memmap)
    assert np.linalg.norm(planted.vectors, axis=1) == pytest.approx(1, abs=1e-5)
    assert set(planted.rows.tolist()) == set(range(3000))
    in_two = (np.bincount(planted.rows) == 2).mean()
    assert 0.1 < in_two < 0.16
    sizes = np.bincount(planted.clusters)
    assert sizes.max() > 3 * np.median(sizes), "a heavy tail"
