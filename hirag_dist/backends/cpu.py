"""The numerical work on the CPU: numpy, and numba for Leiden. Implements `ports.Kernels`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hirag_dist.core.communities import nested_labels
from hirag_dist.core.leiden import leiden
from hirag_dist.types import CsrGraph, FloatMatrix

_BLOCK_ROWS = 8192


class CpuKernels:
    """Runs anywhere; the same bits for the same input on one kind of processor."""

    name = "cpu"

    def pca(self, vectors: FloatMatrix, n_components: int, seed: int) -> FloatMatrix:
        """Return (n, n_components) scores, from the eigenvectors of the covariance, summed over blocks of rows.

        Exact, so the seed is not used. Rows that are not finite count as zeros.
        """
        n_rows, dim = vectors.shape
        mean = np.zeros(dim)
        moment = np.zeros((dim, dim))
        for first in range(0, n_rows, _BLOCK_ROWS):
            block = np.nan_to_num(vectors[first : first + _BLOCK_ROWS], nan=0.0, posinf=0.0, neginf=0.0)
            mean += block.sum(axis=0, dtype=np.float64)
            moment += block.T @ block
        mean /= n_rows
        _, axes = np.linalg.eigh(moment / n_rows - np.outer(mean, mean))
        top = axes[:, ::-1][:, :n_components]
        largest = np.abs(top).argmax(axis=0)
        top = top * np.where(top[largest, np.arange(top.shape[1])] < 0, -1.0, 1.0)  # a sign is arbitrary: fix it
        top32, shift = top.astype(np.float32), (mean @ top).astype(np.float32)
        scores = np.empty((n_rows, top.shape[1]), np.float32)
        for first in range(0, n_rows, _BLOCK_ROWS):
            block = np.nan_to_num(vectors[first : first + _BLOCK_ROWS], nan=0.0, posinf=0.0, neginf=0.0)
            scores[first : first + _BLOCK_ROWS] = block @ top32 - shift
        return scores

    def leiden(self, graph: CsrGraph, max_size: int, resolution: float, seed: int) -> list[NDArray[np.int64]]:
        """Return hierarchical communities, coarsest level first."""
        return nested_labels(graph, lambda part, groups: leiden(part, groups, resolution, seed), max_size)
