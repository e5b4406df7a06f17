"""Anchored clusters: joins, new clusters, and clusters that are dissolved."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hirag_dist.core.clustering.anchored import (
    AnchoredMemberships,
    PreviousClusters,
    anchored_clusters,
    loose_clusters,
)

DIM = 16
SIZE = 10


def around(axis: int, n_rows: int, seed: int = 0, spread: float = 0.2) -> np.ndarray:
    """Return unit vectors near one axis."""
    rng = np.random.default_rng([axis, n_rows, seed])
    rows = np.eye(DIM)[axis] + spread * rng.standard_normal((n_rows, DIM)) / np.sqrt(DIM)
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def one_group(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return np.zeros(len(rows), np.int64), rows, np.ones(len(rows), np.float32)


def before(labels: list[int], n_clusters: int, **given: Any) -> PreviousClusters:
    """Return clusters of the first rows: row i in cluster labels[i]."""
    sizes = np.bincount(labels, minlength=n_clusters)
    values = {"n_lost": np.zeros(n_clusters, np.int64), "n_founded": sizes, "n_turned": np.zeros(n_clusters, np.int64)}
    values |= {name: np.array(value, np.int64) for name, value in given.items()}
    owners, rows = np.array(labels, np.int64), np.arange(len(labels))
    return PreviousClusters(owners, rows, np.ones(len(labels), np.float32), n_clusters, **values)


def placed(
    vectors: np.ndarray,
    clusters: PreviousClusters,
    max_size: int = 40,
    hints: dict[int, int] | None = None,
    **given: Any,
) -> AnchoredMemberships:
    hinted = np.full(len(vectors), -1, np.int64)
    for row, cluster in (hints or {}).items():
        hinted[row] = cluster
    moved = np.zeros(len(vectors), bool)
    moved[given.pop("moved", [])] = True
    return anchored_clusters(vectors, clusters, moved, hinted, max_size, given.pop("group", one_group), **given)


def home(found: AnchoredMemberships, row: int) -> int:
    """Return the previous cluster that a row is in now, −1 for a new one."""
    (cluster,) = found.clusters[(found.rows == row) & found.best]
    return int(found.previous[cluster])


TWO = [0] * SIZE + [1] * SIZE
ROWS_OF_TWO = np.concatenate([around(0, SIZE), around(1, SIZE)])


def test_without_a_change_everything_stays() -> None:
    found = placed(ROWS_OF_TWO, before(TWO, 2))
    np.testing.assert_array_equal(found.previous, [0, 1])
    np.testing.assert_array_equal(found.clusters, TWO)
    np.testing.assert_array_equal(found.n_turned, [0, 0])


def test_a_row_joins_the_cluster_that_accepts_it_and_others_form_a_new_one() -> None:
    vectors = np.concatenate([ROWS_OF_TWO, around(1, 1, 7, 0.05), around(5, 4)])
    found = placed(vectors, before(TWO, 2))
    assert home(found, 2 * SIZE) == 1
    assert {home(found, row) for row in range(2 * SIZE + 1, len(vectors))} == {-1}
    np.testing.assert_array_equal(found.n_turned, [0, 1, 0])


def test_a_hint_wins_over_the_nearest_cluster_where_the_row_is_near_enough() -> None:
    vectors = np.concatenate([around(0, SIZE, spread=1.5), around(1, SIZE, spread=1.5)])
    vectors[:SIZE] += np.eye(DIM, dtype=np.float32)[1]  # both clusters reach the place between them
    vectors[SIZE:] += np.eye(DIM, dtype=np.float32)[0]
    between = np.eye(DIM, dtype=np.float32)[:2].sum(axis=0, keepdims=True) + 0.02 * np.eye(DIM, dtype=np.float32)[:1]
    vectors = np.concatenate([vectors, between])
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    nearest = home(placed(vectors, before(TWO, 2)), 20)
    assert nearest >= 0
    assert home(placed(vectors, before(TWO, 2), hints={20: 1 - nearest}), 20) == 1 - nearest


def test_a_moved_member_leaves_a_cluster_that_does_not_accept_it_any_more() -> None:
    vectors = ROWS_OF_TWO.copy()
    vectors[0] = around(1, 1, 7, 0.05)
    found = placed(vectors, before(TWO, 2), moved=[0])
    assert home(found, 0) == 1
    np.testing.assert_array_equal(found.n_turned, [1, 1])


@pytest.mark.parametrize(("n_lost", "stays"), [(6, True), (7, False)])
def test_a_cluster_that_lost_most_members_is_dissolved(n_lost: int, stays: bool) -> None:
    labels = [0] * (SIZE - n_lost) + [1] * SIZE
    vectors = np.concatenate([around(0, SIZE - n_lost), around(1, SIZE)])
    found = placed(vectors, before(labels, 2, n_lost=[n_lost, 0], n_founded=[SIZE, SIZE]))
    assert (0 in found.previous) == stays


def test_a_cluster_that_has_exchanged_as_many_members_as_it_was_founded_with_is_dissolved() -> None:
    found = placed(ROWS_OF_TWO, before(TWO, 2, n_lost=[1, 0], n_turned=[SIZE, SIZE]))
    np.testing.assert_array_equal(found.previous, [1, -1])  # the other one was not touched


def test_loose_clusters_are_dissolved() -> None:
    found = placed(ROWS_OF_TWO, before(TWO, 2), loose=np.array([True, False]))
    np.testing.assert_array_equal(found.previous, [1, -1])


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000), n_new=st.integers(0, 30), max_size=st.integers(4, 20))
def test_every_row_is_in_a_cluster_and_has_one_best(seed: int, n_new: int, max_size: int) -> None:
    rng = np.random.default_rng(seed)
    n_clusters = int(rng.integers(1, 5))
    labels = rng.integers(0, n_clusters, int(rng.integers(1, 40))).tolist()
    vectors = rng.standard_normal((len(labels) + n_new, DIM)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    lost = rng.integers(0, 4, n_clusters)
    clusters = before(labels, n_clusters, n_lost=lost, n_founded=np.bincount(labels, minlength=n_clusters) + lost)
    moved = np.flatnonzero(rng.random(len(labels)) < 0.2)
    found = placed(vectors, clusters, max_size, moved=moved)
    again = placed(vectors, clusters, max_size, moved=moved)
    np.testing.assert_array_equal(found.clusters, again.clusters)
    assert sorted(found.rows[found.best].tolist()) == list(range(len(vectors)))
    assert len(np.unique(found.clusters)) == found.clusters.max() + 1 == len(found.previous)
    sizes = np.bincount(found.clusters)
    before_sizes = np.bincount(labels, minlength=n_clusters)
    limits = np.where(found.previous >= 0, np.maximum(before_sizes[found.previous], max_size), max_size)
    assert (sizes <= np.where(found.previous >= 0, limits, len(vectors))).all()
    kept = found.previous[found.previous >= 0]
    assert len(set(kept.tolist())) == len(kept)


AXES = np.eye(4, dtype=np.float32)
ROWS = np.repeat(AXES, 5, axis=0)
TRUE = np.repeat(np.arange(4), 5)


def test_the_cluster_that_holds_two_groups_is_loose() -> None:
    labels = np.array([0, 0, 0, 2])[TRUE]
    np.testing.assert_array_equal(loose_clusters(ROWS, labels, TRUE, 3), [True, False, False])


def test_a_cluster_more_compact_than_in_the_shadow_stays() -> None:
    labels = np.array([0, 1, 2, 2])[TRUE]
    shadow = np.array([0, 0, 1, 2])[TRUE]
    loose = loose_clusters(ROWS, labels, shadow, 3)
    assert not loose.any()  # as compact on the whole
    worse = np.array([0, 1, 1, 1])[TRUE]
    np.testing.assert_array_equal(loose_clusters(ROWS, worse, shadow, 2), [False, True])
