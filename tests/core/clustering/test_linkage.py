"""Trees of merges and their cuts: those of scipy, to the last bit."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.cluster.hierarchy import fcluster, linkage, ward
from scipy.spatial.distance import pdist

from hirag_dist.core.clustering.linkage import complete_tree, labels_below, ward_tree
from hirag_dist.types import FloatMatrix


def rows_of(kind: str) -> FloatMatrix:
    random = np.random.default_rng(len(kind))
    if kind == "ties":
        return random.integers(0, 3, (60, 2)).astype(np.float32)  # many copies, and equal distances
    if kind == "copies":
        return np.zeros((9, 4), np.float32)
    return random.normal(size=(2 if kind == "two" else 150, 7)).astype(np.float32)


@pytest.mark.parametrize("kind", ["normal", "ties", "copies", "two"])
def test_trees_and_cuts_are_scipys(kind: str) -> None:
    rows = rows_of(kind)
    tree = ward_tree(rows)
    assert np.array_equal(tree, ward(pdist(rows)))
    assert np.array_equal(complete_tree(pdist(rows)), linkage(pdist(rows), "complete"))
    for height in (-1.0, *tree[:, 2]):
        assert np.array_equal(labels_below(tree, height), fcluster(tree, height, "distance") - 1), height


def test_one_row() -> None:
    tree = ward_tree(np.ones((1, 3), np.float32))
    assert tree.shape == (0, 4)
    assert labels_below(tree, 1.0).tolist() == [0]
