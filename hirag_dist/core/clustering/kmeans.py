"""k-means (Lloyd) from greedy k-means++ starts, for rows in one place or in shards.

The hard-assignment likelihood of spherical components with one variance rises in every round, as in expectation
maximisation, but a round takes a product and a maximum in place of exponentials of all pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import reduce
from operator import add
from typing import Any

import numpy as np

from hirag_dist.core.array_module import finite_products, to_numpy
from hirag_dist.types import FloatMatrix, GroupSums, IntVector

BLOCK_ROWS = 1_024
MAX_ROUNDS = 15
_MIN_FALL = 1e-3  # of the squared distances, relative: a round that lowers them by less is the last
_START_ROWS = 32_768  # sample that k-means++ draws from, and
_START_ROWS_A_MEAN = 16


def fit_means(
    xp: Any, rows: FloatMatrix, k: int, seed: int, block_rows: int = BLOCK_ROWS
) -> tuple[FloatMatrix, GroupSums]:
    """Return (k, d) float32 means of rows that one device holds, and the sums of the rows by their nearest mean.

    Args:
        xp: numpy or CuPy.
        rows: (n, d) float32, finite, of mean variance 1 or near it; n ≥ k.
        k: means, at least 1.
        seed: of the start; the rest is deterministic.
        block_rows: as of `nearest`.
    """
    held = xp.asarray(rows)
    start = start_means(rows, k, seed)
    return lloyd(lambda means: labelled_sums(rows, nearest(xp, held, means, block_rows), k), start)


@finite_products
def nearest(xp: Any, rows: Any, means: FloatMatrix, block_rows: int = BLOCK_ROWS) -> IntVector:
    """Return (n,) int64 the nearest mean of each row, the first of equally near ones.

    Args:
        xp: numpy or CuPy.
        rows: (n, d) float32 of `xp` or numpy, finite; may be memory-mapped.
        means: (k, d) float32.
        block_rows: of a product. It decides the last bits.
    """
    held = xp.asarray(means.T)
    halves = xp.asarray(0.5 * np.einsum("ij,ij->i", means, means))
    labels = np.empty(len(rows), np.int64)
    for first in range(0, len(rows), block_rows):
        closeness = xp.asarray(rows[first : first + block_rows]) @ held
        closeness -= halves
        labels[first : first + block_rows] = to_numpy(xp, closeness.argmax(axis=1))
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


def total_sums(parts: Iterable[GroupSums]) -> GroupSums:
    """Return the sums of shards, from first to last: the order decides the last bits.

    Raises:
        TypeError: there are none.
    """
    return reduce(add, parts)


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
    group far from the others is left without one.

    Args:
        rows: (n, d) float32, finite, n ≥ k ≥ 1.
        k: that are returned.
        seed: of the draws.
    """
    rng = np.random.default_rng(seed)
    size = max(_START_ROWS, _START_ROWS_A_MEAN * k)
    if len(rows) > size:
        rows = rows[np.sort(rng.choice(len(rows), size, replace=False, shuffle=False))]
    chosen = [int(rng.integers(len(rows)))]
    norms = np.einsum("ij,ij->i", rows, rows)
    near = np.maximum(norms - 2.0 * (rows @ rows[chosen[0]]) + norms[chosen[0]], 0.0)
    near[chosen[0]] = 0.0
    n_drawn = 2 + int(np.log(k))
    drawn_rows = np.arange(n_drawn)
    for _ in range(1, k):
        heights = np.cumsum(near, dtype=np.float64)
        if heights[-1] <= 0:  # only copies of the chosen rows remain
            chosen.append(int(np.setdiff1d(np.arange(len(rows)), chosen)[0]))
            continue
        drawn = np.searchsorted(heights, rng.random(n_drawn) * heights[-1], side="right")
        distances = rows[drawn] @ rows.T
        distances *= -2.0
        distances += norms
        distances += norms[drawn][:, None]
        np.clip(distances, 0.0, near, out=distances)
        distances[drawn_rows, drawn] = 0.0
        best = int(distances.sum(axis=1, dtype=np.float64).argmin())
        chosen.append(int(drawn[best]))
        near = distances[best]
    return rows[chosen]
