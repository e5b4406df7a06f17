"""Planted rows and densities straight from the formula, for tests of mixtures and clusters."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from hirag_dist.core.clustering.gaussian_mixture import MAX_ITERATIONS, MIN_VARIANCE, TOLERANCE
from hirag_dist.core.clustering.kmeans import labelled_sums, nearest, start_means
from hirag_dist.types import Mixture

Rows = NDArray[np.float32]


def blobs(n_blobs: int, per_blob: int, n_dims: int, seed: int, spread: float = 0.5) -> tuple[Rows, NDArray[np.int64]]:
    """Rows around centres that are far apart, in shuffled order, with the blob of each."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(0, 10, (n_blobs, n_dims))
    labels = rng.permutation(np.repeat(np.arange(n_blobs), per_blob))
    return (centres[labels] + rng.normal(0, spread, (len(labels), n_dims))).astype(np.float32), labels


def fitted_mixture(rows: Rows, k: int, seed: int) -> Mixture:
    """A mixture fitted from means drawn by k-means++: expectation and maximisation, straight from the formulas."""
    means = start_means(rows, k, seed)
    spread = labelled_sums(rows, nearest(rows, means), k).spread / rows.size
    return expected_mixture(rows, isotropic_mixture(means, max(spread, MIN_VARIANCE), np.full(k, 1 / k)), 50)


def isotropic_mixture(
    means: Rows, variance: float, weights: NDArray[np.float64], min_variance: float = MIN_VARIANCE
) -> Mixture:
    """The components of these means and weights, with one variance along each axis."""
    return Mixture(weights, means, float(np.float32(variance)), min_variance)


def labelled_mixture(rows: Rows, labels: NDArray[np.int64]) -> Mixture:
    """The mixture of one component for each label, with one variance."""
    means = np.stack([rows[labels == label].mean(axis=0, dtype=float) for label in range(int(labels.max()) + 1)])
    apart = float(((rows - means[labels]) ** 2).sum())
    variance = max(apart / (max(len(rows) - len(means), 1) * rows.shape[1]), MIN_VARIANCE)
    return isotropic_mixture(means.astype(np.float32), variance, np.bincount(labels) / len(rows))


def expected_mixture(rows: Rows, start: Mixture, max_rounds: int = MAX_ITERATIONS) -> Mixture:
    """Expectation and maximisation in float64, until the log-likelihood rises by less than the tolerance."""
    mixture, before = start, -np.inf
    for _ in range(max_rounds):
        log_joint = densities(rows, mixture)
        likelihood = float(logsumexp(log_joint, axis=1).sum())
        shares = np.exp(log_joint - logsumexp(log_joint, axis=1, keepdims=True))
        counts = np.maximum(shares.sum(axis=0), 1e-8)
        means = shares.T @ rows / counts[:, None]
        apart = sum(
            float(share @ ((rows - mean) ** 2).sum(axis=1)) for share, mean in zip(shares.T, means, strict=True)
        )
        variance = max(apart / rows.size, MIN_VARIANCE)
        mixture = isotropic_mixture(means.astype(np.float32), variance, counts / counts.sum())
        if likelihood - before < TOLERANCE * len(rows):
            break
        before = likelihood
    return mixture


def densities(rows: Rows, mixture: Mixture) -> NDArray[np.float64]:
    """(n, k) log of weight times density, straight from the formula, in float64."""
    columns = []
    for weight, mean in zip(mixture.weights, mixture.means, strict=True):
        energy = np.sum((rows.astype(float) - mean) ** 2, axis=1) / mixture.variance
        columns.append(np.log(weight) - 0.5 * (len(mean) * np.log(2 * np.pi * mixture.variance) + energy))
    return np.column_stack(columns)
