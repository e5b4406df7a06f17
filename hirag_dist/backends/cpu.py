"""The numerical work on the CPU: numpy and graspologic-native. Implements `ports.Kernels`."""

from __future__ import annotations

import graspologic_native
import numpy as np
from numpy.typing import NDArray

from hirag_dist.core.communities import hierarchical_labels
from hirag_dist.core.distances import hop_distances
from hirag_dist.types import CsrGraph, FloatMatrix, IntVector

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

        def partition(part: CsrGraph, call: int) -> NDArray[np.int64]:
            if not len(part.indices):
                return np.arange(part.n_nodes, dtype=np.int64)
            _, found = graspologic_native.leiden_csr(
                np.ascontiguousarray(part.indptr, np.int64),
                np.ascontiguousarray(part.indices, np.int32),
                np.ascontiguousarray(part.weights, np.float64),
                part.n_nodes,
                resolution=resolution,
                iterations=2,
                seed=(seed + call) % (1 << 31),
            )
            return np.fromiter((found[node] for node in range(part.n_nodes)), np.int64, part.n_nodes)

        return hierarchical_labels(graph, partition, max_size)

    def bfs(self, graph: CsrGraph, sources: IntVector) -> NDArray[np.int32]:
        """Return (n_sources, n_nodes) hops, 64 sources in one walk."""
        return hop_distances(graph, sources)
