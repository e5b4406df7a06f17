"""Clusters of a layer that changed little: members stay, new rows join clusters that fit, the rest forms new ones.

A cluster accepts a row whose similarity to its centroid reaches a low quantile of its members' similarities. Rows that
no cluster accepts are grouped among themselves by the same mixtures as a whole layer (`soft_clusters`, Eq. 8). A
cluster that has lost most of its members, or has exchanged as many as it was founded with, is dissolved, and its
members are placed again: each row takes part in O(log n) such steps while a layer grows, as in a log-structured merge.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hirag_dist.core.arrays import compiled, finite_products
from hirag_dist.core.clustering.partition_tree import largest_of_row
from hirag_dist.core.groupby import bounds_of, spans
from hirag_dist.core.vectors import VectorParts, Vectors, parts_of, vector_of
from hirag_dist.types import FloatMatrix, FloatVector, IntVector


def group_sums(vectors: Vectors, rows: IntVector, bounds: IntVector) -> FloatMatrix:
    """Return (n_groups, dim) float32 the sum of the rows of each group, added in their order.

    Args:
        vectors: (n, dim) float32.
        rows: (n_entries,) of all groups, one group after the other.
        bounds: (n_groups + 1,) where each begins in `rows`.
    """
    sums: FloatMatrix = _group_sums(parts_of(vectors), rows.astype(np.int64), bounds)
    return sums


@compiled
def _group_sums(vectors: VectorParts, rows: IntVector, bounds: IntVector) -> Any:
    sums = np.zeros((len(bounds) - 1, vectors.stored.shape[1]), np.float32)
    for group in range(len(sums)):
        for at in range(bounds[group], bounds[group + 1]):
            vector = vector_of(vectors, rows[at])
            for dim in range(len(vector)):
                sums[group, dim] += vector[dim]
    return sums


_MIN_RATIO = 0.955  # of compactness; below it clusters are made again, before drift counts as too large (0.95)
_WANTED_RATIO = 0.965
_COSINE_ROWS = 65_536


def loose_clusters(
    vectors: Vectors, labels: IntVector, shadow: IntVector, n_clusters: int, max_loose: int | None = None
) -> NDArray[np.bool_]:
    """Return the clusters to make again so that a layer is about as compact as one clustered from nothing.

    Those go first whose members lose most similarity to their centroid in comparison with the shadow; none where the
    layer's compactness, the mean cosine of rows to their cluster's centroid, is within 4.5 % of the shadow's.

    Args:
        vectors: (n, dim) float32, unit length or zero.
        labels: (n,) int64 best cluster of each row.
        shadow: (n,) int64 best cluster of each row in the clusters made from nothing.
        max_loose: that are made again at most, None for no limit.

    Returns:
        (n_clusters,) bool.
    """
    own, other = row_cosines(vectors, labels), row_cosines(vectors, shadow)
    loose = np.zeros(n_clusters, bool)
    if own.sum() >= _MIN_RATIO * other.sum():
        return loose
    deficits = np.bincount(labels, other - own, minlength=n_clusters)
    order = np.argsort(-deficits, kind="stable")
    gained = own.sum() + np.cumsum(deficits[order])
    n_loose = int(np.searchsorted(gained, _WANTED_RATIO * other.sum())) + 1
    chosen = order[: n_loose if max_loose is None else min(n_loose, max_loose)]
    loose[chosen[deficits[chosen] > 0]] = True
    return loose


def row_cosines(vectors: Vectors, labels: IntVector) -> FloatVector:
    """Return (n,) the cosine of each row and the mean of its cluster's rows.

    Args:
        vectors: (n, dim) float32, unit length or zero.
        labels: (n,) int64, ≥ 0.
    """
    n_clusters = int(labels.max(initial=-1)) + 1
    order = np.argsort(labels, kind="stable")
    sums = group_sums(vectors, order, bounds_of(labels, n_clusters))
    lengths = np.maximum(np.linalg.norm(sums, axis=1), 1e-12)
    found = np.empty(len(labels))
    for first in range(0, len(labels), _COSINE_ROWS):
        at = slice(first, first + _COSINE_ROWS)
        found[at] = np.einsum("ij,ij->i", vectors[at], sums[labels[at]]) / lengths[labels[at]]
    return found


_QUANTILE = 0.1  # of the members' similarities to their centroid, which a row must reach to join
_MIN_QUANTILE_SIZE = 5  # smaller clusters: their least similar member decides
_N_NEAREST = 8  # clusters that a row tries
_MIN_NEW = 3  # smaller new clusters join the nearest ones
_BLOCK_ROWS = 1024
_BLOCK_VALUES = 1 << 23  # similarities at a time, 16 bytes each
_LEFT_SHARE = 1 / 3  # of the founding members; a cluster with fewer is dissolved

GroupRows = Callable[[IntVector], tuple[IntVector, IntVector, NDArray[np.float32]]]


@dataclass(frozen=True, slots=True)
class AnchoredMemberships:
    """Rows in clusters, one entry a membership, sorted by (cluster, row).

    Attributes:
        clusters: (n_entries,) int64, from 0 on, none empty.
        rows: (n_entries,) int64.
        responsibilities: (n_entries,) float32.
        best: (n_entries,) bool; true once for every row.
        previous: (n_clusters,) int64 number of the previous cluster that it continues; −1 for a new one.
        n_turned: (n_clusters,) int64 members that joined or left since it was founded.
    """

    clusters: IntVector
    rows: IntVector
    responsibilities: NDArray[np.float32]
    best: NDArray[np.bool_]
    previous: IntVector
    n_turned: IntVector


@dataclass(frozen=True, slots=True)
class PreviousClusters:
    """Clusters before the change, over the rows of now.

    Attributes:
        clusters: (n_entries,) int64 cluster of each membership that still exists.
        rows: (n_entries,) int64 member row.
        responsibilities: (n_entries,) float32.
        n_clusters: their number, those without remaining members included.
        n_lost: (n_clusters,) int64 members that do not exist any more.
        n_founded: (n_clusters,) int64 members when the cluster was founded.
        n_turned: (n_clusters,) int64 members that joined or left before this change.
    """

    clusters: IntVector
    rows: IntVector
    responsibilities: NDArray[np.float32]
    n_clusters: int
    n_lost: IntVector
    n_founded: IntVector
    n_turned: IntVector


def anchored_clusters(
    vectors: Vectors,
    before: PreviousClusters,
    moved: NDArray[np.bool_],
    hints: IntVector,
    max_size: int,
    group: GroupRows,
    loose: NDArray[np.bool_] | None = None,
) -> AnchoredMemberships:
    """Return the clusters of a layer after a change.

    Args:
        vectors: (n, d) float32, unit length or zero.
        moved: (n,) bool, members whose vector has changed: one that its clusters no longer accept is placed again.
        hints: (n,) int64 previous cluster that a new row should join if it is near enough, −1 for none.
        group: returns (clusters, rows, responsibilities) of some rows, grouped among themselves; every one of these
            rows is in a cluster.
        loose: (n_clusters,) bool, clusters to dissolve in any case (`loose_clusters`).
    """
    n_rows = len(vectors)
    clusters, rows, shares = before.clusters, before.rows, before.responsibilities
    sizes = np.bincount(clusters, minlength=before.n_clusters)
    n_turned = before.n_turned + before.n_lost
    anchors = _Anchors(vectors, clusters, rows, before.n_clusters, ~moved)
    leaves = moved[rows]
    leaves[leaves] = ~anchors.accept(clusters[leaves], rows[leaves])
    n_turned = n_turned + np.bincount(clusters[leaves], minlength=before.n_clusters)
    sizes = sizes - np.bincount(clusters[leaves], minlength=before.n_clusters)
    dissolved = (sizes < np.maximum(np.ceil(before.n_founded * _LEFT_SHARE), 1)) | (n_turned > before.n_founded)
    untouched = n_turned == before.n_turned
    dissolved &= ~untouched
    if loose is not None:
        dissolved |= loose
    kept = ~leaves & ~dissolved[clusters]
    clusters, rows, shares = clusters[kept], rows[kept], shares[kept]
    placed = np.zeros(n_rows, bool)
    placed[rows] = True
    sizes[dissolved] = 0
    rest = np.flatnonzero(~placed)
    joined, rest = _join(anchors, vectors, rest, hints, sizes, ~dissolved & (sizes > 0), max_size)
    fresh, homeless = _new_clusters(group, rest)
    nearest, homeless = _nearest(anchors, vectors, homeless, sizes, max_size)
    groups = np.array_split(homeless, max(-(-len(homeless) // max_size), 1))
    fresh += [(part, np.ones(len(part), np.float32)) for part in groups if len(part)]
    found = np.concatenate([joined, nearest])
    owners = np.concatenate(
        [clusters, found[:, 0], *(np.full(len(new[0]), before.n_clusters + at) for at, new in enumerate(fresh))]
    )
    members = np.concatenate([rows, found[:, 1], *(new[0] for new in fresh)])
    parts = np.concatenate([shares, np.ones(len(found), np.float32), *(new[1] for new in fresh)]).astype(np.float32)
    n_turned = n_turned + np.bincount(found[:, 0], minlength=before.n_clusters)
    order = np.lexsort((members, owners))
    owners, members, parts = owners[order], members[order], parts[order]
    used, numbers = np.unique(owners, return_inverse=True)
    is_new = used >= before.n_clusters
    turned = np.zeros(len(used), np.int64)
    turned[~is_new] = n_turned[used[~is_new]]
    best = largest_of_row(members, parts)
    return AnchoredMemberships(numbers, members, parts, best, np.where(is_new, -1, used), turned)


class _Anchors:
    """Centroids of clusters, and the similarity from which each accepts a row, computed when it is asked for.

    A small change asks for few clusters, and the similarity of a cluster takes the vectors of all its members.
    """

    def __init__(
        self, vectors: Vectors, clusters: IntVector, rows: IntVector, n_clusters: int, steady: NDArray[np.bool_]
    ) -> None:
        self._vectors = vectors
        order = np.lexsort((rows, clusters))
        clusters, rows = clusters[order], rows[order]
        chosen = steady[rows]
        chosen |= (np.bincount(clusters[chosen], minlength=n_clusters) == 0)[clusters]
        clusters, rows = clusters[chosen], rows[chosen]
        self._rows, self._bounds = rows, bounds_of(clusters, n_clusters)
        self._thresholds = np.full(n_clusters, np.nan, np.float32)
        sums = group_sums(vectors, rows, self._bounds)
        norms = np.linalg.norm(sums, axis=1, keepdims=True)
        self.centroids: FloatMatrix = (sums / np.maximum(norms, 1e-12)).astype(np.float32)

    def similarity(self, clusters: IntVector, rows: IntVector) -> NDArray[np.float32]:
        """Return (n,) the cosine of each row and the centroid of its cluster."""
        found = np.empty(len(rows), np.float32)
        for first in range(0, len(rows), 65_536):
            at = slice(first, first + 65_536)
            found[at] = np.einsum("ij,ij->i", self._vectors[rows[at]], self.centroids[clusters[at]])
        return found

    def thresholds(self, clusters: IntVector) -> NDArray[np.float32]:
        """Return, in the shape of `clusters`, the similarity from which each accepts a row; 2 for an empty one."""
        unknown = np.unique(clusters[np.isnan(self._thresholds[clusters])])
        owners, places = spans(self._bounds[unknown], self._bounds[unknown + 1])
        similarities = self.similarity(unknown[owners], self._rows[places])
        self._thresholds[unknown] = _quantiles(similarities, owners, len(unknown))
        found: NDArray[np.float32] = self._thresholds[clusters]
        return found

    def accept(self, clusters: IntVector, rows: IntVector) -> NDArray[np.bool_]:
        """Return (n,) whether each cluster accepts the row."""
        near: NDArray[np.bool_] = self.similarity(clusters, rows) >= self.thresholds(clusters)
        return near


def _quantiles(similarities: NDArray[np.float32], clusters: IntVector, n_clusters: int) -> NDArray[np.float32]:
    """Return (n_clusters,) the similarity that a row must reach; 2, which none does, for a cluster without members."""
    order = np.lexsort((similarities, clusters))
    sizes = np.bincount(clusters, minlength=n_clusters)
    starts = np.concatenate([[0], np.cumsum(sizes)])[:-1]
    rank = np.where(sizes < _MIN_QUANTILE_SIZE, 0, np.floor(sizes * _QUANTILE).astype(np.int64))
    found = np.full(n_clusters, 2.0, np.float32)
    there = sizes > 0
    found[there] = similarities[order][(starts + rank)[there]]
    return found


@finite_products
def _candidates(
    anchors: _Anchors, vectors: Vectors, rows: IntVector, open_: NDArray[np.bool_]
) -> tuple[NDArray[np.float32], IntVector]:
    """Return (len(rows), k) similarities and clusters of the nearest clusters of each row, nearest first."""
    numbers = np.flatnonzero(open_)
    k = min(_N_NEAREST, len(numbers))
    similarities = np.empty((len(rows), k), np.float32)
    nearest = np.empty((len(rows), k), np.int64)
    centroids = anchors.centroids[numbers].T
    step = max(min(_BLOCK_ROWS, _BLOCK_VALUES // max(len(numbers), 1)), 1)
    for first in range(0, len(rows), step):
        block = vectors[rows[first : first + step]] @ centroids
        top = (
            np.argpartition(-block, k - 1, axis=1)[:, :k]
            if k < block.shape[1]
            else np.tile(np.arange(k), (len(block), 1))
        )
        values = np.take_along_axis(block, top, axis=1)
        order = np.lexsort((top, -values), axis=1)
        similarities[first : first + step] = np.take_along_axis(values, order, axis=1)
        nearest[first : first + step] = numbers[np.take_along_axis(top, order, axis=1)]
    return similarities, nearest


def _join(
    anchors: _Anchors,
    vectors: Vectors,
    rows: IntVector,
    hints: IntVector,
    sizes: IntVector,
    open_: NDArray[np.bool_],
    max_size: int,
) -> tuple[NDArray[np.int64], IntVector]:
    """Return the (cluster, row) of rows that a cluster accepts, most similar first, and the rows that none does.

    Args:
        sizes: (n_clusters,) members; changed by what joins.
    """
    if not len(rows) or not open_.any():
        return np.zeros((0, 2), np.int64), rows
    similarities, nearest = _candidates(anchors, vectors, rows, open_)
    hinted = hints[rows]
    there = np.flatnonzero((hinted >= 0) & open_[np.maximum(hinted, 0)])
    near = anchors.accept(hinted[there], rows[there])
    found: dict[int, int] = {}
    for at in there[near]:
        if sizes[hinted[at]] < max_size:
            found[int(at)] = int(hinted[at])
            sizes[hinted[at]] += 1
    is_near = similarities >= anchors.thresholds(nearest)
    for at in np.lexsort((rows, -similarities[:, 0])).tolist():
        if at in found:
            continue
        accepted = np.flatnonzero(is_near[at])
        for place in accepted:
            cluster = int(nearest[at, place])
            if sizes[cluster] < max_size:
                found[at] = cluster
                sizes[cluster] += 1
                break
    places = np.array(sorted(found), np.int64)
    joined = np.stack([np.array([found[at] for at in places.tolist()], np.int64), rows[places]], axis=1)
    return joined.reshape(-1, 2), np.delete(rows, places)


def _new_clusters(group: GroupRows, rows: IntVector) -> tuple[list[tuple[IntVector, NDArray[np.float32]]], IntVector]:
    """Return the clusters (rows, responsibilities) that rows form among themselves, and the rows of too small ones."""
    if not len(rows):
        return [], rows
    numbers, inside, shares = group(rows)
    order = np.lexsort((inside, numbers))
    numbers, inside, shares = numbers[order], inside[order], shares[order]
    ends = np.flatnonzero(np.diff(numbers)) + 1
    parts = list(zip(np.split(inside, ends), np.split(shares, ends), strict=True))
    large = [part for part in parts if len(part[0]) >= _MIN_NEW]
    covered = np.concatenate([part[0] for part in large]) if large else np.zeros(0, np.int64)
    return large, np.setdiff1d(rows, covered)


def _nearest(
    anchors: _Anchors, vectors: Vectors, rows: IntVector, sizes: IntVector, max_size: int
) -> tuple[NDArray[np.int64], IntVector]:
    """Return the (cluster, row) of rows and the nearest clusters with room, and the rows without one.

    Args:
        sizes: (n_clusters,) members; changed by what joins.
    """
    found: list[tuple[int, int]] = []
    rest: list[int] = []
    if len(rows) and (sizes > 0).any():
        nearest = _candidates(anchors, vectors, rows, sizes > 0)[1]
        for row, clusters in zip(rows.tolist(), nearest.tolist(), strict=True):
            cluster = next((each for each in clusters if sizes[each] < max_size), None)
            if cluster is None:
                rest.append(row)
            else:
                sizes[cluster] += 1
                found.append((cluster, row))
    else:
        rest = rows.tolist()
    return np.array(found, np.int64).reshape(-1, 2), np.array(rest, np.int64)
