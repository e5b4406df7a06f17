"""Agglomerative clustering of all pairs: trees of merges by Ward's criterion or complete linkage, and cuts of them.

Nearest-neighbour chains (Murtagh 1983; Müllner 2011, section 3.2) find the merges in time quadratic in the rows. Trees
have the form of scipy's, and the same bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hirag_dist.core.numba_jit import compiled
from hirag_dist.types import FloatMatrix, FloatVector, IntVector

Tree = NDArray[np.float64]
"""(n - 1, 4) merges by height: two nodes, the lower one first, their distance and the rows below. Node i < n is a row,
node n + i the result of merge i."""


def ward_tree(rows: FloatMatrix | FloatVector, sizes: IntVector | None = None) -> Tree:
    """Return the tree by Ward's criterion. Takes 8 n² bytes and time that grows with n² d.

    Args:
        rows: (n, d), finite, n ≥ 1.
        sizes: (n,) rows that each stands for as their mean; None for one each.
    """
    apart = _pairwise_distances(np.ascontiguousarray(rows.T, np.float64))
    if sizes is None:
        return _tree(apart, np.ones(len(rows), np.int64), is_ward=True)
    apart *= np.sqrt(2 * np.outer(sizes, sizes) / np.add.outer(sizes, sizes))
    return _tree(apart, sizes, is_ward=True)


def complete_tree(distances: NDArray[np.float64]) -> Tree:
    """Return the tree by complete linkage.

    Args:
        distances: (n (n - 1) / 2,) of the pairs (0, 1), (0, 2), …, (n - 2, n - 1), n ≥ 2.
    """
    n_rows = int(np.sqrt(2 * len(distances))) + 1
    apart = np.zeros((n_rows, n_rows))
    apart[np.triu_indices(n_rows, 1)] = distances
    return _tree(apart + apart.T, np.ones(n_rows, np.int64), is_ward=False)


def _tree(apart: NDArray[np.float64], sizes: IntVector, *, is_ward: bool) -> Tree:
    merges = _chained_merges(apart, sizes.copy(), is_ward)
    merges = merges[np.argsort(merges[:, 2], kind="stable")]
    tree: Tree = _named_nodes(merges)
    return tree


def labels_below(tree: Tree, height: float) -> IntVector:
    """Return (n,) the group of each row, from 0 on, of a tree whose merges above a height are undone."""
    labels: IntVector = _labels_below(tree, height)
    return labels


@compiled
def _pairwise_distances(columns: NDArray[np.float64]) -> Any:
    """Return (n, n) distances of the columns of (d, n), added up in the order of d; the inner loop is vectorised."""
    n_dims, n_rows = columns.shape
    apart = np.zeros((n_rows, n_rows))
    for one in range(n_rows):
        squares = apart[one, one + 1 :]
        for at in range(n_dims):
            here, others = columns[at, one], columns[at, one + 1 :]
            for other in range(len(squares)):
                step = here - others[other]
                squares[other] += step * step
        for other in range(len(squares)):
            squares[other] = apart[one + 1 + other, one] = np.sqrt(squares[other])
    return apart


@compiled
def _chained_merges(apart: NDArray[np.float64], sizes: IntVector, is_ward: bool) -> Any:
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
            if is_ward:
                share = 1.0 / (n_gone + n_kept + n_other)
                joined = np.sqrt(
                    (n_other + n_gone) * share * to_gone * to_gone
                    + (n_other + n_kept) * share * to_kept * to_kept
                    - n_other * share * least * least
                )
            else:
                joined = max(to_gone, to_kept)
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
def _labels_below(tree: Tree, height: float) -> Any:
    """Return the groups of the merges up to a height, numbered from the root down.

    Of the two sides of a merge those that are merges themselves come first.
    """
    n_rows = len(tree) + 1
    groups = np.ones(2 * n_rows - 1, np.int64)  # below each node
    for at in range(n_rows - 1):
        if tree[at, 2] > height:
            groups[n_rows + at] = groups[int(tree[at, 0])] + groups[int(tree[at, 1])]
    labels = np.zeros(2 * n_rows - 1, np.int64)  # the lowest below each node
    for at in range(n_rows - 2, -1, -1):
        low, high = int(tree[at, 0]), int(tree[at, 1])
        label = labels[n_rows + at]
        labels[low] = labels[high] = label
        if tree[at, 2] <= height:
            continue
        if low < n_rows <= high:
            labels[low] += groups[high]
        else:
            labels[high] += groups[low]
    return labels[:n_rows]
