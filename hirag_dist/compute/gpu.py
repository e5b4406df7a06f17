"""The numerical work on an NVIDIA GPU: CuPy, cuGraph for communities and cuML for UMAP. Implements `protocols.Kernels`.

The libraries import on a machine without a GPU and fail at first use, so `device_count` is asked first. Arrays come
and go as numpy's. What is one product after the other is `core`'s, the same functions as on the CPU with CuPy for the
array module; k-means, trees and mixtures of cells are kernels of our own (`cells`). Everything is added up in one
order: a build repeats itself bit for bit on one card. cuVS's k-means adds with atomic operations and does not
(NVIDIA/cuvs issue 2657), and its principal components need all rows in one array where ours add up over shards; so
neither is used. What is too small for a card to gain by it is computed on the CPU; sizes alone decide that.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import cupy
import numpy as np
from numpy.typing import NDArray

from hirag_dist.compute import cells
from hirag_dist.compute.kernels import NEEDS_UMAP, CpuKernels
from hirag_dist.core.clustering import gaussian_mixture, kmeans, pca
from hirag_dist.core.graph.bfs import frontier_hops
from hirag_dist.core.graph.communities import Partition, hierarchical_labels
from hirag_dist.core.graph.csr import heads
from hirag_dist.errors import BackendUnavailable, StageFailed
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

_BFS_SHARE = 0.25  # of the memory that is free, for a block of sources
_BFS_PAIR_BYTES = 48  # a source and a node: its distance, and its place in the widest frontier
_BLOCK_ELEMENTS = 1 << 25  # responsibilities of a block: 128 MiB, a few times over
_MAX_BLOCK_ROWS = 1 << 15
_UMAP_NEIGHBOURS = 15  # about a cluster of the default target size, which is what has to stay together
_UMAP_EXTENT = 10.0  # largest coordinate of the first positions, as in umap-learn
MIN_ELEMENTS = 1 << 17  # responsibilities: 19 ns each on a CPU, and launching the kernels takes a GPU 1.5 ms
_SMALLEST = 1e-30
_LEIDEN_LEVELS = 100  # at most; it ends by itself long before


def device_count() -> int:
    """Return how many GPUs this process can use; 0 where there is no driver."""
    try:
        return int(cupy.cuda.runtime.getDeviceCount())
    except cupy.cuda.runtime.CUDARuntimeError:
        return 0


def describe_device() -> str:
    """Return name and memory of the GPU in use, the first that this process sees, and the version of CuPy."""
    found = cupy.cuda.runtime.getDeviceProperties(0)
    return f"{found['name'].decode()}, {found['totalGlobalMem'] / 2**30:,.0f} GiB, CuPy {cupy.__version__}"


def has_cugraph() -> bool:
    """Return whether cuGraph is installed, of which pylibcugraph is what is used."""
    return importlib.util.find_spec("pylibcugraph") is not None


class CupyKernels:
    """Mixtures, PCA and paths on the GPU, and communities on the CPU: what needs CuPy alone.

    The first GPU that the process sees is used; `CUDA_VISIBLE_DEVICES` chooses another. Rows reach the card block by
    block, except those that k-means is fitted to (4 bytes a number), cells in batches of at most 4 GiB or one cell, and
    sources of paths as many at a time as there is room for; a graph has to fit.
    """

    name = "cupy"

    def __init__(self, min_elements: int = MIN_ELEMENTS) -> None:
        """Take the GPU.

        Args:
            min_elements: rows times components, or pairs of rows, of a call from which on the card computes.

        Raises:
            BackendUnavailable: none is visible.
        """
        self._min_elements = min_elements
        self._cpu = CpuKernels()
        if not device_count():
            raise BackendUnavailable(
                "kernels on a GPU need one, and none is visible: see `nvidia-smi`, or kernels: cpu"
            )

    def moments(self, vectors: FloatMatrix) -> Moments:
        """Return sums and products of the rows, which reach the card block by block."""
        with _on_device():
            return pca.moments(cupy, vectors)

    def project(self, vectors: FloatMatrix, projection: Projection) -> FloatMatrix:
        """Return the rows' scores on the axes."""
        with _on_device():
            return pca.project(cupy, vectors, projection)

    def pca(self, vectors: FloatMatrix, n_components: int, seed: int) -> FloatMatrix:
        """Return (n, n_components) scores; exact, so the seed is not used."""
        return self.project(vectors, pca.principal_axes(self.moments(vectors), n_components))

    def umap(self, vectors: FloatMatrix, n_components: int, seed: int) -> FloatMatrix:
        """Return (n, n_components) positions by cuML, by cosine distances; what is not finite counts as zero.

        For the seed to hold, all pairs are compared for neighbours, and the descent starts from principal components:
        NN-descent, which cuML takes above 50,000 rows, and spectral starts differ between runs.

        Raises:
            BackendUnavailable: cuML is not installed.
        """
        if importlib.util.find_spec("cuml") is None:
            raise BackendUnavailable(NEEDS_UMAP)
        from cuml.manifold import UMAP

        finite = np.nan_to_num(vectors, nan=0.0, posinf=0.0, neginf=0.0)
        start = self.pca(finite, n_components, seed)
        start *= _UMAP_EXTENT / max(float(np.abs(start).max()), _SMALLEST)
        with _on_device(), _on_rapids(f"UMAP failed on {len(finite):,} rows", "clustering.reduction: pca"):
            model = UMAP(
                n_neighbors=min(_UMAP_NEIGHBOURS, len(finite) - 1),
                n_components=n_components,
                metric="cosine",
                min_dist=0.0,  # clusters are wanted, not a picture
                init=start,
                random_state=seed,
                build_algo="brute_force_knn",
                output_type="numpy",
            )
            return np.ascontiguousarray(model.fit_transform(finite), np.float32)

    def kmeans(self, rows: FloatMatrix, k: int, seed: int) -> tuple[FloatMatrix, GroupSums]:
        """Fit k means; the rows stay on the card meanwhile."""
        if len(rows) * k < self._min_elements:
            return self._cpu.kmeans(rows, k, seed)
        with _on_device():
            held, start = cupy.asarray(rows), cells.start_means(rows, k, seed)
            return kmeans.lloyd(lambda means: cells.nearest_sums(held, means, block_rows(k)), start)

    def nearest_sums(self, rows: FloatMatrix, means: FloatMatrix) -> GroupSums:
        """Return the sums of rows by their nearest mean."""
        if len(rows) * len(means) < self._min_elements:
            return self._cpu.nearest_sums(rows, means)
        with _on_device():
            return cells.nearest_sums(rows, means, block_rows(len(means)))

    def trees(self, groups: Sequence[FloatMatrix], sizes: Sequence[IntVector] | None) -> list[FloatVector]:
        """Return the merges of each group of rows, many groups at a time."""
        if sum(len(rows) ** 2 for rows in groups) < self._min_elements:
            return self._cpu.trees(groups, sizes)
        with _on_device():
            return cells.trees(groups, sizes)

    def memberships(self, labelled: Sequence[LabelledCell], threshold: float) -> list[Memberships]:
        """Return the memberships of each cell, many cells at a time."""
        if sum(len(cell.rows) * cell.n_labels for cell in labelled) < self._min_elements:
            return self._cpu.memberships(labelled, threshold)
        with _on_device():
            return cells.memberships(labelled, threshold)

    def assign(self, rows: FloatMatrix, fitted: Mixture, threshold: float) -> Assignment:
        """Return the components of each row that pass the threshold, and its best one."""
        if len(rows) * fitted.n_components < self._min_elements:
            return self._cpu.assign(rows, fitted, threshold)
        with _on_device():
            return gaussian_mixture.assign(cupy, rows, fitted, threshold, block_rows(fitted.n_components))

    def bfs(self, graph: CsrGraph, sources: IntVector) -> NDArray[np.int32]:
        """Return (n_sources, n_nodes) hops, as many sources at a time as the free memory takes.

        cuGraph's breadth-first search takes one source a call: on an H200, 64 sources took it 0.32 s with 100,000 nodes
        and 1.04 s with a million, and this 0.034 s and 0.26 s.
        """
        hops = np.empty((len(sources), graph.n_nodes), np.int32)
        with _on_device():
            free, _ = cupy.cuda.runtime.memGetInfo()
            room = (int(free) + int(cupy.get_default_memory_pool().free_bytes())) * _BFS_SHARE  # with what CuPy caches
            step = max(int(room // (_BFS_PAIR_BYTES * max(graph.n_nodes, 1))), 1)
            for first in range(0, len(sources), step):
                part = slice(first, first + step)
                hops[part] = cupy.asnumpy(frontier_hops(cupy, graph, sources[part]))
        return hops

    def leiden(
        self,
        graph: CsrGraph,
        max_size: int,
        resolution: float,
        order_keys: NDArray[np.uint64],
        warm: WarmStart | None = None,
    ) -> list[NDArray[np.int64]]:
        """Return hierarchical communities, coarsest level first, as the CPU finds them."""
        return self._cpu.leiden(graph, max_size, resolution, order_keys, warm)


class GpuKernels(CupyKernels):
    """All kernels on the GPU: CuPy's, and communities by cuGraph."""

    name = "gpu"

    def __init__(self, min_elements: int = MIN_ELEMENTS) -> None:
        """Take the GPU. Raises BackendUnavailable where none is visible, or cuGraph is not installed."""
        super().__init__(min_elements)
        if not has_cugraph():
            raise BackendUnavailable(
                "communities on a GPU need cuGraph: pip install 'hirag-dist[gpu-cu12]' (or gpu-cu13)"
            )

    def leiden(
        self,
        graph: CsrGraph,
        max_size: int,
        resolution: float,
        order_keys: NDArray[np.uint64],
        warm: WarmStart | None = None,
    ) -> list[NDArray[np.int64]]:
        """Return hierarchical communities, coarsest level first.

        cuGraph's partition is flat; the levels come from partitioning large communities again, as on the CPU. It
        cannot start from given communities: a warm start runs on the CPU. It takes no order of nodes either: its seed
        is the lowest key, which few changes of the nodes replace.
        """
        if warm is not None:
            return super().leiden(graph, max_size, resolution, order_keys, warm)
        seed = int(order_keys.min(initial=np.iinfo(np.uint64).max))
        with _on_device():
            return hierarchical_labels(graph, cugraph_partition(resolution, seed), max_size)


def block_rows(n_components: int) -> int:
    """Return the rows of a mixture's products: enough for a card to be busy between two calls, few enough to fit.

    >>> block_rows(16), block_rows(4096)
    (32768, 8192)
    """
    return int(np.clip(_BLOCK_ELEMENTS // n_components, gaussian_mixture.BLOCK_ROWS, _MAX_BLOCK_ROWS))


def cugraph_partition(resolution: float, seed: int) -> Partition:
    """Return cuGraph's Leiden as `core.graph.communities` calls it: graph, number of the call → (n_nodes,) labels.

    pylibcugraph is cuGraph's algorithms for CuPy's arrays.
    """
    import pylibcugraph

    handle = pylibcugraph.ResourceHandle()
    undirected = pylibcugraph.GraphProperties(is_symmetric=True, is_multigraph=False)

    def partition(part: CsrGraph, call: int) -> NDArray[np.int64]:
        labels = np.arange(part.n_nodes, dtype=np.int64)  # a node without an edge is not in cuGraph's answer
        kept = part.weights > 0
        if not kept.any():
            return labels
        ends = cupy.asarray(heads(part)[kept], dtype=cupy.int32), cupy.asarray(part.indices[kept])
        weights = cupy.asarray(part.weights[kept], dtype=cupy.float64)
        state = (seed + call) % (1 << 31)
        size = f"{part.n_nodes:,} nodes and {int(kept.sum()) // 2:,} edges"
        with _on_rapids(f"cuGraph failed on {size}", "kernels: cupy"):
            graph = pylibcugraph.SGGraph(handle, undirected, *ends, weight_array=weights, renumber=True)
            nodes, found, _ = pylibcugraph.leiden(handle, state, graph, _LEIDEN_LEVELS, resolution, 1.0, False)
        labels[cupy.asnumpy(nodes)] = part.n_nodes + cupy.asnumpy(found).astype(np.int64)
        return np.unique(labels, return_inverse=True)[1].astype(np.int64)

    return partition


@contextmanager
def _on_rapids(failure: str, instead: str) -> Iterator[None]:
    """Give CuPy's cached memory back, which RAPIDS cannot use, and turn what it raises into a failed stage."""
    cupy.get_default_memory_pool().free_all_blocks()
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        raise StageFailed(
            f"{failure} ({error}): if the GPU's memory is full, let fewer workers share it (execution.workers), or "
            f"set {instead}"
        ) from error


@contextmanager
def _on_device() -> Iterator[None]:
    """Turn what CUDA raises into what the build understands."""
    try:
        yield
    except cupy.cuda.memory.OutOfMemoryError as error:
        raise StageFailed(
            f"the GPU's memory is full ({error}): let fewer workers share it (execution.workers), or set kernels: cpu"
        ) from error
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise StageFailed(f"the GPU failed ({error}): see `nvidia-smi`, or set kernels: cpu") from error
