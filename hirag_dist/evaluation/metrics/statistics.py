"""Statistics of evaluations: bootstrap intervals of means, paired tests, and correction for several of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hirag_dist.types import FloatVector
from hirag_dist.types.index_info import NOTHING, Interval

_CHUNK = 2_000_000  # counts in memory at a time
Zeros = Literal["wilcox", "pratt", "zsplit"]


def known_mean(values: ArrayLike) -> float:
    """Return the mean of the values that are known; NaN where none is.

    >>> known_mean([1.0, float("nan"), 2.0])
    1.5
    """
    table = np.asarray(values, np.float64)
    known = table[~np.isnan(table)]
    return float(known.mean()) if len(known) else float("nan")


def bootstrap_means(
    values: ArrayLike,
    weights: ArrayLike | None = None,
    *,
    level: float = 0.95,
    n_resamples: int = 10_000,
    seed: int = 0,
) -> list[Interval]:
    """Return the mean of each column with its percentile bootstrap interval (Efron 1979), over the same resamples.

    Rows (questions) are drawn with replacement, all columns of a row together: the interval of the mean of a column of
    differences is the paired one. A column's mean is Σ w v / Σ w over the drawn rows.

    Args:
        values: (n_rows, n_columns); NaN where a column has no value for a row, which then counts for nothing.
        weights: (n_rows, n_columns), not negative; None for ones. What is not independent, such as both orders of one
            comparison, is one row: its mean, weighted by how many there are.
        level: share of the resampled means inside the interval.
        n_resamples: draws; the work is n_resamples × n_rows × n_columns.
        seed: of the draws; equal input gives equal intervals.

    Returns:
        (n_columns,) intervals; all NaN for a column without a value. Of one row the interval is the mean itself: it
        says nothing.

    Raises:
        ValueError: shapes that do not fit, a negative weight, a level outside (0, 1), no resamples.
    """
    table = np.asarray(values, np.float64)
    if table.ndim != 2:
        raise ValueError(f"values must have two dimensions, got {table.ndim}")
    if not 0 < level < 1 or n_resamples < 1:
        raise ValueError(f"level must be between 0 and 1 and n_resamples at least 1, got {level} and {n_resamples}")
    shares = np.ones_like(table) if weights is None else np.asarray(weights, np.float64)
    if shares.shape != table.shape or np.any(shares < 0):
        raise ValueError("weights must have the shape of values, and none be negative")
    known = ~np.isnan(table)
    shares = np.where(known, shares, 0.0)
    sums = np.where(known, table, 0.0) * shares
    draws = _resampled(np.concatenate([sums, shares], axis=1), n_resamples, seed)
    n_columns = table.shape[1]
    tail = (1 - level) / 2
    found = []
    for column in range(n_columns):
        total = shares[:, column].sum()
        drawn = draws[:, n_columns + column]
        if not total:
            found.append(NOTHING)
            continue
        means = draws[drawn > 0, column] / drawn[drawn > 0]  # a draw that meets no value of the column has no mean
        low, high = np.quantile(means, [tail, 1 - tail])
        found.append(Interval(float(sums[:, column].sum() / total), float(low), float(high)))
    return found


@dataclass(frozen=True, slots=True)
class SignedRank:
    """A Wilcoxon signed-rank test.

    Attributes:
        z: the standardised sum of ranks, positive where the first of the pairs is the larger one.
        p: two-sided.
    """

    z: float
    p: float


def wilcoxon(differences: ArrayLike, zeros: Zeros = "wilcox") -> SignedRank:
    """Test whether paired differences are symmetric about zero (Wilcoxon 1945), by the normal approximation.

    Ties share their ranks, and the variance is corrected for them; there is no correction for continuity.

    Args:
        differences: (n,) first minus second of each pair; NaN are left out. Those that tie are equal to the last bit.
        zeros: as scipy names them. wilcox: pairs without a difference are left out (the original test); pratt: they
            are ranked and then left out; zsplit: their ranks are split between both signs. The GraphRAG paper
            (appendix G) does not say which it takes.

    Returns:
        z = 0 and p = 1 where no pair differs.
    """
    known = np.asarray(differences, np.float64)
    known = known[~np.isnan(known)]
    if not np.any(known):
        return SignedRank(0.0, 1.0)
    from scipy import stats  # not at the top: a large import

    # Of the one-sided test, since that of the two-sided one hides the sign.
    z = float(
        stats.wilcoxon(
            known, zero_method=zeros, correction=False, alternative="greater", method="asymptotic"
        ).zstatistic
    )
    return SignedRank(z, min(1.0, math.erfc(abs(z) / math.sqrt(2))))


def holm(p_values: Sequence[float]) -> list[float]:
    """Return the p-values of one family of tests, adjusted by Holm–Bonferroni (Holm 1979), in the same order.

    The k-th smallest of m is multiplied by m − k + 1; none is below a smaller one's, or above 1.

    Raises:
        ValueError: one is no probability.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    if not all(0 <= p <= 1 for p in p_values):
        raise ValueError("p-values lie between 0 and 1")
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=lambda each: p_values[each])):
        largest = max(largest, min(1.0, p_values[place] * (len(p_values) - rank)))
        adjusted[place] = largest
    return adjusted


def wilson(successes: float, n: float, level: float = 0.95) -> Interval:
    """Return a share with its Wilson score interval (Wilson 1927): of independent trials, also where it is 0 or 1.

    Args:
        successes: of the trials; ties may count half.
        n: trials.

    Raises:
        ValueError: more successes than trials, or a negative number.
    """
    if not 0 <= successes <= n:
        raise ValueError(f"successes must lie between 0 and n, got {successes} of {n}")
    if n == 0:
        return NOTHING
    z = NormalDist().inv_cdf((1 + level) / 2)
    share = successes / n
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * float(np.sqrt(share * (1 - share) / n + z * z / (4 * n * n)))
    low = 0.0 if successes == 0 else middle - half  # exactly so, whatever the rounding
    return Interval(share, low, 1.0 if successes == n else middle + half)


def _resampled(rows: NDArray[np.float64], n_resamples: int, seed: int) -> FloatVector:
    """Return (n_resamples, n_columns) sums over as many rows as there are, drawn with replacement."""
    n_rows = len(rows)
    sums = np.zeros((n_resamples, rows.shape[1]))
    if not n_rows:
        return sums
    rng = np.random.default_rng(seed)
    block = max(_CHUNK // n_rows, 1)
    for start in range(0, n_resamples, block):
        n_draws = min(block, n_resamples - start)
        drawn = rng.integers(0, n_rows, (n_draws, n_rows))
        drawn += np.arange(n_draws)[:, None] * n_rows
        times = np.bincount(drawn.ravel(), minlength=n_draws * n_rows).reshape(n_draws, n_rows)
        sums[start : start + n_draws] = times @ rows
    return sums
