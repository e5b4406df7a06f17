"""Trees of merges by Ward's criterion over any number of rows, and the mixtures that EM starts from.

Ward's criterion is the hard-assignment likelihood of spherical components with one variance, so cutting its tree gives
EM a start near a good optimum for every number of components. Starts drawn at random put two means into one group and
none into another, which EM does not repair; the loss grows with the number of components.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hirag_dist.core.clustering.cluster_count import height_of
from hirag_dist.core.clustering.gaussian_mixture import MIN_VARIANCE, isotropic_mixture
from hirag_dist.core.clustering.linkage import Tree, labels_below, ward_tree
from hirag_dist.core.numba_jit import compiled
from hirag_dist.types import Covariance, FloatMatrix, FloatVector, IntVector, Mixture

MAX_LEAVES = 2_048  # of which all pairs are compared: 34 MB
_PART_ROWS = 1_024


@dataclass(frozen=True, slots=True)
class RowTree:
    """Tree of merges of rows; it pickles.

    Attributes:
        leaves: (n_rows,) int64 leaf of each row. Up to `MAX_LEAVES` rows each is a leaf of its own.
        merges: of the leaves.
    """

    leaves: IntVector
    merges: Tree

    @property
    def heights(self) -> FloatVector:
        """(n_leaves − 1,) heights of the merges, ascending."""
        return self.merges[:, 2]

    def labels(self, height: float) -> IntVector:
        """Return (n_rows,) the cluster of each row, where merges above a height are undone."""
        return labels_below(self.merges, height)[self.leaves]

    def cut(self, n_clusters: int) -> IntVector:
        """Return (n_rows,) the cluster of each row of so many clusters, or of fewer where heights are equal."""
        return self.labels(height_of(self.heights, np.ones(len(self.merges)), 1, n_clusters))

    def weights(self, is_home: NDArray[np.bool_]) -> FloatVector:
        """Return (n_leaves,) the number of clusters that undoing each merge adds, and at the end that of the root.

        A cluster counts by the share of its rows that are at home.

        Args:
            is_home: (n_rows,) bool.
        """
        sizes = np.bincount(self.leaves)
        at_home: FloatVector = np.bincount(self.leaves, is_home).astype(np.float64)
        weights: FloatVector = _weights(self.merges, sizes, at_home)
        return weights


def row_tree(rows: FloatMatrix) -> RowTree:
    """Return the tree of rows in two steps: within parts of near rows up to `MAX_LEAVES` groups, then over the groups.

    The groups of all parts are cut at one height.

    Args:
        rows: (n, d) float32, finite, n ≥ 1.
    """
    if len(rows) <= MAX_LEAVES:
        return RowTree(np.arange(len(rows)), ward_tree(rows))
    parts = list(_halved(rows, np.arange(len(rows))))
    trees = [ward_tree(rows[part]) for part in parts]
    heights = np.concatenate([tree[:, 2] for tree in trees])
    height = height_of(heights, np.ones(len(heights)), len(trees), MAX_LEAVES - 1)
    leaves = np.empty(len(rows), np.int64)
    n_leaves = 0
    for part, tree in zip(parts, trees, strict=True):
        leaves[part] = labels_below(tree, height) + n_leaves
        n_leaves = int(leaves[part].max()) + 1
    means, sizes = _group_means(rows, leaves)
    return RowTree(leaves, ward_tree(means, sizes))


def start_of(rows: FloatMatrix, labels: IntVector, covariance: Covariance) -> Mixture:
    """Return one component for each cluster, with one variance for all.

    Args:
        rows: (n, d) float32, as `standardise` gives them.
        labels: (n,) cluster of each row, from 0 on, none empty.
        covariance: of the mixture.
    """
    n_rows, n_dims = rows.shape
    means, sizes = _group_means(rows, labels)
    apart = float(np.sum((rows - means[labels]) ** 2))
    width = max(apart / (max(n_rows - len(sizes), 1) * n_dims), MIN_VARIANCE)
    return isotropic_mixture(means.astype(np.float32), width, sizes / n_rows, covariance)


@compiled
def _weights(merges: Tree, sizes: IntVector, at_home: FloatVector) -> Any:
    n_leaves = len(sizes)
    rows, homes = np.empty(2 * n_leaves - 1), np.empty(2 * n_leaves - 1)
    rows[:n_leaves], homes[:n_leaves] = sizes, at_home
    weights = np.empty(n_leaves)
    for at in range(n_leaves - 1):
        one, other, made = int(merges[at, 0]), int(merges[at, 1]), n_leaves + at
        rows[made], homes[made] = rows[one] + rows[other], homes[one] + homes[other]
        weights[at] = homes[one] / rows[one] + homes[other] / rows[other] - homes[made] / rows[made]
    weights[n_leaves - 1] = homes[-1] / rows[-1]
    return weights


def _halved(rows: FloatMatrix, numbers: IntVector) -> Iterator[IntVector]:
    """Yield parts of at most `_PART_ROWS` rows, halved at the median of the axis of largest variance."""
    if len(numbers) <= _PART_ROWS:
        yield numbers
        return
    inside = rows[numbers]
    order = np.argsort(inside[:, inside.var(axis=0, dtype=np.float64).argmax()], kind="stable")
    for half in (order[: len(order) // 2], order[len(order) // 2 :]):
        yield from _halved(rows, np.sort(numbers[half]))


def _group_means(rows: FloatMatrix, labels: IntVector) -> tuple[FloatVector, IntVector]:
    """Return (k, d) means and (k,) sizes of groups."""
    sizes = np.bincount(labels)
    order = np.argsort(labels, kind="stable")
    firsts = np.concatenate([[0], np.cumsum(sizes[:-1])])
    sums: FloatVector = np.add.reduceat(rows[order].astype(np.float64), firsts, axis=0)
    return sums / sizes[:, None], sizes
