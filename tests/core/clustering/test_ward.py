"""Starts from a tree of merges: the groups of a slower, obvious version."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.cluster.hierarchy import ward
from sklearn.metrics import adjusted_rand_score

from hirag_dist.core.clustering.ward import MAX_LEAVES, cpu_trees, labels_below, merged_trees, row_tree, ward_tree
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


@pytest.mark.parametrize("batch_elements", [0, 30_000, 1 << 20])
def test_trees_by_rounds_in_batches_are_those_by_chains(batch_elements: int) -> None:
    """Sets of many sizes, padded or not; the rows of some stand for several."""
    random = np.random.default_rng(3)
    groups = [random.normal(size=(size, 5)).astype(np.float32) for size in (1, 2, 3, 40, 41, 150, 90)]
    for sizes in (None, [random.integers(1, 30, len(rows)) for rows in groups]):
        found = merged_trees(np, groups, sizes, batch_elements)
        for tree, expected in zip(found, cpu_trees(groups, sizes), strict=True):
            assert tree[:, [0, 1, 3]].tolist() == expected[:, [0, 1, 3]].tolist()
            assert tree[:, 2] == pytest.approx(expected[:, 2], rel=1e-9)


@pytest.mark.parametrize("kind", ["ties", "copies", "two"])
def test_ties_are_merged_at_the_same_heights(kind: str) -> None:
    (found,) = merged_trees(np, [rows_of(kind)], None, 1 << 20)
    copies = ward_tree(rows_of(kind))[:, 2] < 1e-6
    assert found[copies, 2] == pytest.approx(0, abs=1e-6)
    assert len(np.unique(labels_below(found, 1e-6))) == len(np.unique(rows_of(kind), axis=0))
    assert found[-1, 3] == len(rows_of(kind))


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
