"""Gaussian mixtures (paper Eq. 7) by expectation maximisation, for rows on a CPU or on a GPU.

One code path serves NumPy and CuPy: functions take the array module `xp` and return NumPy arrays. Products are float32
over fixed blocks of rows, and sums are float64 in block order: memory is bounded by a block. Every covariance type is
one product with second-order features of the row: its squares, their sum, or the products of its columns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hirag_dist.core.array_module import finite_products, to_numpy
from hirag_dist.types import Assignment, Covariance, FloatMatrix, IntVector, Mixture, MixtureStatistics

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
    means: FloatMatrix,
    width: float,
    weights: NDArray[np.float64],
    covariance: Covariance,
    min_variance: float = MIN_VARIANCE,
) -> Mixture:
    """Return isotropic components with one variance, in the shape of the covariance type.

    Args:
        means: (k, d) float32.
        width: their variance along an axis.
        weights: (k,) that add up to 1.
        covariance: of the mixture.
        min_variance: of the mixture; the default is that of scaled rows.
    """
    n_components, n_dims = means.shape
    shape = {"diag": (n_dims,), "spherical": (1,), "tied": (1,), "full": (n_dims, n_dims)}[covariance]
    variances = np.full((n_components, *shape), width, np.float32)
    if covariance == "full":
        variances *= np.eye(n_dims, dtype=np.float32)
    return Mixture(weights, means, variances, covariance, min_variance)


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
    """Return the maximum-likelihood mixture of these statistics (M step); covariance type and floor as before."""
    counts = np.maximum(statistics.counts, MIN_COUNT)
    safe = counts[:, None]
    means = statistics.sums / safe
    squares = statistics.squares / safe
    n_dims = means.shape[1]
    if before.covariance == "full":
        first, second = np.triu_indices(n_dims)
        spread = np.empty((len(counts), n_dims, n_dims))
        spread[:, first, second] = squares - means[:, first] * means[:, second]
        spread[:, second, first] = spread[:, first, second]
        lengths, axes = np.linalg.eigh(spread)
        variances = (axes * np.maximum(lengths, before.min_variance)[:, None, :]) @ axes.transpose(0, 2, 1)
    elif before.covariance in ("spherical", "tied"):
        spread = (squares - np.sum(means**2, axis=1, keepdims=True)) / n_dims
        if before.covariance == "tied":
            spread[:] = np.average(spread[:, 0], weights=counts)
        variances = np.maximum(spread, before.min_variance)
    else:
        variances = np.maximum(squares - means**2, before.min_variance)
    return replace(
        before,
        weights=counts / counts.sum(),
        means=means.astype(np.float32),
        variances=variances.astype(np.float32),
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
    squares = xp.zeros((mixture.n_components, density.n_features))
    likelihood = xp.zeros(())
    for first in range(0, len(rows), block_rows):
        block = xp.asarray(rows[first : first + block_rows])
        features = density.features(block)
        shares, log_density = density.shares(block, features)
        likelihood += log_density.sum(dtype=np.float64)
        counts += shares.sum(axis=0, dtype=np.float64)
        sums += shares.T @ block
        squares += shares.T @ features
    return MixtureStatistics(to_numpy(xp, counts), to_numpy(xp, sums), to_numpy(xp, squares), float(likelihood))


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
        shares, log_density = density.shares(block, density.features(block))
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
    """Log density of a mixture as products of a row and its second-order features, kept on the device."""

    def __init__(self, xp: Any, mixture: Mixture) -> None:
        self._xp = xp
        self._covariance = mixture.covariance
        means, n_dims = mixture.means, mixture.means.shape[1]
        if mixture.covariance == "full":
            first, second = np.triu_indices(n_dims)
            self._pairs = xp.asarray(first), xp.asarray(second)
            inverse = np.linalg.inv(mixture.variances.astype(np.float64))
            log_determinant = np.linalg.slogdet(mixture.variances.astype(np.float64))[1]
            linear = np.einsum("kij,kj->ki", inverse, means)
            energy = np.einsum("ki,ki->k", linear, means)
            twice = np.where(first == second, 1.0, 2.0)  # a pair off the diagonal stands for two
            quadratic = -0.5 * inverse[:, first, second] * twice
        else:
            precision = 1.0 / mixture.variances
            copies = n_dims // mixture.variances.shape[1]
            log_determinant = copies * np.log(mixture.variances, dtype=np.float64).sum(axis=1)
            linear = means * precision
            energy = (means.astype(np.float64) ** 2 * precision).sum(axis=1)
            quadratic = np.asarray(-0.5 * precision)
        constant = np.log(mixture.weights) - 0.5 * log_determinant - 0.5 * n_dims * np.log(2 * np.pi) - 0.5 * energy
        self.n_features = quadratic.shape[1]
        self._quadratic = xp.asarray(quadratic.astype(np.float32))
        self._linear = xp.asarray(linear.astype(np.float32))
        self._constant = xp.asarray(constant.astype(np.float32))

    def features(self, block: Any) -> Any:
        """Return the (b, q) second-order features of (b, d) rows."""
        if self._covariance == "full":
            return block[:, self._pairs[0]] * block[:, self._pairs[1]]
        squares = block * block
        return squares if self._covariance == "diag" else squares.sum(axis=1, keepdims=True)

    def shares(self, block: Any, features: Any) -> tuple[Any, Any]:
        """Return ((b, k) responsibilities, (b,) log densities).

        No responsibility is subnormal: operations on such numbers take tens of times as long on some processors.
        """
        xp = self._xp
        log_joint = block @ self._linear.T
        if self._covariance == "spherical":
            log_joint += features * self._quadratic[:, 0]
        elif self._covariance != "tied":
            log_joint += features @ self._quadratic.T
        log_joint += self._constant
        top = log_joint.max(axis=1, keepdims=True)
        log_joint -= top
        xp.maximum(log_joint, _MIN_LOG_SHARE, out=log_joint)
        xp.exp(log_joint, out=log_joint)
        sums = log_joint.sum(axis=1, keepdims=True)
        log_joint /= sums
        if self._covariance == "tied":  # the same for all components of a row
            top = top + features * self._quadratic[0, 0]
        return log_joint, (top + xp.log(sums))[:, 0]
