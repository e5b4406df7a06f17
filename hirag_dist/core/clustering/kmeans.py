"""k-means (Lloyd) from greedy k-means++ starts, for rows in one place or in shards.

The hard-assignment likelihood of spherical components with one variance rises in every round, as in expectation
maximisation, but a round takes a product and a maximum in place of exponentials of all pairs.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hirag_dist.core.arrays import finite_products
from hirag_dist.types import FloatMatrix, FloatVector, GroupSums, IntVector

BLOCK_ROWS = 1_024
MAX_ROUNDS = 15
_MIN_FALL = 1e-3  # of the squared distances, relative: a round that lowers them by less is the last
_START_ROWS = 32_768  # sample that k-means++ draws from, and
_START_ROWS_A_MEAN = 16
DRAW_UNITS = float(1 << 40)  # whole units that the largest squared distance is divided into
SMALLEST = 1e-300


@finite_products
def nearest(rows: FloatMatrix, means: FloatMatrix, block_rows: int = BLOCK_ROWS) -> IntVector:
    """Return (n,) int64 the nearest mean of each row, the first of equally near ones.

    Args:
        rows: (n, d) float32, finite; may be memory-mapped.
        means: (k, d) float32.
        block_rows: rows of a product. It decides the last bits.
    """
    halves = 0.5 * np.einsum("ij,ij->i", means, means)
    labels = np.empty(len(rows), np.int64)
    for first in range(0, len(rows), block_rows):
        closeness = rows[first : first + block_rows] @ means.T
        closeness -= halves
        labels[first : first + block_rows] = closeness.argmax(axis=1)
    return labels


def labelled_sums(rows: FloatMatrix, labels: IntVector, n_groups: int) -> GroupSums:
    """Return the sums of rows by label, added up in float64 in the order of the rows.

    Args:
        rows: (n, d) float32, finite, n ≥ 1.
        labels: (n,) below `n_groups`.
        n_groups: some may be empty.
    """
    counts = np.bincount(labels, minlength=n_groups)
    order = np.argsort(labels, kind="stable")
    some = np.flatnonzero(counts)
    firsts = np.concatenate([[0], np.cumsum(counts[some])[:-1]])
    sums = np.zeros((n_groups, rows.shape[1]))
    sums[some] = np.add.reduceat(rows[order].astype(np.float64), firsts, axis=0)
    return GroupSums(counts, sums, float(np.einsum("ij,ij->", rows, rows, dtype=np.float64)))


def lloyd(
    sums_of: Callable[[FloatMatrix], GroupSums], means: FloatMatrix, max_rounds: int = MAX_ROUNDS
) -> tuple[FloatMatrix, GroupSums]:
    """Repeat assignment and means until the squared distances hardly fall; return the means and the last sums.

    Args:
        sums_of: returns the sums of all rows by their nearest mean, with shards added up in shard order.
        means: (k, d) float32 to start from.
        max_rounds: at least 1.
    """
    before = np.inf
    for _ in range(max_rounds):
        sums = sums_of(means)
        means = sums.means(means)
        if sums.spread >= (1 - _MIN_FALL) * before:
            break
        before = sums.spread
    return means, sums


@finite_products
def start_means(rows: FloatMatrix, k: int, seed: int) -> FloatMatrix:
    """Return k rows drawn by greedy k-means++ from a sample.

    Each is the best of a few rows, drawn with probability proportional to the squared distance to those before, so no
    group far from the others is left without one. The distances are added up as whole numbers, in any order.

    Args:
        rows: (n, d) float32, finite, n ≥ k ≥ 1.
    """
    rows, first, draws = start_draws(rows, k, seed)
    norms = (rows * rows).sum(axis=1)
    chosen = [first]
    near = np.maximum(norms - 2.0 * (rows @ rows[first]) + norms[first], 0.0)
    near[first] = 0.0
    for draw in draws:
        units = near.astype(np.float64) / max(float(near.max()), SMALLEST) * DRAW_UNITS
        heights = np.cumsum(units.astype(np.int64))
        targets = (draw * heights[-1]).astype(np.int64)
        drawn = np.minimum(np.searchsorted(heights, targets, side="right"), len(rows) - 1)  # all 0: copies remain
        distances = rows[drawn] @ rows.T
        distances *= -2.0
        distances += norms
        distances += norms[drawn][:, None]
        distances = np.minimum(np.maximum(distances, 0.0), near)
        distances[np.arange(len(draw)), drawn] = 0.0
        best = int(distances.sum(axis=1, dtype=np.float64).argmin())
        chosen.append(int(drawn[best]))
        near = distances[best]
    return rows[chosen]


def start_draws(rows: FloatMatrix, k: int, seed: int) -> tuple[FloatMatrix, int, FloatVector]:
    """Return what greedy k-means++ draws with: the sample of rows, the first one chosen, and numbers in [0, 1).

    Args:
        rows: (n, d) float32, n ≥ k ≥ 1; may be memory-mapped.

    Returns:
        (m, d) rows, the place of the first mean, and the (k − 1, n_drawn) numbers of the others.
    """
    rng = np.random.default_rng(seed)
    size = max(_START_ROWS, _START_ROWS_A_MEAN * k)
    if len(rows) > size:
        rows = rows[np.sort(rng.choice(len(rows), size, replace=False, shuffle=False))]
    first = int(rng.integers(len(rows)))
    return rows, first, rng.random((k - 1, 2 + int(np.log(k))))
