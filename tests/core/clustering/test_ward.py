"""Starts from a tree of merges: the groups of a slower, obvious version."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.cluster.hierarchy import ward
from sklearn.metrics import adjusted_rand_score

from hirag_dist.core.clustering.ward import MAX_LEAVES, cut_height, row_tree, ward_tree
from tests.core.planted_rows import Rows, blobs


def chosen(rows: Rows, target_size: int, n_cells: int = 1) -> int:
    """Clusters over all cells, where rows lie in cells by turns."""
    trees = [row_tree(rows[first::n_cells]) for first in range(n_cells)]
    heights = np.concatenate([tree.heights for tree in trees])
    height = cut_height(heights, np.ones(len(heights)), n_cells, len(rows), target_size, rows.shape[1])
    return sum(int(tree.labels(height).max()) + 1 for tree in trees)


@pytest.mark.parametrize("n_dims", [2, 64])
def test_the_number_of_distinct_groups_is_found_within_a_factor_of_two(n_dims: int) -> None:
    assert chosen(blobs(30, 20, n_dims, seed=n_dims, spread=0.02)[0], 20) == 30


@pytest.mark.parametrize("n_dims", [2, 16])
@pytest.mark.parametrize("n_rows", [100, 1500])
def test_rows_without_groups_are_divided_by_the_target_size(n_dims: int, n_rows: int) -> None:
    for seed in range(2):
        rows = np.random.default_rng(seed).normal(size=(n_rows, n_dims)).astype(np.float32)
        assert chosen(rows, 20) == n_rows / 20


def test_trees_of_several_cells_are_cut_at_one_height() -> None:
    """Each of four cells has rows of all 30 groups: by itself it would be divided into 600 / 4 / 5 clusters."""
    rows = blobs(30, 20, 8, seed=1, spread=0.02)[0]
    assert chosen(rows, 5, n_cells=4) == 120


@pytest.mark.parametrize("n_rows", [1, 50])
def test_copies_and_few_rows_are_one_cluster(n_rows: int) -> None:
    assert chosen(np.ones((n_rows, 3), np.float32), 20) == 1
    assert chosen(np.arange(3 * n_rows, dtype=np.float32).reshape(-1, 3), 200) == 1


@pytest.mark.parametrize(("steepest", "expected"), [(2.4, 31), (2.8, 31), (4.5, 50)])
def test_groups_that_are_not_distinct_are_cut_between_rise_and_steepest_place(steepest: float, expected: int) -> None:
    """The slope exceeds its limit, 1.5, from 20 clusters on and is steepest at 50; 30 clusters are usual."""
    numbers = np.arange(1, 601)
    slopes = np.where((numbers < 20) | (numbers > 50), 0.6, np.interp(numbers, [20, 50], [1.6, steepest]))
    heights = np.exp(-np.cumsum(slopes * np.diff(np.log(numbers), prepend=0)))[:-1]
    height = cut_height(heights, np.ones(len(heights)), 1, 600, 20, 64)
    assert np.count_nonzero(heights > height) + 1 == expected


NORMAL = np.random.default_rng(6).normal(size=(150, 7)).astype(np.float32)
TIES = np.random.default_rng(4).integers(0, 3, (60, 2)).astype(np.float32)  # many copies, and equal distances


@pytest.mark.parametrize(
    "rows", [NORMAL, NORMAL[:2], TIES, np.zeros((9, 4), np.float32)], ids=["normal", "two", "ties", "copies"]
)
def test_trees_are_scipys_to_the_last_bit(rows: Rows) -> None:
    assert np.array_equal(ward_tree(rows), ward(rows))


def test_more_rows_than_leaves_are_merged_in_two_steps() -> None:
    """Groups that are apart are found, whether or not a part cuts through them, and weigh as much as their rows."""
    rows, labels = blobs(40, MAX_LEAVES // 30, 5, seed=2, spread=0.2)
    tree = row_tree(rows)
    assert len(tree.merges) <= MAX_LEAVES - 1 < len(rows) - 1
    assert adjusted_rand_score(labels, tree.cut(40)) == 1
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
