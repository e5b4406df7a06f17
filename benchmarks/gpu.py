"""Speed and quality of the kernels on a GPU, beside the CPU of the same machine and RAPIDS: one JSON line a figure.

The parity suite of the kernels runs first (tests/contracts/test_kernels.py, marked gpu). Then for each number of rows:
principal components of 384 columns, k-means of 64, the clusters of a layer, UMAP, communities and hops in a graph of
five times as many edges. Everything is warmed up once on few rows; `layer, again` is the second time on as many.
Seconds include the copies to the card and back, those of cuVS do not. `f1` compares pairs of rows that share a best
cluster with the clusters of the CPU, and `is_repeated` says whether a second run gave the same bits. Clusters on the
CPU are computed with one thread, as by a worker of a build.

    python -m benchmarks gpu [--rows 100000 1000000] [--parts layer kmeans] [--no-cpu]

Sizes are chosen for 6 minutes with one H100 or H200 and 16 cores. Without a GPU the columns of the CPU alone are
measured, with --rows 20000 by default. A machine without a network needs the wheels of requirements/run.txt that it
lacks, CuPy, pytest, scikit-learn and networkx; cuML (UMAP), pylibcugraph (communities) and cuVS (comparison) are
measured where they are installed. Nothing in this package uses cuVS.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
import pyarrow as pa
from scipy.sparse import csr_array
from threadpoolctl import threadpool_limits

from hirag_dist.compute.kernels import make_kernels, resolve_kernels
from hirag_dist.config.model import ClusteringConfig
from hirag_dist.core.clustering.gaussian_mixture import standardised
from hirag_dist.core.clustering.partition_tree import ClusterSettings
from hirag_dist.core.clustering.soft_clusters import SoftClusters, soft_clusters
from hirag_dist.core.graph.hierarchy_metrics import modularity
from hirag_dist.core.graph.leiden import visiting_keys
from hirag_dist.errors import BackendUnavailable
from hirag_dist.protocols import Kernels
from hirag_dist.types import CsrGraph, FloatMatrix, IntVector

COLUMNS, SOURCES, EDGES_A_NODE, ROWS_A_MEAN, UMAP_DIMS = 384, 64, 5, 500, 10
CLUSTERING = ClusteringConfig()
SETTINGS = ClusterSettings(CLUSTERING.target_size, CLUSTERING.max_size, CLUSTERING.threshold, 0)  # as a build clusters
PARTS = ("pca", "kmeans", "layer", "umap", "graph")
Quality = Callable[[Any], dict[str, Any]]
WARM_ROWS = 15_000  # more than one cell
PARITY = (  # without the settings and fixtures of all tests, which need more packages
    *("-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", ".", "--noconftest"),
    *("-m", "gpu", "tests/contracts/test_kernels.py"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="+", type=int)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--no-cpu", action="store_true", help="Do not measure the CPU, nor F1 against it")
    arguments = parser.parse_args()
    kernels: dict[str, Kernels] = {}
    try:
        name = resolve_kernels("gpu")
        kernels["gpu"] = make_kernels(name)
    except BackendUnavailable as error:
        emit("card", gpu=None, reason=str(error))
    else:
        from hirag_dist.compute.gpu import describe_device

        emit("card", gpu=describe_device(), kernels=name)
        suite = subprocess.run([sys.executable, *PARITY], capture_output=True, text=True)
        emit("parity", passed=suite.returncode == 0, summary=suite.stdout.strip().splitlines()[-1:])
    if not arguments.no_cpu:
        kernels["cpu"] = make_kernels("cpu")
    for each in kernels.values():
        measure({"warm": each}, WARM_ROWS, set(arguments.parts))
    for n_rows in arguments.rows or ([100_000, 1_000_000] if "gpu" in kernels else [20_000]):
        measure(kernels, n_rows, set(arguments.parts))


def emit(figure: str, **values: Any) -> None:
    """Print a figure."""
    print(json.dumps({"benchmark": "gpu", "figure": figure} | values), flush=True)


def timed(figure: str, n_rows: int, name: str, work: Callable[[], Any], quality: Quality) -> Any:
    """Print the seconds of work and its quality, or nothing where the name is `warm`; return the result."""
    started = time.perf_counter()
    result = work()
    seconds = time.perf_counter() - started
    if name != "warm":
        emit(figure, rows=n_rows, on=name, seconds=float(f"{seconds:.4g}"), **quality(result))
    return result


def nothing(result: Any) -> dict[str, Any]:
    """Return no measure of quality."""
    return {}


def measure(kernels: dict[str, Kernels], n_rows: int, parts: set[str]) -> None:
    """Print the figures of some kernels by name, the CPU's first; nothing of those named `warm`."""

    def each(figure: str, work: Callable[[Kernels], Any], quality: Quality = nothing) -> list[Any]:
        return [timed(figure, n_rows, name, partial(work, kernels[name]), quality) for name in sorted(kernels)]

    on_card = [name for name in kernels if kernels[name].name != "cpu"]
    if parts & {"pca", "kmeans", "layer", "umap"}:
        vectors = planted(n_rows)
        scores = each("pca", lambda kernel: kernel.pca(vectors, CLUSTERING.reduce_dims, 0))[0]
        rows = standardised(scores)[0]
    n_means = max(n_rows // ROWS_A_MEAN, 2)
    if "kmeans" in parts:
        each("kmeans", lambda kernel: kernel.kmeans(rows, n_means, 0), lambda found: {"spread": found[1].spread})
    if "layer" in parts:
        measure_layer(kernels, scores)
    if "umap" in parts and on_card and find_spec("cuml"):
        first = [timed("umap", n_rows, name, partial(umap, kernels[name], vectors), nothing) for name in on_card]
        for name, before in zip(on_card, first, strict=True):
            if name != "warm":
                emit("umap", rows=n_rows, on=name, is_repeated=np.array_equal(before, umap(kernels[name], vectors)))
    if "kmeans" in parts and on_card and find_spec("cuvs"):
        measure_cuvs("warm" if "warm" in kernels else "cuvs", rows, vectors, n_means)
    if "graph" in parts:
        graph = heavy_tailed(n_rows)
        sources = np.random.default_rng(0).integers(n_rows, size=SOURCES)
        keys = visiting_keys(pa.chunked_array([pa.array(np.arange(n_rows))]), 0)

        def quality(levels: list[IntVector]) -> dict[str, Any]:
            return {"modularity": round(modularity(graph, levels[0]), 4), "communities": int(levels[0].max()) + 1}

        each("hops from 64 nodes", lambda kernel: kernel.bfs(graph, sources))
        each("leiden", lambda kernel: kernel.leiden(graph, n_rows, 1.0, keys), quality)


def umap(kernel: Kernels, vectors: FloatMatrix) -> FloatMatrix:
    """Return the positions of all rows."""
    return kernel.umap(vectors, UMAP_DIMS, 0)


def measure_layer(kernels: dict[str, Kernels], scores: FloatMatrix) -> None:
    """Print the figures of the clusters of a layer, compared with those of the CPU where they are measured."""
    expected: IntVector | None = None
    for name in sorted(kernels):
        work = partial(soft_clusters, scores, SETTINGS, kernels[name])
        with threadpool_limits(1) if name == "cpu" else nullcontext():
            soft = timed("layer", len(scores), name, work, lambda found: {"clusters": len(found.sizes)})
        if name == "cpu":
            expected = best_clusters(soft, len(scores))
        elif name != "warm":
            again = timed("layer, again", len(scores), name, work, nothing)
            same = all(np.array_equal(getattr(soft, key), getattr(again, key)) for key in soft.__slots__)
            f1 = None if expected is None else pair_f1(expected, best_clusters(soft, len(scores)))
            emit("layer", rows=len(scores), on=name, is_repeated=same, f1=f1)


def measure_cuvs(name: str, rows: FloatMatrix, vectors: FloatMatrix, n_means: int) -> None:
    """Print figures of cuVS for comparison: k-means, principal components and nearest neighbours, on the card."""
    import cupy
    from cuvs.cluster import kmeans
    from cuvs.neighbors import brute_force
    from cuvs.preprocessing import pca

    def done(work: Callable[..., Any], *arguments: Any) -> Any:
        result = work(*arguments)
        cupy.cuda.runtime.deviceSynchronize()
        return result

    held, wide = cupy.asarray(rows), cupy.asarray(vectors)
    params = kmeans.KMeansParams(n_clusters=n_means, max_iter=15)
    reduction = pca.Params(n_components=CLUSTERING.reduce_dims)
    index = brute_force.build(wide, metric="sqeuclidean")
    n_rows = len(rows)
    timed("kmeans", n_rows, name, partial(done, kmeans.fit, params, held), lambda found: {"spread": found.inertia})
    timed("pca", n_rows, name, partial(done, pca.fit_transform, reduction, wide), nothing)
    timed("10 nearest of 10,000", n_rows, name, partial(done, brute_force.search, index, wide[:10_000], 10), nothing)


def best_clusters(soft: SoftClusters, n_rows: int) -> IntVector:
    """Return (n_rows,) the best cluster of each row."""
    labels = np.empty(n_rows, np.int64)
    labels[soft.rows[soft.best]] = soft.clusters[soft.best]
    return labels


def pair_f1(one: IntVector, other: IntVector) -> float:
    """Return the F1 of pairs of rows that share a cluster in both groupings."""

    def pairs(labels: IntVector) -> float:
        sizes = np.unique(labels, return_counts=True)[1]
        return float((sizes * (sizes - 1.0)).sum())

    return round(2 * pairs(one * (int(other.max()) + 1) + other) / max(pairs(one) + pairs(other), 1.0), 5)


def planted(n_rows: int) -> FloatMatrix:
    """Rows around a centre for every hundred of them."""
    random = np.random.default_rng(0)
    centres = random.standard_normal((max(n_rows // 100, 1), COLUMNS), np.float32)
    rows: FloatMatrix = centres[random.integers(len(centres), size=n_rows)]
    rows += 0.5 * random.standard_normal(rows.shape, np.float32)
    return rows


def heavy_tailed(n_nodes: int) -> CsrGraph:
    """A graph with hubs: one end of an edge is drawn towards the low numbers, the other near the first or anywhere."""
    random = np.random.default_rng(0)
    n_edges = EDGES_A_NODE * n_nodes
    heads = (n_nodes * random.random(n_edges) ** 2).astype(np.int64)
    near = (heads + random.integers(1, 200, n_edges)) % n_nodes
    tails = np.where(random.random(n_edges) < 0.8, near, random.integers(0, n_nodes, n_edges))
    kept = heads != tails
    ends = np.concatenate([heads[kept], tails[kept]]), np.concatenate([tails[kept], heads[kept]])
    matrix = csr_array((np.ones(len(ends[0]), np.float32), ends), shape=(n_nodes, n_nodes))
    matrix.sum_duplicates()
    matrix.sort_indices()
    rows = np.zeros(matrix.nnz, np.int32)
    return CsrGraph(matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32), matrix.data, rows)


if __name__ == "__main__":
    main()
