"""Partition of a large layer into overlapping cells by a tree of coarse mixtures, so that fine mixtures stay small.

The cost of a mixture grows with rows times components, and components grow with rows: in cells of a fixed size the
whole grows with n log n. A row is at home in one cell and is seen by others near it, so a cluster on a border is seen
whole. Coarse mixtures have one spherical covariance for all components; they are fitted by k-means.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count

import numpy as np
from numpy.typing import NDArray

from hirag_dist.core.clustering.gaussian_mixture import MIN_COUNT, MIN_VARIANCE, standardised
from hirag_dist.core.clustering.kmeans import lloyd
from hirag_dist.core.clustering.ward import MAX_LEAVES
from hirag_dist.core.groupby import bounds_of
from hirag_dist.protocols import Kernels
from hirag_dist.types import FloatMatrix, GroupSums, IntVector, Mixture

CELL_ROWS = 12_288
SHARD_ROWS = 65_536  # that one worker sums up
_LEAVES_PER_CLUSTER = 3  # of a cell's tree, at least: it is cut into up to two clusters for one that is usual
_CELL_SHARE = 0.02  # from which another cell than its own sees a row: less costs time, more leaves clusters cut
_CLUSTERS_PER_CELL = 25  # about: larger cells cost time and find planted clusters no better
_CELLS_PER_LIMIT = 4  # at least: cells are of uneven size, and see rows of each other
_MAX_CHILDREN = 2_048
_ROOT_ROUNDS = 2  # of k-means over all rows, started from the means of the sample
_SAMPLE_ROWS = 65_536
_SAMPLE_ROWS_A_CELL = 64
_MIN_SAMPLE = 64  # rows needed to split a cell
_MIN_SCALE = 1e-10  # rows closer together than this count as copies
_MIN_CUT = 0.9  # a split that leaves more than this share in one child is refused


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """Settings that determine the clusters of given rows.

    Attributes:
        target_size: members that a cluster should have, about.
        max_size: members that it may have.
        threshold: responsibility that makes a member, in (0, 1).
        cell_rows: rows that a cell should have at most, overlap apart; a layer with no more is one cell.
        shard_rows: rows of a shard: blocks are counted from its first row, so it decides the last bits.
    """

    target_size: int
    max_size: int
    threshold: float
    seed: int
    cell_rows: int = CELL_ROWS
    shard_rows: int = SHARD_ROWS

    @property
    def max_cell_rows(self) -> int:
        """`cell_rows`, or fewer where clusters are so small that the tree of a cell has too few leaves for them."""
        return min(self.cell_rows, MAX_LEAVES * self.target_size // _LEAVES_PER_CLUSTER)


@dataclass(frozen=True, slots=True)
class PartitionNode:
    """One coarse mixture of the tree; it pickles. A child is a node, or the number of a cell."""

    mixture: Mixture
    children: tuple[PartitionNode | int, ...]


@dataclass(frozen=True, slots=True)
class CellMemberships:
    """Cells that see each row, sorted by (row, cell).

    Attributes:
        rows: (n_entries,) int64.
        cells: (n_entries,) int64.
        is_home: (n_entries,) bool, true once for every row: the cell where it has the largest share.
    """

    rows: IntVector
    cells: IntVector
    is_home: NDArray[np.bool_]


def sample_size(n_rows: int, settings: ClusterSettings) -> int:
    """Return the number of rows that `fit_cells` samples: those at `gaussian_mixture.sample_numbers`."""
    return min(n_rows, max(_SAMPLE_ROWS, _SAMPLE_ROWS_A_CELL * _n_cells(n_rows, settings)))


def fit_cells(
    kernels: Kernels,
    sums_of: Callable[[FloatMatrix], GroupSums],
    sample: FloatMatrix,
    n_rows: int,
    settings: ClusterSettings,
) -> PartitionNode | None:
    """Return the coarse mixtures that cut a layer into cells of `max_cell_rows` rows at home at most, about.

    None: the layer is one cell.

    The root starts from the sample and is fitted to all rows; nodes below it are fitted to the sample alone.

    Args:
        sums_of: sums of all rows by their nearest mean, as `kmeans.lloyd` takes it.
        sample: rows at `sample_numbers(n_rows, sample_size(n_rows, settings), settings.seed)`, finite.
    """
    if n_rows <= settings.max_cell_rows:
        return None
    rows_each = n_rows / len(sample)
    start = coarse_mixture(kernels, sample, _n_cells(n_rows, settings), settings)
    means, sums = lloyd(sums_of, start.means, _ROOT_ROUNDS)
    fitted = _mixture(means, sums.counts, sums.spread, start.min_variance)
    root = _grow(kernels, fitted, sample, rows_each, settings, count())
    return root if isinstance(root, PartitionNode) else None


def assign_cells(kernels: Kernels, rows: FloatMatrix, root: PartitionNode | None) -> CellMemberships:
    """Return the cells that see each row: its home, and every other where its share passes a threshold.

    Args:
        rows: (n, d) float32, finite: one shard, since blocks are counted from its first row.
        root: root of the tree; None for a layer that is one cell.
    """
    n_rows = len(rows)
    everyone, whole = np.arange(n_rows), np.ones(n_rows, np.float32)
    if root is None:
        return CellMemberships(everyone, np.zeros(n_rows, np.int64), np.ones(n_rows, bool))
    found = list(_descend(kernels, rows, everyone, whole, root))
    numbers, at, shares = (np.concatenate(parts) for parts in zip(*found, strict=True))
    order = np.lexsort((at, numbers))
    numbers, at, shares = numbers[order], at[order], shares[order]
    is_home = largest_of_row(numbers, shares)
    keep = (shares >= _CELL_SHARE) | is_home
    return CellMemberships(numbers[keep], at[keep], is_home[keep])


def largest_of_row(rows: IntVector, shares: NDArray[np.float32]) -> NDArray[np.bool_]:
    """Return a mask of the entry with the largest share of each row; ties go to the first."""
    order = np.lexsort((np.arange(len(rows)), -shares, rows))
    largest = np.zeros(len(rows), bool)
    largest[order[np.flatnonzero(np.diff(rows[order], prepend=-1))]] = True
    return largest


def coarse_mixture(kernels: Kernels, rows: FloatMatrix, n_components: int, settings: ClusterSettings) -> Mixture:
    """Return a mixture fitted to rows of any scale, in their own scale.

    Args:
        rows: (n, d) float32, finite, n ≥ 1.
        n_components: at most as many are fitted as there are rows, and as a node may have children.
    """
    scaled, shift, scale = standardised(rows)
    if scale < _MIN_SCALE:  # their squares leave the range of float32
        scaled, scale = np.zeros_like(rows), 1.0
    means, sums = kernels.kmeans(scaled, min(n_components, len(rows), _MAX_CHILDREN), settings.seed)
    placed = (means * np.float64(scale) + shift).astype(np.float32)
    return _mixture(placed, sums.counts, sums.spread * scale**2, MIN_VARIANCE * scale**2)


def _mixture(means: FloatMatrix, counts: IntVector, spread: float, min_variance: float) -> Mixture:
    """Return the mixture of means, the numbers of rows nearest to them, and their squared distances together."""
    n_rows = float(counts.sum())
    variance = max(spread / (n_rows * means.shape[1]), min_variance)
    weights = np.maximum(counts, MIN_COUNT) / n_rows
    return Mixture(weights / weights.sum(), means, float(np.float32(variance)), min_variance)


def _n_cells(n_rows: float, settings: ClusterSettings) -> int:
    mean_rows = min(_CLUSTERS_PER_CELL * settings.target_size, settings.max_cell_rows / _CELLS_PER_LIMIT)
    return 1 + int(n_rows / mean_rows)


def _grow(
    kernels: Kernels,
    mixture: Mixture,
    sample: FloatMatrix,
    rows_each: float,
    settings: ClusterSettings,
    numbers: Iterator[int],
) -> PartitionNode | int:
    """Return the subtree below a mixture of the sample, or the number of a cell where the mixture does not split it.

    Args:
        sample: rows that reached this node.
        rows_each: rows of the layer that one of the sample stands for.
    """
    labels = kernels.assign(sample, mixture, 1.0).components
    sizes = np.bincount(labels, minlength=mixture.n_components)
    if sizes.max() > _MIN_CUT * len(sample):
        return next(numbers)
    children: list[PartitionNode | int] = []
    for child, size in enumerate(sizes):
        if size * rows_each <= settings.max_cell_rows or size < _MIN_SAMPLE:
            children.append(next(numbers))
            continue
        inside = sample[labels == child]
        below = coarse_mixture(kernels, inside, _n_cells(size * rows_each, settings), settings)
        children.append(_grow(kernels, below, inside, rows_each, settings, numbers))
    return PartitionNode(mixture, tuple(children))


def _descend(
    kernels: Kernels,
    rows: FloatMatrix,
    numbers: IntVector,
    shares: NDArray[np.float32],
    node: PartitionNode,
) -> Iterator[tuple[IntVector, IntVector, NDArray[np.float32]]]:
    """Yield (row numbers, cells, shares) of the cells below a node.

    A row's shares are those among the cells that it is in; they multiply on the way down.
    """
    found = kernels.assign(rows, node.mixture, _CELL_SHARE)
    among = found.shares / np.bincount(found.rows, found.shares, len(rows))[found.rows]
    order = np.argsort(found.components, kind="stable")
    at, components = found.rows[order], found.components[order]
    below = among[order].astype(np.float32) * shares[at]
    bounds = bounds_of(components, len(node.children))
    for child, first, last in zip(node.children, bounds[:-1], bounds[1:], strict=True):
        part = at[first:last]
        if not len(part):
            continue
        if isinstance(child, PartitionNode):
            yield from _descend(kernels, rows[part], numbers[part], below[first:last], child)
        else:
            yield numbers[part], np.full(len(part), child), below[first:last]
