"""Shares of a whole number that add up to it."""

from __future__ import annotations

import numpy as np

from hirag_dist.types import FloatVector, IntVector


def apportion(total: int, weights: FloatVector | IntVector) -> IntVector:
    """Return whole shares of a total in proportion to weights, by the largest remainders; ties go to the first.

    Args:
        total: at least 0.
        weights: (n,) at least 0; where all are 0 the shares are equal. n ≥ 1, unless the total is 0.

    Returns:
        (n,) int64, whose sum is the total.

    >>> apportion(10, np.array([1, 1, 1])).tolist(), apportion(7, np.array([0.0, 0.0])).tolist()
    ([4, 3, 3], [4, 3])
    """
    wanted: FloatVector = np.asarray(weights, np.float64)
    if not len(wanted):
        return np.zeros(0, np.int64)
    whole = float(wanted.sum())
    exact = total * (wanted / whole if whole > 0 else np.full(len(wanted), 1 / len(wanted)))
    shares: IntVector = np.floor(exact).astype(np.int64)
    left = total - int(shares.sum())
    order = np.argsort(-(exact - shares), kind="stable")
    if left >= 0:
        shares[order[:left]] += 1
    else:  # the floors of very large totals
        shares[order[left:]] -= 1
    return shares
