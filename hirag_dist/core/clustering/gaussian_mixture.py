"""Gaussian mixtures (paper Eq. 7) by expectation maximisation, for rows on a CPU or on a GPU.

One code path serves NumPy and CuPy: functions take the array module `xp` and return NumPy arrays. The mixtures of
cells are independent and small, so a batch of them is fitted at once, as arrays with a cell an index and padding
behind the rows and components of the smaller ones. A CPU takes cells one by one, without padding: its results depend on
the cell alone. Products are float32, and what is added up over rows or components afterwards is float64. Components are
spherical and have one variance, so that a row's squared length is the same addend for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hirag_dist.core.array_module import batches, finite_products, to_numpy
from hirag_dist.types import Assignment, FloatMatrix, IntVector, LabelledCell, Memberships, Mixture

BLOCK_ROWS = 4_096
MAX_ITERATIONS = 15
TOLERANCE = 1e-3  # rise of the log-likelihood, nats per row, below which EM stops
MIN_VARIANCE = 1e-4  # for data scaled to unit mean variance: a component of one point keeps a finite density
_MIN_LOG_SHARE = -60.0  # of a responsibility relative to the largest of its row: far below what float32 can add to 1
_ABSENT = -1e30  # log joint density of a component that only pads
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


@finite_products
def assign(xp: Any, rows: Any, mixture: Mixture, threshold: float, block_rows: int = BLOCK_ROWS) -> Assignment:
    """Return each row's best component and every other whose responsibility passes the threshold (paper Eq. 8).

    Args:
        xp: numpy or CuPy.
        rows: (n, d) float32 of `xp` or numpy, finite; may be memory-mapped.
        mixture: Mixture that was fitted to rows of this scale.
        threshold: 1.0 gives the best components alone.
        block_rows: rows of a product. It decides the last bits; more than the usual number keeps a GPU busier.
    """
    device = _Mixtures(
        xp,
        xp.asarray(mixture.weights)[None],
        xp.asarray(mixture.means)[None],
        xp.asarray(np.array([mixture.variance])),
    )
    _, row, component, shares, densities = _assigned(device, rows[None], threshold, block_rows)
    return Assignment(row, component, shares, densities[0])


def memberships(xp: Any, cells: Sequence[LabelledCell], threshold: float, batch_elements: int = 0) -> list[Memberships]:
    """Return the memberships of each cell's rows in the components that it keeps: those at home for the larger part.

    A mixture starts from the labels of a cell. Memory: about 24 bytes an element of a batch.

    Args:
        xp: numpy or CuPy.
        cells: Cells of one row or more each, all of the same dimension.
        threshold: responsibility that makes a member.
        batch_elements: maximum rows times components of a batch, padding included; a batch has at least one cell. 0
            takes the cells one by one without padding.
    """
    found: dict[int, Memberships] = {}
    for numbers, shape in batches([(len(cell.rows), cell.n_labels) for cell in cells], batch_elements):
        found |= zip(numbers, _batch_memberships(xp, [cells[at] for at in numbers], shape, threshold), strict=True)
    return [found[number] for number in range(len(cells))]


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


class _Mixtures:
    """A batch of mixtures on a device: (b, k) weights, 0 for what only pads, (b, k, d) means and (b,) variances."""

    def __init__(self, xp: Any, weights: Any, means: Any, variances: Any) -> None:
        self.xp, self.weights, self.means, self.variances = xp, weights, means, variances
        n_dims = means.shape[2]
        precisions = 1.0 / variances[:, None]
        energies = (means.astype(np.float64) ** 2).sum(axis=2) * precisions
        is_there = weights > 0
        constants = xp.log(xp.where(is_there, weights, 1.0))
        constants = constants - 0.5 * (n_dims * xp.log(2 * np.pi / precisions) + energies)
        self._constants = xp.where(is_there, constants, _ABSENT).astype(np.float32)[:, None]
        self._linear = (means * precisions[:, :, None].astype(np.float32)).transpose(0, 2, 1)
        self._quadratics = (-0.5 * precisions).astype(np.float32)

    def shares(self, block: Any) -> tuple[Any, Any]:
        """Return ((b, n, k) responsibilities, (b, n) log densities) of (b, n, d) rows.

        No responsibility is subnormal: operations on such numbers take tens of times as long on some processors.
        """
        xp = self.xp
        shares = block @ self._linear
        shares += self._constants
        top = shares.max(axis=2, keepdims=True)
        shares -= top
        xp.maximum(shares, _MIN_LOG_SHARE, out=shares)
        xp.exp(shares, out=shares)
        sums = shares.sum(axis=2, keepdims=True)
        shares /= sums
        lengths = (block * block).sum(axis=2)
        return shares, (top + xp.log(sums))[:, :, 0] + lengths * self._quadratics


@finite_products
def _batch_memberships(
    xp: Any, cells: Sequence[LabelledCell], shape: tuple[int, int], threshold: float
) -> Iterator[Memberships]:
    """Yield the memberships of the cells of a batch, in their order."""
    n_batch, (n_rows, n_components), n_dims = len(cells), shape, cells[0].rows.shape[1]
    rows = np.zeros((n_batch, n_rows, n_dims), np.float32)
    labels, is_home = np.full((n_batch, n_rows), -1), np.zeros((n_batch, n_rows), bool)
    for number, cell in enumerate(cells):
        rows[number, : len(cell.rows)] = cell.rows
        labels[number, : len(cell.rows)], is_home[number, : len(cell.rows)] = cell.labels, cell.is_home
    held, scales = _standardised(xp, xp.asarray(rows), xp.asarray(labels) >= 0)
    n_labels = np.array([cell.n_labels for cell in cells])
    fitted = _fit(xp, held, xp.asarray(labels), xp.asarray(n_labels), n_components)
    cell_of, row_of, component, shares, densities = _assigned(fitted, held, threshold, BLOCK_ROWS, labels)
    places = cell_of * n_components + component
    inside, sums = (
        np.bincount(places, weights, n_batch * n_components).reshape(n_batch, n_components)
        for weights in (shares * is_home[cell_of, row_of], shares)
    )
    is_there = np.arange(n_components) < n_labels[:, None]
    is_kept = (inside * 2 >= sums) & is_there
    is_kept |= is_there & ~is_kept.any(axis=1, keepdims=True)
    is_whole = (is_kept == is_there).all(axis=1)
    n_expected = (labels >= 0).sum(axis=1).astype(np.float64)
    if not is_whole.all():
        weights = to_numpy(xp, fitted.weights) * is_kept
        kept_share = np.where(is_whole, 1.0, weights.sum(axis=1))
        n_expected *= kept_share
        kept = _Mixtures(xp, xp.asarray(weights / kept_share[:, None]), fitted.means, fitted.variances)
        cell_of, row_of, component, shares, densities = _assigned(kept, held, threshold, BLOCK_ROWS, labels)
    shift = np.log(n_expected) - n_dims * np.log(to_numpy(xp, scales))
    evidence = densities[cell_of, row_of].astype(np.float64) + shift[cell_of]
    component = (np.cumsum(is_kept, axis=1) - 1)[cell_of, component]
    bounds = np.searchsorted(cell_of, np.arange(n_batch + 1))
    for number, (first, last) in enumerate(pairwise(bounds.tolist())):
        part = slice(first, last)
        kept_count = int(is_kept[number].sum())
        yield Memberships(row_of[part], component[part], shares[part], evidence[part], kept_count)


def _fit(xp: Any, rows: Any, labels: Any, n_labels: Any, n_components: int) -> _Mixtures:
    """Return mixtures that start from labels, after expectation and maximisation.

    A mixture changes until its likelihood rises by less than the tolerance, whatever the others of the batch do.

    Args:
        xp: numpy or CuPy.
        rows: (b, n, d) float32 standardised rows, zeros behind those of a cell.
        labels: (b, n) component of each row, −1 behind the rows of a cell.
        n_labels: (b,) components of each cell.
        n_components: maximum of them, k.
    """
    is_row, numbers = labels >= 0, xp.arange(n_components)
    is_there = numbers < n_labels[:, None]
    n_rows = is_row.sum(axis=1)
    squares = (rows * rows).sum(axis=(1, 2), dtype=np.float64)

    def maximised(counts: Any, sums: Any, freedom: Any) -> tuple[Any, Any, Any]:
        counts = xp.where(is_there, xp.maximum(counts, MIN_COUNT), 0.0)
        means = sums / xp.maximum(counts, MIN_COUNT)[:, :, None]
        spread = squares - (counts * (means**2).sum(axis=2)).sum(axis=1)
        variances = xp.maximum(spread / (freedom * rows.shape[2]), MIN_VARIANCE)
        return counts / counts.sum(axis=1, keepdims=True), means.astype(np.float32), variances

    def summed(shares_of: Callable[[slice], tuple[Any, Any]]) -> tuple[Any, Any, Any]:
        totals = 0.0, 0.0, 0.0
        for first in range(0, rows.shape[1], BLOCK_ROWS):
            part = slice(first, first + BLOCK_ROWS)
            shares, densities = shares_of(part)
            shares *= is_row[:, part, None]
            added = (
                shares.sum(axis=1, dtype=np.float64),
                (shares.transpose(0, 2, 1) @ rows[:, part]).astype(np.float64),
                (densities * is_row[:, part]).sum(axis=1, dtype=np.float64),
            )
            totals = tuple(total + more for total, more in zip(totals, added, strict=True))
        return totals

    def planted(part: slice) -> tuple[Any, Any]:
        return (labels[:, part, None] == numbers).astype(np.float32), xp.zeros((1, 1))

    counts, sums, _ = summed(planted)
    current = maximised(counts, sums, xp.maximum(n_rows - n_labels, 1))
    before, is_rising = xp.full(len(rows), -np.inf), n_rows > 0
    for _ in range(MAX_ITERATIONS):
        mixtures = _Mixtures(xp, *current)
        counts, sums, likelihood = summed(partial(_shares_of, mixtures, rows))
        found = maximised(counts, sums, n_rows)
        current = tuple(
            xp.where(is_rising.reshape(-1, *(1,) * (new.ndim - 1)), new, old)
            for new, old in zip(found, current, strict=True)
        )
        is_rising &= likelihood - before >= TOLERANCE * n_rows
        before = likelihood
        if not is_rising.any():
            break
    return _Mixtures(xp, *current)


def _shares_of(mixtures: _Mixtures, rows: Any, part: slice) -> tuple[Any, Any]:
    return mixtures.shares(rows[:, part])


def _assigned(
    mixtures: _Mixtures, rows: Any, threshold: float, block_rows: int, labels: IntVector | None = None
) -> tuple[IntVector, IntVector, IntVector, NDArray[np.float32], NDArray[np.float32]]:
    """Return the cell, row, component and share of each membership, sorted, and the (b, n) log densities.

    Args:
        mixtures: Mixtures of b cells.
        rows: (b, n, d) of the device or numpy.
        threshold: responsibility that makes a member; the best component always does.
        block_rows: rows of a product.
        labels: (b, n), −1 for what is not a row; None if all are rows.
    """
    xp = mixtures.xp
    columns: list[list[Any]] = [[np.zeros(0, np.int64)], [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]]
    columns += [[np.zeros(0, np.float32)], [np.zeros((len(rows), 0), np.float32)]]
    for first in range(0, rows.shape[1], block_rows):
        shares, densities = mixtures.shares(xp.asarray(rows[:, first : first + block_rows]))
        keep = shares >= threshold
        keep |= xp.arange(shares.shape[2]) == shares.argmax(axis=2)[:, :, None]
        if labels is not None:
            keep &= xp.asarray(labels[:, first : first + block_rows] >= 0)[:, :, None]
        cell, row, component = xp.nonzero(keep)
        found = (cell, row + first, component, shares[cell, row, component], densities.astype(np.float32))
        for column, values in zip(columns, found, strict=True):
            column.append(to_numpy(xp, values))
    *entries, log_densities = (np.concatenate(column, axis=-1) for column in columns)
    order = np.argsort(entries[0], kind="stable")
    cell, row, component, share = (column[order] for column in entries)
    return cell.astype(np.int64), row.astype(np.int64), component.astype(np.int64), share, log_densities


def _standardised(xp: Any, rows: Any, is_row: Any) -> tuple[Any, Any]:
    """Return the rows of each cell as `standardised` gives them, zeros behind them, and the (b,) factors."""
    n_rows = is_row.sum(axis=1)
    means = rows.sum(axis=1, dtype=np.float64) / n_rows[:, None]
    rows = xp.where(is_row[:, :, None], rows - means.astype(np.float32)[:, None], np.float32(0))
    scales = xp.sqrt(xp.square(rows, dtype=np.float64).sum(axis=(1, 2)) / (n_rows * rows.shape[2]))
    scales = xp.where(scales > 0, scales, 1.0)
    return rows / scales.astype(np.float32)[:, None, None], scales
