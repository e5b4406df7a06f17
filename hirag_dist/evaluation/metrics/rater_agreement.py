"""Agreement of raters beyond chance: Cohen's and Fleiss' kappa."""

from __future__ import annotations

import numpy as np

from hirag_dist.types import IntVector

_EXACT = 1e-12


def cohen_kappa(one: IntVector, other: IntVector) -> float | None:
    """Return the agreement of two raters: 1 for full, 0 for what chance gives, below 0 for less.

    Cohen (1960), "A coefficient of agreement for nominal scales".

    Args:
        one, other: (n_items,) category of each item, the same items in the same order.

    Returns:
        κ, or None where it is undefined: no item, or both raters gave one and the same category to all.

    >>> cohen_kappa(np.array([0, 0, 1, 1]), np.array([0, 0, 1, 0]))
    0.5
    """
    n_items = len(one)
    if not n_items:
        return None
    n_categories = int(max(one.max(), other.max())) + 1
    table = np.bincount(one * n_categories + other, minlength=n_categories**2).reshape(n_categories, n_categories)
    observed = float(np.trace(table)) / n_items
    expected = float(table.sum(axis=1) @ table.sum(axis=0)) / n_items**2
    return _beyond_chance(observed, expected)


def fleiss_kappa(counts: IntVector) -> float | None:
    """Return the agreement of any number of raters.

    Fleiss (1971), "Measuring nominal scale agreement among many raters".

    Args:
        counts: (n_items, n_categories) how many raters gave each item each category; as many for every item.

    Returns:
        κ, or None where it is undefined: no item, fewer than two raters, or one category for everything.

    Raises:
        ValueError: items have different numbers of ratings.
    """
    if not len(counts):
        return None
    raters = counts.sum(axis=1)
    n_raters = int(raters[0])
    if np.any(raters != n_raters):
        raise ValueError("every item must have as many ratings as the others")
    if n_raters < 2:
        return None
    pairs = (counts * (counts - 1)).sum(axis=1) / (n_raters * (n_raters - 1))
    shares = counts.sum(axis=0) / (len(counts) * n_raters)
    return _beyond_chance(float(pairs.mean()), float(shares @ shares))


def _beyond_chance(observed: float, expected: float) -> float | None:
    return None if expected >= 1 - _EXACT else (observed - expected) / (1 - expected)
