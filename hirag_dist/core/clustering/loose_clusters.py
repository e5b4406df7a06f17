"""Clusters that have become too loose, by comparison with clusters that were made from nothing."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hirag_dist.core.clustering.group_sums import group_sums
from hirag_dist.core.sparse import bounds_of
from hirag_dist.types import FloatMatrix, FloatVector, IntVector

_MIN_RATIO = 0.955  # of compactness; below it clusters are made again, before drift counts as too large (0.95)
_WANTED_RATIO = 0.965
_BLOCK_ROWS = 65_536


def loose_clusters(
    vectors: FloatMatrix, labels: IntVector, shadow: IntVector, n_clusters: int, max_loose: int | None = None
) -> NDArray[np.bool_]:
    """Return the clusters to make again so that a layer is about as compact as one clustered from nothing.

    Those go first whose members lose most similarity to their centroid in comparison with the shadow; none where the
    layer's compactness, the mean cosine of rows to their cluster's centroid, is within 4.5 % of the shadow's.

    Args:
        vectors: (n, dim) float32, unit length or zero.
        labels: (n,) int64 best cluster of each row.
        shadow: (n,) int64 best cluster of each row in the clusters made from nothing.
        n_clusters: of `labels`.
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


def row_cosines(vectors: FloatMatrix, labels: IntVector) -> FloatVector:
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
    for first in range(0, len(labels), _BLOCK_ROWS):
        at = slice(first, first + _BLOCK_ROWS)
        found[at] = np.einsum("ij,ij->i", vectors[at], sums[labels[at]]) / lengths[labels[at]]
    return found
