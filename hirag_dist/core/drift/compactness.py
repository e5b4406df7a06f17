"""Compactness of a clustering: the mean cosine of members to the centroid of their cluster."""

from __future__ import annotations

import math

import numpy as np

from hirag_dist.types import FloatMatrix, IntVector

_BLOCK_ROWS = 8192  # vectors in memory at a time, apart from a larger cluster


def compactness(vectors: FloatMatrix, labels: IntVector) -> float:
    """Return the mean cosine of rows to their cluster's centroid, over all rows that are in a cluster.

    The centroid of a cluster is the mean of its vectors. For vectors of unit length the cosines of a cluster's members
    add up to the length of the sum of its vectors, so one pass is enough. Equal partitions give equal bits, whatever
    their labels are.

    Args:
        vectors: (n, dim) float32, of unit length or all zero (such a row counts as cosine 0); may be memory-mapped.
        labels: (n,) cluster of each row, −1 for none.

    Returns:
        From 0 to 1; 1.0 where no row is in a cluster.
    """
    rows = np.flatnonzero(labels >= 0)
    if not len(rows):
        return 1.0
    rows = rows[np.argsort(labels[rows], kind="stable")]
    starts = np.flatnonzero(np.diff(labels[rows], prepend=-1))
    ends = np.append(starts[1:], len(rows))
    lengths: list[float] = []
    first = 0
    while first < len(starts):
        last = max(int(np.searchsorted(ends, starts[first] + _BLOCK_ROWS, side="right")), first + 1)
        block = vectors[rows[starts[first] : ends[last - 1]]].astype(np.float64)
        sums = np.add.reduceat(block, starts[first:last] - starts[first], axis=0)
        lengths.extend(np.sqrt(np.einsum("ij,ij->i", sums, sums)).tolist())
        first = last
    return math.fsum(lengths) / len(rows)
