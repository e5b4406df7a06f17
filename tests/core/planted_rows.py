"""Planted rows and densities straight from the formula, for tests of mixtures and clusters."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hirag_dist.core.clustering.gaussian_mixture import MIN_VARIANCE, fit, isotropic_mixture, mixture_statistics
from hirag_dist.core.clustering.kmeans import labelled_sums, nearest, start_means
from hirag_dist.types import Mixture

Rows = NDArray[np.float32]


def blobs(n_blobs: int, per_blob: int, n_dims: int, seed: int, spread: float = 0.5) -> tuple[Rows, NDArray[np.int64]]:
    """Rows around centres that are far apart, in shuffled order, with the blob of each."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(0, 10, (n_blobs, n_dims))
    labels = rng.permutation(np.repeat(np.arange(n_blobs), per_blob))
    return (centres[labels] + rng.normal(0, spread, (len(labels), n_dims))).astype(np.float32), labels


def fitted_mixture(rows: Rows, k: int, seed: int, xp: Any = np) -> Mixture:
    """A mixture fitted from means drawn by k-means++, with the variance of the rows around them."""
    means = start_means(rows, k, seed)
    spread = labelled_sums(rows, nearest(np, rows, means), k).spread / rows.size
    start = isotropic_mixture(means, max(spread, MIN_VARIANCE), np.full(k, 1 / k))
    return fit(lambda mixture: mixture_statistics(xp, rows, mixture), start, len(rows), 50)


def densities(rows: Rows, mixture: Mixture) -> NDArray[np.float64]:
    """(n, k) log of weight times density, straight from the formula, in float64."""
    columns = []
    for weight, mean in zip(mixture.weights, mixture.means, strict=True):
        energy = np.sum((rows.astype(float) - mean) ** 2, axis=1) / mixture.variance
        columns.append(np.log(weight) - 0.5 * (len(mean) * np.log(2 * np.pi * mixture.variance) + energy))
    return np.column_stack(columns)
