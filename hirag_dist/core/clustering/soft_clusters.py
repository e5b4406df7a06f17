"""Soft, overlapping clusters of a layer (paper Eq. 8), from one row to a hundred million.

A layer larger than a cell is partitioned into overlapping cells (`partition_tree`). The rows of each cell are merged in
a tree (`ward`); the trees of all cells are cut at one height (`cluster_count`), and a mixture is fitted in each cell
from the clusters of the cut. A cluster on a border is seen by the cells on both sides, and the one where most of it is
at home keeps it. The components that all cells keep are one mixture of the layer, with their expected rows as weights:
the responsibilities of a row are its posterior probabilities under it. Cells are independent but for the height, so any
worker may take any cell. A cluster too large for one prompt is split again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hirag_dist.core.clustering.gaussian_mixture import sample_numbers
from hirag_dist.core.clustering.partition_tree import (
    ClusterSettings,
    assign_cells,
    fit_cells,
    largest_of_row,
    sample_size,
)
from hirag_dist.core.clustering.ward import cut_height, row_tree, row_trees
from hirag_dist.protocols import Kernels
from hirag_dist.types import FloatMatrix, FloatVector, GroupSums, IntVector, LabelledCell, Memberships

Cell = tuple[IntVector, NDArray[np.bool_]]  # a cell's rows, and whether they are at home


@dataclass(frozen=True, slots=True)
class SoftClusters:
    """Overlapping clusters of rows, one entry a membership, sorted by (cluster, row).

    Attributes:
        clusters: (n_entries,) int64, from 0 on, none empty.
        rows: (n_entries,) int64.
        responsibilities: (n_entries,) float32; those of a row add up to 1 less what the threshold leaves out.
        best: (n_entries,) whether this is the row's most likely cluster; true once for every row.
        n_components: of the mixture, over all cells, before splitting.
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


def soft_clusters(rows: FloatMatrix, settings: ClusterSettings, kernels: Kernels) -> SoftClusters:
    """Group rows into overlapping clusters that cover all of them (Eq. 8).

    A row belongs to every cluster whose responsibility passes the threshold, and always to its best one.

    Args:
        rows: (n, d) float32 reduced embeddings, n ≥ 1; may be memory-mapped.

    Raises:
        ValueError: no rows.
    """
    if not len(rows):
        raise ValueError("clusters need at least one row")
    rows = np.nan_to_num(rows, nan=0.0, posinf=0.0, neginf=0.0)
    cells = _cells_of(rows, settings, kernels)

    trees = row_trees([rows[numbers] for numbers, _ in cells], kernels.trees)
    weights = [tree.weights(cell[1]) for tree, cell in zip(trees, cells, strict=True)]
    height = layer_height([tree.heights for tree in trees], weights, len(rows), rows.shape[1], settings)
    labelled = [
        LabelledCell(rows[numbers], tree.labels(height), is_home)
        for (numbers, is_home), tree in zip(cells, trees, strict=True)
    ]
    memberships = kernels.memberships(labelled, settings.threshold)
    return join_cells(rows, zip((numbers for numbers, _ in cells), memberships, strict=True), settings)


def _cells_of(rows: FloatMatrix, settings: ClusterSettings, kernels: Kernels) -> list[Cell]:
    """Return the cells where a row is at home."""
    n_rows = len(rows)
    if n_rows <= settings.max_cell_rows:
        return [(np.arange(n_rows), np.ones(n_rows, bool))]
    shards = [slice(first, first + settings.shard_rows) for first in range(0, n_rows, settings.shard_rows)]

    def sums_of(means: FloatMatrix) -> GroupSums:
        return reduce(add, (kernels.nearest_sums(rows[shard], means) for shard in shards))

    numbers = sample_numbers(n_rows, sample_size(n_rows, settings), settings.seed)
    tree = fit_cells(kernels, sums_of, rows[numbers], n_rows, settings)
    found = [assign_cells(kernels, rows[shard], tree) for shard in shards]
    members = np.concatenate([each.rows + shard.start for each, shard in zip(found, shards, strict=True)])
    cell_of = np.concatenate([each.cells for each in found])
    is_home = np.concatenate([each.is_home for each in found])
    order = np.argsort(cell_of, kind="stable")
    ends = np.flatnonzero(np.diff(cell_of[order])) + 1
    parts = zip(np.split(members[order], ends), np.split(is_home[order], ends), strict=True)
    return [part for part in parts if part[1].any()]


