"""Gaussian mixtures (paper Eq. 7) by expectation maximisation, for rows on a CPU or on a GPU.

One code path serves NumPy and CuPy: functions take the array module `xp` and return NumPy arrays. Products are float32
over fixed blocks of rows, and sums are float64 in block order: memory is bounded by a block. Components are spherical
and have one variance, so that a row's squared length is the same addend for all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hirag_dist.core.array_module import finite_products, to_numpy
from hirag_dist.types import Assignment, FloatMatrix, IntVector, Mixture, MixtureStatistics

BLOCK_ROWS = 4_096
MAX_ITERATIONS = 15
TOLERANCE = 1e-3  # rise of the log-likelihood, nats per row, below which EM stops
MIN_VARIANCE = 1e-4  # for data scaled to unit mean variance: a component of one point keeps a finite density
_MIN_LOG_SHARE = -60.0  # of a responsibility relative to the largest of its row: far below what float32 can add to 1
MIN_COUNT = 1e-8  # rows of a component without any


def sample_numbers(n_rows: int, size: int, seed: int) -> IntVector:
    """Return at most `size` distinct row numbers, ascending; all of them if there are no more rows.

    They depend on the number of rows alone, so that workers can be asked for the rows.
    """
    if n_rows <= size:
        return np.arange(n_rows)
    return np.sort(np.random.default_rng(seed).choice(n_rows, size, replace=False, shuffle=False))


def isotropic_mixture(
    means: FloatMatrix, variance: float, weights: NDArray[np.float64], min_variance: float = MIN_VARIANCE
) -> Mixture:
    """Return the components of these means and weights, with one variance.

    Args:
        means: (k, d) float32.
        variance: along an axis.
        weights: (k,) that add up to 1.
        min_variance: floor of the variance; the default is that of scaled rows.
    """
    return Mixture(weights, means, float(np.float32(variance)), min_variance)


def fit(
    statistics_of: Callable[[Mixture], MixtureStatistics],
    start: Mixture,
    n_rows: int,
    max_iterations: int = MAX_ITERATIONS,
    tolerance: float = TOLERANCE,
) -> Mixture:
    """Repeat expectation and maximisation until the likelihood rises by less than the tolerance.

    Args:
        statistics_of: returns the statistics of all rows under a mixture.
        start: the first mixture.
        n_rows: their number.
        max_iterations: rounds at most.
        tolerance: nats a row.
    """
    mixture, before = start, -np.inf
    for _ in range(max_iterations):
        statistics = statistics_of(mixture)
        rise, before = statistics.log_likelihood - before, statistics.log_likelihood
        mixture = maximise(statistics, mixture)
        if rise < tolerance * n_rows:
            break
    return replace(mixture, log_likelihood=before)


def maximise(statistics: MixtureStatistics, before: Mixture) -> Mixture:
    """Return the maximum-likelihood mixture of these statistics (M step), with the same floor of the variance."""
    counts = np.maximum(statistics.counts, MIN_COUNT)
    means = statistics.sums / counts[:, None]
    spread = (statistics.squares / counts - np.sum(means**2, axis=1)) / means.shape[1]
    variance = max(float(np.average(spread, weights=counts)), before.min_variance)
    return replace(
        before,
        weights=counts / counts.sum(),
        means=means.astype(np.float32),
        variance=float(np.float32(variance)),
    )


@finite_products
def mixture_statistics(xp: Any, rows: Any, mixture: Mixture, block_rows: int = BLOCK_ROWS) -> MixtureStatistics:
    """Return the statistics of rows, their blocks added up in order on the device.

    Args:
        xp: numpy or CuPy.
        rows: (n, d) float32 of `xp` or numpy, finite; may be memory-mapped.
        mixture: gives the responsibilities (E step).
        block_rows: of a product. It decides the last bits; more than the usual number keeps a GPU busier.
    """
    density = _Density(xp, mixture)
    n_dims = mixture.means.shape[1]
    counts = xp.zeros(mixture.n_components)
    sums = xp.zeros((mixture.n_components, n_dims))
    squares = xp.zeros((mixture.n_components, 1))
    likelihood = xp.zeros(())
    for first in range(0, len(rows), block_rows):
        block = xp.asarray(rows[first : first + block_rows])
        lengths = (block * block).sum(axis=1, keepdims=True)
        shares, log_density = density.shares(block, lengths)
        likelihood += log_density.sum(dtype=np.float64)
        counts += shares.sum(axis=0, dtype=np.float64)
        sums += shares.T @ block
        squares += shares.T @ lengths
    return MixtureStatistics(to_numpy(xp, counts), to_numpy(xp, sums), to_numpy(xp, squares)[:, 0], float(likelihood))


@finite_products
def assign(xp: Any, rows: Any, mixture: Mixture, threshold: float, block_rows: int = BLOCK_ROWS) -> Assignment:
    """Return each row's best component and every other whose responsibility passes the threshold (paper Eq. 8).

    Args:
        xp: numpy or CuPy.
        rows: (n, d) float32 of `xp` or numpy, finite; may be memory-mapped.
        mixture: as `fit` gave it.
        threshold: 1.0 gives the best components alone.
        block_rows: as of `mixture_statistics`.
    """
    density = _Density(xp, mixture)
    found, log_densities = [], [np.zeros(0, np.float32)]
    for first in range(0, len(rows), block_rows):
        block = xp.asarray(rows[first : first + block_rows])
        shares, log_density = density.shares(block, (block * block).sum(axis=1, keepdims=True))
        log_densities.append(to_numpy(xp, log_density).astype(np.float32))
        keep = shares >= threshold
        keep[xp.arange(len(shares)), shares.argmax(axis=1)] = True
        at, component = xp.nonzero(keep)
        found.append([to_numpy(xp, column) for column in (at, component, shares[at, component])])
        found[-1][0] = found[-1][0] + first
    if not found:
        return Assignment(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.float32), log_densities[0])
    numbers, components, kept = (np.concatenate(column) for column in zip(*found, strict=True))
    return Assignment(
        numbers.astype(np.int64), components.astype(np.int64), kept.astype(np.float32), np.concatenate(log_densities)
    )


def standardise(rows: FloatMatrix) -> FloatMatrix:
    """Return rows centred and scaled by one factor to a mean variance of 1, with anything not finite made 0."""
    return standardised(rows)[0]


def standardised(rows: FloatMatrix) -> tuple[FloatMatrix, FloatMatrix, float]:
    """Return the rows of `standardise`, and the (d,) mean and the factor that they were centred and divided by."""
    finite = np.nan_to_num(rows, nan=0.0, posinf=0.0, neginf=0.0).astype(np.float32, copy=False)
    mean: FloatMatrix = finite.mean(axis=0, dtype=np.float64).astype(np.float32)
    centred = finite - mean
    scale = float(np.sqrt(np.mean(np.square(centred, dtype=np.float64))))
    return (centred / np.float32(scale), mean, scale) if scale > 0 else (centred, mean, 1.0)


class _Density:
    """Log density of a mixture as a product of its rows, kept on the device."""

    def __init__(self, xp: Any, mixture: Mixture) -> None:
        self._xp = xp
        n_dims = mixture.means.shape[1]
        precision = np.float32(1.0) / np.float32(mixture.variance)
        log_determinant = n_dims * np.log(mixture.variance)
        energy = (mixture.means.astype(np.float64) ** 2 * precision).sum(axis=1)
        constant = np.log(mixture.weights) - 0.5 * log_determinant - 0.5 * n_dims * np.log(2 * np.pi) - 0.5 * energy
        self._quadratic = np.float32(-0.5 * precision)
        self._linear = xp.asarray(mixture.means * precision)
        self._constant = xp.asarray(constant.astype(np.float32))

    def shares(self, block: Any, lengths: Any) -> tuple[Any, Any]:
        """Return ((b, k) responsibilities, (b,) log densities) of (b, d) rows with (b, 1) squared lengths.

        No responsibility is subnormal: operations on such numbers take tens of times as long on some processors.
        """
        xp = self._xp
        log_joint = block @ self._linear.T
        log_joint += self._constant
        top = log_joint.max(axis=1, keepdims=True)
        log_joint -= top
        xp.maximum(log_joint, _MIN_LOG_SHARE, out=log_joint)
        xp.exp(log_joint, out=log_joint)
        sums = log_joint.sum(axis=1, keepdims=True)
        log_joint /= sums
        return log_joint, (top + lengths * self._quadratic + xp.log(sums))[:, 0]
