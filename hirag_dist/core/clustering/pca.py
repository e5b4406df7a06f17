"""Principal component analysis from the covariance of all rows, summed over blocks: one pass, bounded memory.

The moments of shards add up in shard order, and a projection is small and picklable, so rows may lie on any number of
workers. Functions take the array module `xp` (numpy or CuPy) and give numpy back.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hirag_dist.core.arrays import finite_products, to_numpy
from hirag_dist.types import FloatMatrix, Moments, Projection

_BLOCK_ROWS = 8192


@finite_products
def moments(xp: Any, rows: Any) -> Moments:
    """Return the moments of rows, block by block; values that are not finite count as zero.

    Args:
        rows: (n, d) float32; may be memory-mapped.
    """
    dim = rows.shape[1]
    sums, products = xp.zeros(dim), xp.zeros((dim, dim))
    for first in range(0, len(rows), _BLOCK_ROWS):
        block = _finite(xp, rows[first : first + _BLOCK_ROWS])
        sums += block.sum(axis=0, dtype=np.float64)
        wide = block.astype(np.float64)  # float32 products differ between kinds of processors
        products += wide.T @ wide
    return Moments(len(rows), to_numpy(xp, sums), to_numpy(xp, products))


def principal_axes(found: Moments, n_components: int) -> Projection:
    """Return the projection on the axes of largest variance: at most as many as there are columns."""
    mean = found.sums / found.n_rows
    _, axes = np.linalg.eigh(found.products / found.n_rows - np.outer(mean, mean))
    top = axes[:, ::-1][:, :n_components]
    largest = np.abs(top).argmax(axis=0)
    top = top * np.where(top[largest, np.arange(top.shape[1])] < 0, -1.0, 1.0)  # a sign is arbitrary: fix it
    return Projection(top.astype(np.float32), (mean @ top).astype(np.float32))


@finite_products
def project(xp: Any, rows: Any, projection: Projection) -> FloatMatrix:
    """Return (n, c) float32 scores, block by block; what is not finite counts as zero."""
    axes, shift = xp.asarray(projection.axes).astype(np.float64), xp.asarray(projection.shift)
    scores = np.empty((len(rows), projection.axes.shape[1]), np.float32)
    for first in range(0, len(rows), _BLOCK_ROWS):
        block = _finite(xp, rows[first : first + _BLOCK_ROWS])
        scores[first : first + _BLOCK_ROWS] = to_numpy(xp, block.astype(np.float64) @ axes - shift)
    return scores


def _finite(xp: Any, rows: Any) -> Any:
    return xp.nan_to_num(xp.asarray(rows), nan=0.0, posinf=0.0, neginf=0.0)
