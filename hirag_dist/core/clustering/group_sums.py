"""Sums of the vectors of groups."""

from __future__ import annotations

from typing import Any

import numpy as np

from hirag_dist.core.numba_jit import compiled
from hirag_dist.types import FloatMatrix, IntVector


def group_sums(vectors: FloatMatrix, rows: IntVector, bounds: IntVector) -> FloatMatrix:
    """Return (n_groups, dim) float32 the sum of the rows of each group, added in their order.

    Args:
        vectors: (n, dim) float32.
        rows: (n_entries,) of all groups, one group after the other.
        bounds: (n_groups + 1,) where each begins in `rows`.
    """
    sums: FloatMatrix = _group_sums(np.ascontiguousarray(vectors, np.float32), rows.astype(np.int64), bounds)
    return sums


@compiled
def _group_sums(vectors: FloatMatrix, rows: IntVector, bounds: IntVector) -> Any:
    sums = np.zeros((len(bounds) - 1, vectors.shape[1]), np.float32)
    for group in range(len(sums)):
        for at in range(bounds[group], bounds[group + 1]):
            row = rows[at]
            for dim in range(vectors.shape[1]):
                sums[group, dim] += vectors[row, dim]
    return sums
