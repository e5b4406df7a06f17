"""Clusters that are made again because a layer is less compact than one clustered from nothing."""

from __future__ import annotations

import numpy as np

from hirag_dist.core.clustering.anchored import loose_clusters, row_cosines
from hirag_dist.core.drift import compactness

AXES = np.eye(4, dtype=np.float32)
ROWS = np.repeat(AXES, 5, axis=0)
TRUE = np.repeat(np.arange(4), 5)


def test_clusters_as_compact_as_the_shadow_stay() -> None:
    assert not loose_clusters(ROWS, TRUE, TRUE, 4).any()


def test_the_cluster_that_holds_two_groups_is_loose() -> None:
    labels = np.array([0, 0, 0, 2])[TRUE // 1]
    np.testing.assert_array_equal(loose_clusters(ROWS, labels, TRUE, 3), [True, False, False])


def test_a_cluster_more_compact_than_in_the_shadow_stays() -> None:
    labels = np.array([0, 1, 2, 2])[TRUE]
    shadow = np.array([0, 0, 1, 2])[TRUE]
    loose = loose_clusters(ROWS, labels, shadow, 3)
    assert not loose.any()  # as compact on the whole
    worse = np.array([0, 1, 1, 1])[TRUE]
    np.testing.assert_array_equal(loose_clusters(ROWS, worse, shadow, 2), [False, True])


def test_cosines_add_up_to_the_compactness() -> None:
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((200, 8)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    labels = rng.integers(0, 9, 200)
    np.testing.assert_allclose(row_cosines(rows, labels).mean(), compactness(rows, labels), rtol=1e-6)
