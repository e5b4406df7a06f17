"""Soft, overlapping clusters of a layer (paper Eq. 8), from one row to a hundred million.

A layer larger than a cell is partitioned into overlapping cells (`partition_tree`). In each cell a fine mixture is
chosen by BIC over a geometric grid. The responsibility of a row for a cluster is that within the cell times the share
of the cluster in the cell. Cells are independent, so any worker may cluster any cell. A cluster too large for one
prompt is split again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hirag_dist.core.clustering.bic_selection import choose_mixture
from hirag_dist.core.clustering.gaussian_mixture import sample_numbers, standardise, total
from hirag_dist.core.clustering.partition_tree import (
    ClusterSettings,
    assign_cells,
    coarse_mixture,
    fit_cells,
    largest_of_row,
    sample_size,
)
from hirag_dist.protocols import Kernels
from hirag_dist.types import Assignment, FloatMatrix, IntVector, Mixture, MixtureStatistics

_MIN_ODDS = 1e-3  # bound of a row's share, so that no row decides alone
_MAX_ODDS = 30.0  # bound of the log odds of a cluster, in nats: its share stays above 0

Part = tuple[IntVector, NDArray[np.float32]]  # a cluster's rows, and their shares


@dataclass(frozen=True, slots=True)
class Memberships:
    """Rows of one cell in its clusters, sorted by (cluster, row).

    A membership is there where its share passes the threshold, or is the row's largest in this cell: whether it is the
    largest of all cells shows when they are joined.

    Attributes:
        clusters: (n_entries,) int64, from 0 in each cell, none empty.
        rows: (n_entries,) int64, positions within the cell.
        shares: (n_entries,) float32: the row's in the cluster times the cluster's in the cell.
        n_components: chosen by BIC before splitting.
    """

    clusters: IntVector
    rows: IntVector
    shares: NDArray[np.float32]
    n_components: int


@dataclass(frozen=True, slots=True)
class SoftClusters:
    """Overlapping clusters of rows, one entry a membership, sorted by (cluster, row).

    Attributes:
        clusters: (n_entries,) cluster of each membership, 0 … n_clusters − 1, none empty.
        rows: (n_entries,) member row.
        responsibilities: (n_entries,) posterior share, float32.
        best: (n_entries,) whether this is the row's most likely cluster; true once for every row.
        n_components: chosen by BIC before splitting, over all cells.
    """

    clusters: IntVector
    rows: IntVector
    responsibilities: NDArray[np.float32]
    best: NDArray[np.bool_]
    n_components: int

    @property
    def sizes(self) -> IntVector:
        """(n_clusters,) members of each cluster."""
        return np.bincount(self.clusters)


def soft_clusters(
    rows: FloatMatrix,
    settings: ClusterSettings,
    kernels: Kernels,
    map_cells: Callable[[Callable[[Part], Memberships], Iterable[Part]], Iterable[Memberships]] = map,
) -> SoftClusters:
    """Group rows into overlapping clusters that cover all of them (Eq. 8).

    A row belongs to every cluster whose responsibility passes the threshold, and always to its best one.

    Args:
        rows: (n, d) float32 reduced embeddings, n ≥ 1; may be memory-mapped.
        settings: sizes, threshold and seed.
        kernels: does the products.
        map_cells: applies a function to the rows and shares of each cell, in order, perhaps in several processes.

    Raises:
        ValueError: no rows.
    """
    n_rows = len(rows)
    if not n_rows:
        raise ValueError("clusters need at least one row")
    if n_rows <= settings.whole_rows:
        whole = cluster_cell(kernels, rows, np.ones(n_rows, np.float32), settings, settings.seed)
        return join_cells([(np.arange(n_rows), whole)], settings.threshold)
    rows = np.nan_to_num(rows, nan=0.0, posinf=0.0, neginf=0.0)
    shards = [slice(first, first + settings.shard_rows) for first in range(0, n_rows, settings.shard_rows)]

    def statistics_of(mixture: Mixture) -> MixtureStatistics:
        return total(kernels.statistics(rows[shard], mixture) for shard in shards)

    def cluster(part: Part) -> Memberships:
        return cluster_cell(kernels, rows[part[0]], part[1], settings, settings.seed)

    numbers = sample_numbers(n_rows, sample_size(n_rows, settings), settings.seed)
    cells = fit_cells(kernels, statistics_of, rows[numbers], n_rows, settings)
    shard_cells = [assign_cells(kernels, rows[shard], cells) for shard in shards]
    members = np.concatenate(
        [cells_of_shard.rows + shard.start for cells_of_shard, shard in zip(shard_cells, shards, strict=True)]
    )
    cell_of = np.concatenate([entry.cells for entry in shard_cells])
    shares = np.concatenate([entry.shares for entry in shard_cells])
    order = np.argsort(cell_of, kind="stable")
    ends = np.flatnonzero(np.diff(cell_of[order])) + 1
    parts = list(zip(np.split(members[order], ends), np.split(shares[order], ends), strict=True))
    memberships = map_cells(cluster, parts)
    return join_cells(zip((part[0] for part in parts), memberships, strict=True), settings.threshold)


def cluster_cell(
    kernels: Kernels, rows: FloatMatrix, shares: NDArray[np.float32], settings: ClusterSettings, seed: int
) -> Memberships:
    """Return the clusters within one cell.

    Args:
        kernels: does the products.
        rows: (n, d) float32 rows of the cell, in the order of the layer, n ≥ 1.
        shares: (n,) of each row in the cell.
        settings: sizes, threshold and covariance.
        seed: of the starts.
    """
    if len(rows) > settings.whole_rows:
        return _cluster_parts(kernels, rows, shares, settings, seed)
    scaled = standardise(rows)
    mixture = choose_mixture(kernels, scaled, settings)
    assignment = kernels.assign(scaled, mixture, settings.threshold)
    products = assignment.shares * _cluster_shares(assignment, shares, mixture.n_components)[assignment.components]
    keep = (products >= settings.threshold) | largest_of_row(assignment.rows, products)
    members, clusters, products = assignment.rows[keep], assignment.components[keep], products[keep]
    order = np.lexsort((members, clusters))
    members, clusters, products = members[order], clusters[order], products[order]
    ends = np.flatnonzero(np.diff(clusters)) + 1
    parts: list[Part] = []
    for part in zip(np.split(members, ends), np.split(products, ends), strict=True):
        parts.extend(_split(kernels, scaled, part, settings, seed))
    parts.sort(key=lambda part: (int(part[0][0]), len(part[0]), part[0].tobytes()))
    return Memberships(
        np.repeat(np.arange(len(parts)), [len(inside) for inside, _ in parts]),
        np.concatenate([inside for inside, _ in parts]),
        np.concatenate([share for _, share in parts]),
        mixture.n_components,
    )


def join_cells(parts: Iterable[tuple[IntVector, Memberships]], threshold: float) -> SoftClusters:
    """Return the clusters of all cells as those of the layer.

    A membership below the threshold stays only where it is its row's best over all cells; of equal shares the earlier
    cell and cluster has the best one. Clusters that end up with the same members are one, with their larger shares.

    Args:
        parts: for each cell in order, the layer's rows in it, ascending, and their memberships. Every row is in one.
        threshold: of memberships.
    """
    cluster_parts, row_parts, share_parts = [], [], []
    n_clusters = n_components = 0
    for members, part in parts:
        cluster_parts.append(part.clusters + n_clusters)
        row_parts.append(members[part.rows])
        share_parts.append(part.shares)
        n_clusters += int(part.clusters[-1]) + 1
        n_components += part.n_components
    clusters, inside, share = np.concatenate(cluster_parts), np.concatenate(row_parts), np.concatenate(share_parts)
    best = largest_of_row(inside, share)
    keep = best | (share >= threshold)
    clusters, inside, share, best = clusters[keep], inside[keep], share[keep], best[keep]
    ends = np.flatnonzero(np.diff(clusters)) + 1
    distinct: dict[bytes, tuple[IntVector, NDArray[np.float32], NDArray[np.bool_]]] = {}
    for cluster in zip(*(np.split(column, ends) for column in (inside, share, best)), strict=True):
        key = cluster[0].tobytes()
        if key in distinct:
            first = distinct[key]
            cluster = (first[0], np.maximum(first[1], cluster[1]), first[2] | cluster[2])
        distinct[key] = cluster
    merged = distinct.values()
    return SoftClusters(
        np.repeat(np.arange(len(merged)), [len(cluster[0]) for cluster in merged]),
        np.concatenate([cluster[0] for cluster in merged]),
        np.concatenate([cluster[1] for cluster in merged]),
        np.concatenate([cluster[2] for cluster in merged]),
        n_components,
    )


def _cluster_shares(assignment: Assignment, shares: NDArray[np.float32], n_clusters: int) -> NDArray[np.float32]:
    """Return (n_clusters,) the share of each cluster that belongs to this cell.

    A cluster on a border appears in the cells on both sides. Its members belong together, so their odds of lying in
    this cell multiply, and the cluster goes to the cell that holds more of it; decided row by row, it would be kept
    twice.
    """
    inside = np.clip(shares.astype(np.float64), _MIN_ODDS, 1 - _MIN_ODDS)
    odds = (np.log(inside) - np.log1p(-inside))[assignment.rows] * assignment.shares
    together = np.clip(np.bincount(assignment.components, odds, n_clusters), -_MAX_ODDS, _MAX_ODDS)
    shared = np.bincount(assignment.components, shares[assignment.rows] < 1, n_clusters) > 0
    return np.where(shared, 1 / (1 + np.exp(-together)), 1.0).astype(np.float32)


def _split(kernels: Kernels, rows: FloatMatrix, part: Part, settings: ClusterSettings, seed: int) -> list[Part]:
    """Split a cluster until its parts are small enough; members that are indistinguishable are split by rank."""
    members, shares = part
    if len(members) <= settings.max_size:
        return [part]
    inside = standardise(rows[members])
    n_parts = -(-2 * len(members) // (settings.target_size + settings.max_size))
    labels = _cut(
        kernels.assign(inside, kernels.em(inside, n_parts, seed, settings.covariance), 1.0).components, n_parts
    )
    parts: list[Part] = []
    for label in np.unique(labels):
        chosen = labels == label
        parts.extend(_split(kernels, rows, (members[chosen], shares[chosen]), settings, seed))
    return parts


def _cluster_parts(
    kernels: Kernels, rows: FloatMatrix, shares: NDArray[np.float32], settings: ClusterSettings, seed: int
) -> Memberships:
    """Return the clusters of a cell that is too large, treated as several cells without overlap."""
    finite = np.nan_to_num(rows, nan=0.0, posinf=0.0, neginf=0.0)
    n_parts = -(-2 * len(rows) // settings.cell_rows)
    sample = finite[sample_numbers(len(rows), sample_size(len(rows), settings), seed)]
    mixture = coarse_mixture(kernels, sample, n_parts, settings)
    labels = _cut(kernels.assign(finite, mixture, 1.0).components, n_parts)
    clusters, members, kept = [], [], []
    n_clusters = n_components = 0
    for label in np.unique(labels):
        inside = np.flatnonzero(labels == label)
        part = cluster_cell(kernels, finite[inside], shares[inside], settings, seed)
        clusters.append(part.clusters + n_clusters)
        members.append(inside[part.rows])
        kept.append(part.shares)
        n_clusters += int(part.clusters[-1]) + 1
        n_components += part.n_components
    return Memberships(np.concatenate(clusters), np.concatenate(members), np.concatenate(kept), n_components)


def _cut(labels: IntVector, n_parts: int) -> IntVector:
    """Return the labels, or parts of equal size by rank where nearly all labels are the same."""
    n_rows = len(labels)
    return np.arange(n_rows) * n_parts // n_rows if np.bincount(labels).max() == n_rows else labels
