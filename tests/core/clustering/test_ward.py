"""Starts from a tree of merges: the groups of a slower, obvious version."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.cluster.hierarchy import ward
from sklearn.metrics import adjusted_rand_score

from hirag_dist.core.clustering.ward import MAX_LEAVES, row_tree, ward_tree
from hirag_dist.types import FloatMatrix, IntVector
from tests.core.planted_rows import blobs


def labels_of(rows: FloatMatrix, n_clusters: int) -> IntVector:
    return row_tree(rows).cut(n_clusters)


def rows_of(kind: str) -> FloatMatrix:
    random = np.random.default_rng(len(kind))
    if kind == "ties":
        return random.integers(0, 3, (60, 2)).astype(np.float32)  # many copies, and equal distances
    if kind == "copies":
        return np.zeros((9, 4), np.float32)
    return random.normal(size=(2 if kind == "two" else 150, 7)).astype(np.float32)


@pytest.mark.parametrize("kind", ["normal", "ties", "copies", "two"])
def test_trees_are_scipys_to_the_last_bit(kind: str) -> None:
    assert np.array_equal(ward_tree(rows_of(kind)), ward(rows_of(kind)))


def test_more_rows_than_leaves_are_merged_in_two_steps() -> None:
    """Groups that are apart are found, whether or not a part cuts through them, and weigh as much as their rows."""
    rows, labels = blobs(40, MAX_LEAVES // 30, 5, seed=2, spread=0.2)
    tree = row_tree(rows)
    assert len(tree.merges) <= MAX_LEAVES - 1 < len(rows) - 1
    assert adjusted_rand_score(labels, labels_of(rows, 40)) == 1
    whole = ward_tree(rows)[::-1, 2][:200]
    assert tree.heights[::-1][:200] == pytest.approx(whole, rel=0.05)


def test_a_cluster_counts_by_the_share_of_its_rows_at_home() -> None:
    rows = np.random.default_rng(1).normal(size=(40, 3)).astype(np.float32)
    is_home = np.random.default_rng(2).random(40) < 0.6
    tree = row_tree(rows)
    weights = tree.weights(is_home)
    for n_clusters in (1, 2, 7, 40):
        labels = tree.cut(n_clusters)
        shares = np.bincount(labels, is_home) / np.bincount(labels)
        assert weights[-n_clusters:].sum() == pytest.approx(shares.sum())
    assert tree.weights(np.ones(40, bool)) == pytest.approx(np.ones(40))
