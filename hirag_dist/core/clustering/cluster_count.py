"""The number of clusters of a layer, by the heights of its trees of merges.

Vectors of entities form groups within groups, and seldom one scale on which groups are distinct; then the size that a
cluster should have decides. Where groups are distinct, the heights of Ward's merges drop at their number.
"""

from __future__ import annotations

import numpy as np

from hirag_dist.types import FloatVector

_WINDOW = 2**0.25  # ratio of numbers of clusters over which a slope is measured
_MIN_HEIGHT = 1e-9  # of the highest merge: rows closer together count as copies


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
        n_rows: of the layer.
        target_size: members that a cluster should have.
        n_dims: of the rows.
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
        n_roots: likewise.
        n_clusters: wanted.
    """
    order = np.argsort(-heights, kind="stable")
    n_undone = int(np.searchsorted(n_roots + np.cumsum(weights[order]), n_clusters + 0.5, side="right"))
    return float(heights[order[n_undone]]) if n_undone < len(order) else -1.0
