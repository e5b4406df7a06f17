"""Trees of merges by Ward's criterion over any number of rows, and the mixtures that EM starts from.

Ward's criterion is the hard-assignment likelihood of spherical components with one variance, so cutting its tree gives
EM a start near a good optimum for every number of components. Starts drawn at random put two means into one group and
none into another, which EM does not repair; the loss grows with the number of components.

The trees are scipy's to the last bit. They are not made by scipy because its rows cannot stand for several each, which
the upper tree of a large layer needs. Nearest-neighbour chains (Murtagh 1983; Müllner 2011, section 3.2) find the
merges in time quadratic in the rows. `compute.cells` does the same on a GPU.

The heights of the merges give the number of clusters. Vectors of entities form groups within groups, and seldom one
scale on which groups are distinct; then the size that a cluster should have decides. Where groups are distinct, the
heights drop at their number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hirag_dist.core.arrays import compiled
from hirag_dist.core.clustering.kmeans import labelled_sums
from hirag_dist.types import FloatMatrix, FloatVector, IntVector

_WINDOW = 2**0.25  # ratio of numbers of clusters over which a slope is measured
_MIN_HEIGHT = 1e-9  # share of the highest merge: rows closer together count as copies


def cut_height(
    heights: FloatVector, weights: FloatVector, n_roots: float, n_rows: int, target_size: int, n_dims: int
) -> float:
    """Return the height at which to cut the trees of a layer: merges above it are undone.

    The number of clusters k is n_rows / target_size, unless the slope −d log h / d log k of the merge heights h(k)
    exceeds 1 + 4 / √n_dims somewhere between half and twice that number. Then it is the geometric mean of the steepest
    number and the one from which on the slope exceeds this limit, or, where the slope exceeds twice the limit, as
    between distinct groups, the one at the largest drop near the steepest place. Of rows without groups
    the slope is 1/2 + 1/n_dims: k clusters of n/k rows each are k^(−1/n_dims) apart, and Ward's height is that distance
    times the root of the size. It varies the more, the fewer dimensions there are, since the variance of a squared
    distance relative to its mean is 2/n_dims.

    Args:
        heights: (n_merges,) of all trees, in any order.
        weights: (n_merges,) clusters that undoing each merge adds: one, or less where rows are not at home.
        n_roots: clusters where no merge is undone.
    """
    usual = n_rows / target_size
    order = np.argsort(-heights, kind="stable")
    falling, numbers = heights[order], n_roots + np.cumsum(weights[order])  # the number with a merge undone
    if not len(falling) or falling[0] <= 0:
        return height_of(heights, weights, n_roots, usual)
    logs = np.log(np.maximum(falling, _MIN_HEIGHT * falling[0]))
    inside = np.flatnonzero((numbers >= usual / 2) & (numbers <= 2 * usual) & (numbers < numbers[-1]))
    if not len(inside):
        return height_of(heights, weights, n_roots, usual)
    places, half = np.log(numbers - weights[order] / 2), np.log(_WINDOW) / 2
    above, below = (np.interp(np.log(numbers[inside]) + step, places, logs) for step in (-half, half))
    slopes = (above - below) / (2 * half)
    limit = 1 + 4 / np.sqrt(n_dims)
    steepest = int(slopes.argmax())
    if slopes[steepest] <= limit:
        return height_of(heights, weights, n_roots, usual)
    if slopes[steepest] > 2 * limit:
        near = inside[np.abs(np.log(numbers[inside] / numbers[inside[steepest]])) <= half]
        return float(falling[1 + near[(logs[near] - logs[near + 1]).argmax()]])
    flat = np.flatnonzero(slopes[:steepest] <= limit)
    first = int(flat[-1]) + 1 if len(flat) else 0
    return height_of(heights, weights, n_roots, float(np.sqrt(numbers[inside[first]] * numbers[inside[steepest]])))


def height_of(heights: FloatVector, weights: FloatVector, n_roots: float, n_clusters: float) -> float:
    """Return the height that cuts trees into so many clusters over all, or fewer where heights are equal.

    Args:
        heights: (n_merges,) of all trees, in any order.
        weights: (n_merges,) as of `cut_height`.
    """
    order = np.argsort(-heights, kind="stable")
    n_undone = int(np.searchsorted(n_roots + np.cumsum(weights[order]), n_clusters + 0.5, side="right"))
    return float(heights[order[n_undone]]) if n_undone < len(order) else -1.0


MAX_LEAVES = 2_048  # of which all pairs are compared: 34 MB
_PART_ROWS = 1_024

Tree = NDArray[np.float64]
"""(n - 1, 4) merges by height, as scipy's: two nodes, the lower one first, their distance and the rows below. Node
i < n is a row, node n + i the result of merge i."""

TreesOf = Callable[[Sequence[FloatMatrix], Sequence[IntVector] | None], Sequence[Tree]]
"""Sets of rows, and the number of rows that each of them stands for, None for one each → the tree of each set."""


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
    """Return the tree of (n, d) float32 rows, finite, n ≥ 1."""
    return row_trees([rows], cpu_trees)[0]


def row_trees(groups: Sequence[FloatMatrix], trees_of: TreesOf) -> list[RowTree]:
    """Return the tree of each group of rows; one of more than `MAX_LEAVES` rows is made in two steps.

    Parts of near rows are merged up to `MAX_LEAVES` leaves, by one height for all parts, and then the leaves.

    Args:
        groups: (n, d) float32 rows each, finite, n ≥ 1.
        trees_of: makes the trees of sets of at most `MAX_LEAVES` rows.
    """
    parts = [
        list(_halved(rows, np.arange(len(rows)))) if len(rows) > MAX_LEAVES else [np.arange(len(rows))]
        for rows in groups
    ]
    below = iter(trees_of([rows[part] for rows, inside in zip(groups, parts, strict=True) for part in inside], None))
    trees = [[next(below) for _ in inside] for inside in parts]
    leaves = [
        _leaves(inside, of_parts) if len(inside) > 1 else inside[0]
        for inside, of_parts in zip(parts, trees, strict=True)
    ]
    large = [number for number, inside in enumerate(parts) if len(inside) > 1]
    sums = [labelled_sums(groups[number], leaves[number], int(leaves[number].max()) + 1) for number in large]
    means: list[Any] = [each.sums / each.counts[:, None] for each in sums]
    for number, tree in zip(large, trees_of(means, [each.counts for each in sums]), strict=True):
        trees[number] = [tree]
    return [RowTree(of_rows, tree) for of_rows, (tree,) in zip(leaves, trees, strict=True)]


def _leaves(parts: Sequence[IntVector], trees: Sequence[Tree]) -> IntVector:
    """Return the leaf of each row of a group: its cluster where the trees of all parts are cut at one height."""
    heights = np.concatenate([tree[:, 2] for tree in trees])
    height = height_of(heights, np.ones(len(heights)), len(trees), MAX_LEAVES - 1)
    leaves = np.empty(sum(map(len, parts)), np.int64)
    n_leaves = 0
    for part, tree in zip(parts, trees, strict=True):
        leaves[part] = labels_below(tree, height) + n_leaves
        n_leaves = int(leaves[part].max()) + 1
    return leaves


def cpu_trees(groups: Sequence[FloatMatrix | FloatVector], sizes: Sequence[IntVector] | None) -> list[Tree]:
    """Return the tree of each group by `ward_tree`."""
    return [ward_tree(rows, None if sizes is None else sizes[number]) for number, rows in enumerate(groups)]


def ward_tree(rows: FloatMatrix | FloatVector, sizes: IntVector | None = None) -> Tree:
    """Return the tree by Ward's criterion. Takes 8 n² bytes and time that grows with n² d.

    Args:
        rows: (n, d), finite, n ≥ 1.
        sizes: (n,) rows that each stands for as their mean; None for one each.
    """
    from scipy.spatial.distance import pdist, squareform  # not at the top: a large import

    apart = squareform(pdist(rows)) if len(rows) > 1 else np.zeros((1, 1))
    if sizes is None:
        sizes = np.ones(len(rows), np.int64)
    else:
        apart *= np.sqrt(2 * np.outer(sizes, sizes) / np.add.outer(sizes, sizes))
    return tree_of_places(_chained_merges(apart, sizes.copy()))


def tree_of_places(merges: NDArray[np.float64]) -> Tree:
    """Return the tree of (n − 1, 3) merges of two places and a distance: a group has the place of one of its rows."""
    tree: Tree = _named_nodes(merges[np.argsort(merges[:, 2], kind="stable")])
    return tree


def labels_below(tree: Tree, height: float) -> IntVector:
    """Return (n,) the group of each row, from 0 on, of a tree whose merges above a height are undone."""
    if not len(tree):
        return np.zeros(1, np.int64)
    from scipy.cluster.hierarchy import fcluster  # not at the top: a large import

    labels: IntVector = fcluster(tree, height, "distance").astype(np.int64) - 1
    return labels


@compiled
def _chained_merges(apart: NDArray[np.float64], sizes: IntVector) -> Any:
    """Return (n - 1, 3) merged places and distances, in any order. `apart` and `sizes` are overwritten.

    A group has the place of its last row; of ties the group before in the chain wins, then the lowest place.
    """
    n_rows = len(apart)
    merges = np.empty((n_rows - 1, 3))
    chain = np.empty(n_rows, np.int64)
    length = 0
    lowest = 0
    for step in range(n_rows - 1):
        if length == 0:
            while sizes[lowest] == 0:  # merged into a later place
                lowest += 1
            chain[0] = lowest
            length = 1
        while True:
            last = chain[length - 1]
            before = chain[length - 2] if length > 1 else -1
            nearest = before
            least = apart[last, before] if length > 1 else np.inf
            for other in range(n_rows):
                if sizes[other] > 0 and other != last and apart[last, other] < least:
                    nearest, least = other, apart[last, other]
            if nearest == before:
                break
            chain[length] = nearest
            length += 1
        length -= 2
        gone, kept = min(last, nearest), max(last, nearest)
        n_gone, n_kept = sizes[gone], sizes[kept]
        merges[step, 0], merges[step, 1], merges[step, 2] = gone, kept, least
        sizes[gone], sizes[kept] = 0, n_gone + n_kept
        for other in range(n_rows):
            n_other = sizes[other]
            if n_other == 0 or other == kept:
                continue
            to_gone, to_kept = apart[other, gone], apart[other, kept]
            share = 1.0 / (n_gone + n_kept + n_other)
            joined = np.sqrt(
                (n_other + n_gone) * share * to_gone * to_gone
                + (n_other + n_kept) * share * to_kept * to_kept
                - n_other * share * least * least
            )
            apart[other, kept] = apart[kept, other] = joined
    return merges


@compiled
def _named_nodes(merges: NDArray[np.float64]) -> Any:
    """Return merges of places, ascending by distance, as a tree."""
    n_rows = len(merges) + 1
    tree = np.empty((n_rows - 1, 4))
    parents = np.arange(2 * n_rows - 1)
    sizes = np.ones(2 * n_rows - 1, np.int64)
    for at in range(n_rows - 1):
        made = n_rows + at
        one, other = int(merges[at, 0]), int(merges[at, 1])
        while parents[one] != one:
            parents[one] = parents[parents[one]]  # path halving
            one = parents[one]
        while parents[other] != other:
            parents[other] = parents[parents[other]]
            other = parents[other]
        parents[one] = parents[other] = made
        sizes[made] = sizes[one] + sizes[other]
        tree[at, 0], tree[at, 1] = min(one, other), max(one, other)
        tree[at, 2], tree[at, 3] = merges[at, 2], sizes[made]
    return tree


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
