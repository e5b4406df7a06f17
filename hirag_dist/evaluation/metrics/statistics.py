"""Statistics of evaluations: bootstrap intervals of means, a paired test, and its correction for several pairs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from hirag_dist.types.index_info import NOTHING, Interval


def bootstrap_means(values: ArrayLike, *, n_resamples: int = 10_000, seed: int = 0) -> list[Interval]:
    """Return the mean of each column with its 95 % percentile bootstrap interval, all over the same resamples.

    Rows (questions) are drawn with replacement, all columns of a row together: the interval of the mean of a column of
    differences is the paired one.

    Args:
        values: (n_rows, n_columns); NaN where a column has no value for a row, which then counts for nothing.
        n_resamples: Number of draws.
        seed: Seed of the draws; equal input gives equal intervals.

    Returns:
        (n_columns,) intervals; all NaN for a column without a value. Of one row the interval is the mean itself: it
        says nothing.

    Raises:
        ValueError: values without two dimensions.
    """
    table = np.asarray(values, np.float64)
    if table.ndim != 2:
        raise ValueError(f"values must have two dimensions, got {table.ndim}")
    n_rows, n_columns = table.shape
    known = ~np.isnan(table)
    rows = np.concatenate([np.where(known, table, 0.0), known], axis=1)
    rng = np.random.default_rng(seed)
    draws = (np.bincount(rng.integers(0, n_rows, n_rows), minlength=n_rows) @ rows for _ in range(n_resamples))
    sums = np.stack(list(draws)) if n_rows else np.zeros((n_resamples, 2 * n_columns))
    found = []
    for column in range(n_columns):
        drawn = sums[:, n_columns + column]
        if not drawn.any():
            found.append(NOTHING)
            continue
        means = sums[drawn > 0, column] / drawn[drawn > 0]  # a draw that meets no value of the column has no mean
        low, high = np.quantile(means, [0.025, 0.975])
        found.append(Interval(float(table[known[:, column], column].mean()), float(low), float(high)))
    return found


class SignedRank(NamedTuple):
    """A Wilcoxon signed-rank test: the standardised sum of ranks, positive where the first is larger, and p."""

    z: float
    p: float


def wilcoxon(differences: ArrayLike) -> SignedRank | None:
    """Test whether paired differences are symmetric about zero, by scipy's normal approximation, two-sided.

    Args:
        differences: (n,) first minus second of each pair; NaN and pairs without a difference are left out.

    Returns:
        z = 0 and p = 1 where no pair differs; None without a pair.
    """
    known = np.asarray(differences, np.float64)
    known = known[~np.isnan(known)]
    if not len(known):
        return None
    if not np.any(known):
        return SignedRank(0.0, 1.0)
    from scipy import stats  # not at the top: a large import

    # Of the one-sided test, since that of the two-sided one hides the sign.
    z = float(stats.wilcoxon(known, correction=False, alternative="greater", method="asymptotic").zstatistic)
    return SignedRank(z, min(1.0, math.erfc(abs(z) / math.sqrt(2))))


def holm(p_values: Sequence[float]) -> list[float]:
    """Return the p-values of one family of tests, adjusted by Holm–Bonferroni, in the same order.

    The k-th smallest of m is multiplied by m − k + 1; none is below a smaller one's, or above 1.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=lambda each: p_values[each])):
        largest = max(largest, min(1.0, p_values[place] * (len(p_values) - rank)))
        adjusted[place] = largest
    return adjusted
