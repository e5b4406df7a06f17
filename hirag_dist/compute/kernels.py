"""Kernels of the CPU, and kernels by name, chosen once at the start of a build by the devices of this machine."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from importlib.util import find_spec

import numpy as np
from numpy.typing import NDArray

from hirag_dist.config.model import Config
from hirag_dist.core.clustering import gaussian_mixture, kmeans, pca, ward
from hirag_dist.core.graph.bfs import hop_distances
from hirag_dist.core.graph.communities import nested_labels, warm_partition
from hirag_dist.core.graph.leiden import leiden
from hirag_dist.errors import BackendUnavailable, ConfigError
from hirag_dist.protocols import CPU, Kernels
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
        return kmeans.lloyd(lambda means: self.nearest_sums(rows, means), kmeans.start_means(rows, k, seed))

    def nearest_sums(self, rows: FloatMatrix, means: FloatMatrix) -> GroupSums:
        """Return the sums of rows by their nearest mean, added up in the order of the rows."""
        return kmeans.labelled_sums(rows, kmeans.nearest(rows, means), len(means))

    def trees(self, groups: Sequence[FloatMatrix], sizes: Sequence[IntVector] | None) -> list[FloatVector]:
        """Return the merges of each group of rows, one after the other."""
        return ward.cpu_trees(groups, sizes)

    def memberships(self, cells: Sequence[LabelledCell], threshold: float) -> list[Memberships]:
        """Return the memberships of each cell, one after the other."""
        return [gaussian_mixture.memberships(cell, threshold) for cell in cells]

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


logger = logging.getLogger(__name__)


def resolve_kernels(choice: str, before: str | None = None) -> str:
    """Return the name of the kernels that a configured choice means on this machine, for `make_kernels`.

    `gpu` finds communities by cuGraph where that is installed, and is `cupy` elsewhere: communities on the CPU, which
    have the higher modularity. `auto` keeps the kernels that the index was built with where it can, since others give
    other clusters, whose summaries are paid for again; for a new index it is `cupy`, or the CPU where no GPU can be
    used.

    Args:
        before: kernels of the existing index.

    Raises:
        BackendUnavailable: a GPU was asked for by name, and cannot be used.
    """
    if choice == CPU or (choice == "auto" and before == CPU):
        return CPU
    available = _available_kernels(choice, with_cugraph="gpu" in (choice, before if choice == "auto" else ""))
    if choice == "auto" and before not in (None, available):
        logger.warning(
            "the index was built with kernels: %s, which this machine does not have; with %s layers are clustered "
            "again, and summaries and reports of clusters that differ are new calls",
            before,
            available,
        )
    return available


def _available_kernels(choice: str, with_cugraph: bool) -> str:
    reason = _missing_for_gpu()
    if reason is not None:
        if choice != "auto":
            raise BackendUnavailable(f"kernels: {choice} {reason}")
        logger.info("kernels: cpu (auto: a GPU %s)", reason)
        return CPU
    from hirag_dist.compute.gpu import describe_device, has_cugraph

    name = "gpu" if with_cugraph and has_cugraph() else "cupy"
    missing = (
        "; cuGraph is not installed, so communities are found on the CPU" if with_cugraph and name != "gpu" else ""
    )
    logger.info("kernels: %s (%s%s)", name, describe_device(), missing)
    return name


def _missing_for_gpu() -> str | None:
    """Return the reason why no GPU can be used, or None."""
    if find_spec("cupy") is None:
        return "needs CuPy: pip install 'hirag-dist[gpu-cu12]' (or gpu-cu13)"
    from hirag_dist.compute.gpu import device_count  # RAPIDS imports without a GPU and fails at first use

    return None if device_count() else "needs a visible GPU: see `nvidia-smi` and CUDA_VISIBLE_DEVICES"


def has_gpu_workers(config: Config) -> bool:
    """Return whether separate GPU workers compute kernels, so that this machine cannot tell which they have."""
    return config.execution.chosen == "ray" and config.execution.gpu_workers > 0 and config.kernels != CPU


def known_kernels(config: Config, before: str | None) -> str:
    """Return the name of the kernels, empty where only a worker with a GPU knows it: `gpu` is `cupy` without cuGraph.

    A GPU worker is asked only if needed: kernels of the index that match the configuration are kept, so that a build
    with nothing left to compute needs no GPU. A worker with cuGraph would find other communities than `cupy`.

    Args:
        before: kernels of the existing index; None if they need not be kept.
    """
    if not has_gpu_workers(config):
        return resolve_kernels(config.kernels, before)
    if config.kernels == "gpu":
        return "" if before in (None, CPU) else before
    return "cupy" if config.kernels == "cupy" else before or "cupy"


def require_umap(config: Config, name: str) -> None:
    """Check that layers can be reduced by UMAP, as far as this machine knows.

    Args:
        name: Name of the kernels; empty where only a worker knows it.

    Raises:
        ConfigError: the kernels are the CPU's, or cuML is not installed where this machine's GPU is used.
    """
    if name == CPU or (not has_gpu_workers(config) and find_spec("cuml") is None):
        raise ConfigError(NEEDS_UMAP)


def gpu_kernels(services: object, data: None, argument: None) -> str:
    """Return the name of the kernels of a GPU worker; runs there as a step (`protocols.ResidentShards`).

    Raises:
        BackendUnavailable: it cannot use its GPU.
    """
    return resolve_kernels("gpu")


def make_kernels(name: str) -> Kernels:
    """Return the kernels of a name that `resolve_kernels` gave.

    Raises:
        BackendUnavailable: this machine, perhaps another one than that which resolved the name, lacks a requirement.
    """
    if name == CPU:
        return CpuKernels()
    reason = _missing_for_gpu()
    if reason is not None:
        raise BackendUnavailable(f"kernels: {name} {reason}; every worker of a build needs the same kernels")
    from hirag_dist.compute.gpu import CupyKernels, GpuKernels

    return GpuKernels() if name == GpuKernels.name else CupyKernels()