def layer_height(
    heights: list[FloatVector], weights: list[FloatVector], n_rows: int, n_dims: int, settings: ClusterSettings
) -> float:
    """Return the height at which the trees of all cells are cut.

    Args:
        weights: of each tree, as `RowTree.weights` gives them.
    """
    inner = np.concatenate([each[:-1] for each in weights])
    n_roots = float(sum(each[-1] for each in weights))
    return cut_height(np.concatenate(heights), inner, n_roots, n_rows, settings.target_size, n_dims)


def responsibilities(
    rows: IntVector, cells: IntVector, shares: NDArray[np.float32], evidence: FloatVector
) -> NDArray[np.float32]:
    """Return (n_entries,) the posterior probabilities of memberships, over all cells that see a row.

    That of cluster k in cell c is n_c p_c(x) p_c(k | x) / Σ n_c' p_c'(x), over the cells c' that see row x.

    Args:
        rows: (n_entries,) int64, from 0 on.
        cells: (n_entries,) int64, ascending.
        shares: (n_entries,) p_c(k | x).
        evidence: (n_entries,) log n_c p_c(x), equal for the entries of one row and cell.
    """
    top = np.full(int(rows.max(initial=-1)) + 1, -np.inf)
    np.maximum.at(top, rows, evidence)
    weights = np.exp(evidence - top[rows])
    order = np.lexsort((cells, rows))
    first = order[np.flatnonzero(np.diff(rows[order], prepend=-1) | np.diff(cells[order], prepend=-1))]
    sums = np.bincount(rows[first], weights[first], len(top))
    found: NDArray[np.float32] = (shares * (weights / sums[rows])).astype(np.float32)
    return found


def join_cells(
    rows: FloatMatrix, parts: Iterable[tuple[IntVector, Memberships]], settings: ClusterSettings
) -> SoftClusters:
    """Return the clusters of all cells as those of the layer.

    A membership below the threshold stays only where it is its row's best over all cells; of equal responsibilities the
    earlier cell and component has the best one. Clusters that end up with the same members are one, with their larger
    responsibilities.

    Args:
        rows: (n, d) float32 of the layer.
        parts: for each cell in order, the layer's rows in it, ascending, and their memberships. Every row is in one.
    """
    columns: list[list[Any]] = [[], [], [], [], []]
    n_components = 0
    for number, (members, part) in enumerate(parts):
        order = np.lexsort((part.rows, part.components))
        cells = np.full(len(order), number)
        values: list[Any] = [part.components + n_components, members[part.rows], cells, part.shares, part.evidence]
        for column, value in zip(columns, values, strict=True):
            column.append(value[order])
        n_components += part.n_components
    clusters, inside, *rest = (np.concatenate(column) for column in columns)
    share = responsibilities(inside, *rest)
    best = largest_of_row(inside, share)
    keep = best | (share >= np.float32(settings.threshold))
    clusters, inside, share, best = clusters[keep], inside[keep], share[keep], best[keep]
    ends = np.flatnonzero(np.diff(clusters)) + 1
    distinct: dict[bytes, tuple[IntVector, NDArray[np.float32], NDArray[np.bool_]]] = {}
    for whole in zip(*(np.split(column, ends) for column in (inside, share, best)), strict=True):
        labels = split_labels(rows[whole[0]], settings)
        for label in range(int(labels.max()) + 1):
            cluster = tuple(column[labels == label] for column in whole)
            key = cluster[0].tobytes()
            if key in distinct:
                first = distinct[key]
                cluster = (first[0], np.maximum(first[1], cluster[1]), first[2] | cluster[2])
            distinct[key] = cluster
    merged = distinct.values()
    numbers = np.repeat(np.arange(len(merged)), [len(cluster[0]) for cluster in merged])
    inside, share, best = map(np.concatenate, zip(*merged, strict=True))
    return SoftClusters(numbers, inside, share, best, n_components)


def split_labels(rows: FloatMatrix, settings: ClusterSettings) -> IntVector:
    """Return (n,) the part of each member of a cluster, from 0 on, none of more than `max_size`.

    Args:
        rows: (n, d) float32 of the members, in the order of the layer; indistinguishable ones are split by rank.
    """
    n_rows = len(rows)
    labels = np.zeros(n_rows, np.int64)
    if n_rows <= settings.max_size:
        return labels
    n_parts = -(-2 * n_rows // (settings.target_size + settings.max_size))
    first = row_tree(rows).cut(n_parts)
    if not first.any():
        first = np.arange(n_rows) * n_parts // n_rows
    for part in range(int(first.max()) + 1):
        inside = first == part
        labels[inside] = split_labels(rows[inside], settings) + labels.max() + (part > 0)
    return labels
