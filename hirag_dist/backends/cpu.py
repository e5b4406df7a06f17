"""The numerical work on the CPU: numpy and graspologic-native. Implements `ports.Kernels`."""

from __future__ import annotations

import graspologic_native
import numpy as np
from numpy.typing import NDArray

from hirag_dist.core import mixture, reduction
from hirag_dist.core.communities import hierarchical_labels
from hirag_dist.core.distances import hop_distances
from hirag_dist.types import (
    Assignment,
    Covariance,
    CsrGraph,
    FloatMatrix,
    IntVector,
    Mixture,
    Moments,
    Projection,
    Statistics,
)


class CpuKernels:
    """Runs anywhere; the same bits for the same input on one kind of processor."""

    name = "cpu"

    def moments(self, vectors: FloatMatrix) -> Moments:
        """Return sums and products of the rows."""
        return reduction.moments(np, vectors)

    def project(self, vectors: FloatMatrix, projection: Projection) -> FloatMatrix:
        """Return the rows' scores on the axes."""
        return reduction.project(np, vectors, projection)

    def pca(self, vectors: FloatMatrix, n_components: int, seed: int) -> FloatMatrix:
        """Return (n, n_components) scores, from the eigenvectors of the covariance: exact, so the seed is not used."""
        return self.project(vectors, reduction.principal_axes(self.moments(vectors), n_components))

    def em(self, rows: FloatMatrix, n_components: int, seed: int, covariance: Covariance) -> Mixture:
        """Fit a mixture."""
        return mixture.expectation_maximisation(np, rows, n_components, seed, covariance)

    def statistics(self, rows: FloatMatrix, fitted: Mixture) -> Statistics:
        """Return what the next maximisation needs to know of one shard of rows."""
        return mixture.shard_statistics(np, rows, fitted)

    def assign(self, rows: FloatMatrix, fitted: Mixture, threshold: float) -> Assignment:
        """Return the components of each row that pass the threshold, and its best one."""
        return mixture.assign(np, rows, fitted, threshold)

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
