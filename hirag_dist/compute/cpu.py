"""The numerical work on the CPU: numpy, and numba for Leiden. Implements `protocols.Kernels`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hirag_dist.core.clustering import gaussian_mixture, kmeans, pca, ward
from hirag_dist.core.graph.bfs import hop_distances
from hirag_dist.core.graph.communities import nested_labels
from hirag_dist.core.graph.leiden import leiden
from hirag_dist.core.graph.warm_start import warm_partition
from hirag_dist.errors import BackendUnavailable
from hirag_dist.types import (
    Assignment,
    CsrGraph,
    FloatMatrix,
    FloatVector,
    GroupSums,
    IntVector,
    LabelledCell,
    Memberships,
    Mixture,
    Moments,
    Projection,
    WarmStart,
)

NEEDS_UMAP = (
    "clustering.reduction: umap needs a GPU and cuML (pip install 'hirag-dist[umap-cu12]', or umap-cu13) where layers "
    "are clustered; clustering.reduction: pca needs nothing"
)


class CpuKernels:
    """Runs anywhere; the same bits for the same input on one kind of processor."""

    name = "cpu"

    def moments(self, vectors: FloatMatrix) -> Moments:
        """Return sums and products of the rows."""
        return pca.moments(np, vectors)

    def project(self, vectors: FloatMatrix, projection: Projection) -> FloatMatrix:
        """Return the rows' scores on the axes."""
        return pca.project(np, vectors, projection)

    def pca(self, vectors: FloatMatrix, n_components: int, seed: int) -> FloatMatrix:
        """Return (n, n_components) scores, from the eigenvectors of the covariance: exact, so the seed is not used."""
        return self.project(vectors, pca.principal_axes(self.moments(vectors), n_components))

    def kmeans(self, rows: FloatMatrix, k: int, seed: int) -> tuple[FloatMatrix, GroupSums]:
        """Fit k means."""
        return kmeans.lloyd(lambda means: self.nearest_sums(rows, means), kmeans.start_means(np, rows, k, seed))

    def nearest_sums(self, rows: FloatMatrix, means: FloatMatrix) -> GroupSums:
        """Return the sums of rows by their nearest mean, added up in the order of the rows."""
        return kmeans.labelled_sums(rows, kmeans.nearest(rows, means), len(means))

    def trees(self, groups: Sequence[FloatMatrix], sizes: Sequence[IntVector] | None) -> list[FloatVector]:
        """Return the merges of each group of rows, one after the other."""
        return ward.cpu_trees(groups, sizes)

    def memberships(self, cells: Sequence[LabelledCell], threshold: float) -> list[Memberships]:
        """Return the memberships of each cell, one after the other."""
        return gaussian_mixture.memberships(np, cells, threshold)

    def assign(self, rows: FloatMatrix, fitted: Mixture, threshold: float) -> Assignment:
        """Return the components of each row that pass the threshold, and its best one."""
        return gaussian_mixture.assign(np, rows, fitted, threshold)

    def umap(self, vectors: FloatMatrix, n_components: int, seed: int) -> FloatMatrix:
        """Refuse: cuML's UMAP needs a GPU."""
        raise BackendUnavailable(NEEDS_UMAP)

    def leiden(
        self,
        graph: CsrGraph,
        max_size: int,
        resolution: float,
        order_keys: NDArray[np.uint64],
        warm: WarmStart | None = None,
    ) -> list[NDArray[np.int64]]:
        """Return hierarchical communities, coarsest level first."""
        if warm is not None:
            return nested_labels(graph, warm_partition(graph, resolution, order_keys, warm), max_size)
        return nested_labels(graph, lambda part, groups, _: leiden(part, groups, resolution, order_keys), max_size)

    def bfs(self, graph: CsrGraph, sources: IntVector) -> NDArray[np.int32]:
        """Return (n_sources, n_nodes) hops, 64 sources in one walk."""
        return hop_distances(graph, sources)
