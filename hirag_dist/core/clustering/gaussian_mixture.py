"""Gaussian mixtures (paper Eq. 7) by expectation maximisation.

Products are float32, and what is added up over rows or components afterwards is float64. Components are spherical and
have one variance, so that a row's squared length is the same addend for all of them. `compute.cells` fits the mixtures
of cells on a GPU; the assignment of many rows to one mixture takes the array module `xp`, NumPy or CuPy, and gives
NumPy arrays back.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hirag_dist.core.arrays import finite_products, to_numpy
from hirag_dist.types import Assignment, FloatMatrix, IntVector, LabelledCell, Memberships, Mixture

BLOCK_ROWS = 4_096
MAX_ITERATIONS = 15
TOLERANCE = 1e-3  # rise of the log-likelihood, nats per row, below which EM stops
MIN_VARIANCE = 1e-4  # for data scaled to unit mean variance: a component of one point keeps a finite density
MIN_LOG_SHARE = -60.0  # least log of a responsibility over its row's largest: far below what float32 adds to 1
ABSENT = -1e30  # log joint density of a component that only pads
MIN_COUNT = 1e-8  # rows of a component without any


def sample_numbers(n_rows: int, size: int, seed: int) -> IntVector:
    """Return at most `size` distinct row numbers, ascending; all of them if there are no more rows.

    They depend on the number of rows alone, so that workers can be asked for the rows.
    """
    if n_rows <= size:
        return np.arange(n_rows)
    return np.sort(np.random.default_rng(seed).choice(n_rows, size, replace=False, shuffle=False))


@finite_products
def assign(xp: Any, rows: Any, mixture: Mixture, threshold: float, block_rows: int = BLOCK_ROWS) -> Assignment:
    """Return each row's best component and every other whose responsibility passes the threshold (paper Eq. 8).

    Args:
        rows: (n, d) float32 of `xp` or numpy, finite; may be memory-mapped.
        mixture: fitted to rows of this scale.
        threshold: 1.0 gives the best components alone.
        block_rows: rows of a product. It decides the last bits; more than the usual number keeps a GPU busier.
    """
    device = _Components(xp, xp.asarray(mixture.weights), xp.asarray(mixture.means), mixture.variance)
    return Assignment(*_assigned(device, rows, threshold, block_rows))


@finite_products
def memberships(cell: LabelledCell, threshold: float) -> Memberships:
    """Return the memberships of a cell's rows in the components that it keeps: those at home for the larger part.

    The mixture starts from the labels of the cell.

    Args:
        threshold: responsibility that makes a member.
    """
    rows, _, scale = standardised(cell.rows)
    fitted = _fit(rows, cell.labels, cell.n_labels)
    row, component, shares, densities = _assigned(fitted, rows, threshold, BLOCK_ROWS)
    inside, sums = (np.bincount(component, weights, cell.n_labels) for weights in (shares * cell.is_home[row], shares))
    is_kept = inside * 2 >= sums
    if not is_kept.any():
        is_kept[:] = True
    n_expected = float(len(rows))
    if not is_kept.all():
        weights = fitted.weights * is_kept
        n_expected *= weights.sum()
        kept = _Components(np, weights / weights.sum(), fitted.means, fitted.variance)
        row, component, shares, densities = _assigned(kept, rows, threshold, BLOCK_ROWS)
    evidence = densities[row].astype(np.float64) + (np.log(n_expected) - rows.shape[1] * np.log(scale))
    return Memberships(row, (np.cumsum(is_kept) - 1)[component], shares, evidence, int(is_kept.sum()))


def standardised(rows: FloatMatrix) -> tuple[FloatMatrix, FloatMatrix, float]:
    """Return rows centred and scaled by one factor to a mean variance of 1, and what they were centred and divided by.

    Values that are not finite count as 0.

    Args:
        rows: (n, d) float32.

    Returns:
        (n, d) float32 rows, their (d,) float32 mean, and the factor: 1.0 for rows without variance.
    """
    finite = np.nan_to_num(rows, nan=0.0, posinf=0.0, neginf=0.0).astype(np.float32, copy=False)
    mean: FloatMatrix = finite.mean(axis=0, dtype=np.float64).astype(np.float32)
    centred = finite - mean
    scale = float(np.sqrt(np.mean(np.square(centred, dtype=np.float64))))
    return (centred / np.float32(scale), mean, scale) if scale > 0 else (centred, mean, 1.0)


class _Components:
    """A mixture on the device of `xp`: (k,) weights, 0 for a component that is left out, and (k, d) means."""

    def __init__(self, xp: Any, weights: Any, means: Any, variance: float) -> None:
        self.xp, self.weights, self.means, self.variance = xp, weights, means, variance
        precision = np.float64(1.0) / variance
        energies = (means.astype(np.float64) ** 2).sum(axis=1) * precision
        is_there = weights > 0
        constants = xp.log(xp.where(is_there, weights, 1.0))
        constants = constants - 0.5 * (means.shape[1] * np.log(2 * np.pi / precision) + energies)
        self._constants = xp.where(is_there, constants, ABSENT).astype(np.float32)
        self._linear = (means * np.float32(precision)).T
        self._quadratic = np.float32(-0.5 * precision)

    def shares(self, block: Any) -> tuple[Any, Any]:
        """Return ((n, k) responsibilities, (n,) log densities) of (n, d) rows.

        No responsibility is subnormal: operations on such numbers take tens of times as long on some processors.
        """
        xp = self.xp
        shares = block @ self._linear
        shares += self._constants
        top = shares.max(axis=1, keepdims=True)
        shares -= top
        xp.maximum(shares, MIN_LOG_SHARE, out=shares)
        xp.exp(shares, out=shares)
        sums = shares.sum(axis=1, keepdims=True)
        shares /= sums
        lengths = (block * block).sum(axis=1)
        return shares, (top + xp.log(sums))[:, 0] + lengths * self._quadratic


def _fit(rows: FloatMatrix, labels: IntVector, n_components: int) -> _Components:
    """Return the mixture that starts from labels, after expectation and maximisation.

    Args:
        rows: (n, d) float32 standardised rows.
        labels: (n,) component of each row.
    """
    n_rows, n_dims = rows.shape
    squares = (rows * rows).sum(dtype=np.float64)

    def maximised(counts: Any, sums: Any, freedom: int) -> _Components:
        counts = np.maximum(counts, MIN_COUNT)
        means = sums / counts[:, None]
        spread = squares - (counts * (means**2).sum(axis=1)).sum()
        variance = max(spread / (freedom * n_dims), MIN_VARIANCE)
        return _Components(np, counts / counts.sum(), means.astype(np.float32), variance)

    def summed(components: _Components | None) -> tuple[Any, Any, Any]:
        totals = 0.0, 0.0, 0.0
        for first in range(0, n_rows, BLOCK_ROWS):
            part = slice(first, first + BLOCK_ROWS)
            if components is None:
                shares, densities = (labels[part, None] == np.arange(n_components)).astype(np.float32), np.zeros(1)
            else:
                shares, densities = components.shares(rows[part])
            added = (
                shares.sum(axis=0, dtype=np.float64),
                (shares.T @ rows[part]).astype(np.float64),
                densities.sum(dtype=np.float64),
            )
            totals = tuple(total + more for total, more in zip(totals, added, strict=True))
        return totals

    counts, sums, _ = summed(None)  # the shares that the labels stand for
    current = maximised(counts, sums, max(n_rows - n_components, 1))
    before = -np.inf
    for _ in range(MAX_ITERATIONS):
        counts, sums, likelihood = summed(current)
        current = maximised(counts, sums, n_rows)
        if likelihood - before < TOLERANCE * n_rows:
            break
        before = likelihood
    return current


def _assigned(
    components: _Components, rows: Any, threshold: float, block_rows: int
) -> tuple[IntVector, IntVector, NDArray[np.float32], NDArray[np.float32]]:
    """Return the row, component and share of each membership, sorted, and the (n,) log densities.

    Args:
        rows: (n, d) of the device or numpy.
        threshold: responsibility that makes a member; the best component always does.
    """
    xp = components.xp
    columns: list[list[Any]] = [[np.zeros(0, np.int64)], [np.zeros(0, np.int64)]]
    columns += [[np.zeros(0, np.float32)], [np.zeros(0, np.float32)]]
    for first in range(0, len(rows), block_rows):
        shares, densities = components.shares(xp.asarray(rows[first : first + block_rows]))
        keep = shares >= threshold
        keep[xp.arange(len(shares)), shares.argmax(axis=1)] = True
        row, component = xp.nonzero(keep)
        found = (row + first, component, shares[row, component], densities.astype(np.float32))
        for column, values in zip(columns, found, strict=True):
            column.append(to_numpy(xp, values))
    row, component, share, log_densities = (np.concatenate(column) for column in columns)
    return row.astype(np.int64), component.astype(np.int64), share, log_densities
