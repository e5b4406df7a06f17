"""Speed of a GPU against the CPU of this machine, and the share of the card that EM uses.

For each number of rows: PCA of 384 columns to 64, a whole mixture fit, one round of it, the assignment, hops from 64
sources, Leiden in a graph of five times as many edges, and the clusters of a layer from its reduced rows. A JSON line
for each size with the seconds of both and how good their communities are, and one for the card with what it reaches by
itself: copying, and float32 matrix products. Everything is warmed up once; times include the copies to the card and
back, except that of the round, whose rows are on the card as in a fit.

    python -m benchmarks.gpu [--rows 100000 1000000] [--components 256] [--parts pca em leiden layer] [--gpu-only]

Without a GPU one line says so.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from scipy.sparse import csr_array

from hirag_dist.compute.kernels import make_kernels, resolve_kernels
from hirag_dist.config.model import ClusteringConfig
from hirag_dist.core.clustering.gaussian_mixture import (
    BLOCK_ROWS,
    fit,
    isotropic_mixture,
    mixture_statistics,
    standardise,
)
from hirag_dist.core.clustering.partition_tree import ClusterSettings
from hirag_dist.core.clustering.soft_clusters import soft_clusters
from hirag_dist.core.graph.leiden import visiting_keys
from hirag_dist.core.graph.modularity import modularity
from hirag_dist.errors import BackendUnavailable
from hirag_dist.protocols import Kernels
from hirag_dist.types import CsrGraph, FloatMatrix, Mixture

COLUMNS, SOURCES, EDGES_A_NODE = 384, 64, 5
CLUSTERING = ClusteringConfig()
SETTINGS = ClusterSettings(CLUSTERING.target_size, CLUSTERING.max_size, CLUSTERING.threshold, 0)  # as a build clusters
PARTS = ("pca", "em", "em_round", "assign", "bfs", "leiden", "layer")
WARM_ROWS = 14_000  # more than one cell
# Of a round with tied variances, the matrix of responsibilities is written, read or both by: the product (1), the
# constant (2), the largest (1) and its subtraction (2), the smallest share (2), the exponential (2), the sum (1) and
# the division by it (2), the counts (1) and two products (2).
PASSES = 16


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="+", type=int, default=[100_000, 1_000_000])
    parser.add_argument("--components", type=int, default=256)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--gpu-only", action="store_true", help="do not run the CPU")
    arguments = parser.parse_args()
    try:
        name = resolve_kernels("gpu")
        gpu = make_kernels(name)
    except BackendUnavailable as error:
        print(json.dumps({"benchmark": "gpu", "gpu": None, "reason": str(error)}))
        return
    import cupy

    from hirag_dist.compute.gpu import block_rows, describe_device

    card = {"benchmark": "gpu", "gpu": describe_device(), "kernels": name, **card_rates(cupy)}
    print(json.dumps(card), flush=True)
    cpu = make_kernels("cpu")
    parts = set(arguments.parts)
    for kernels, xp in ((gpu, cupy), (cpu, np)):
        measure(kernels, xp, WARM_ROWS, 16, parts)
    for n_rows in arguments.rows:
        on_gpu = measure(gpu, cupy, n_rows, arguments.components, parts, block_rows(arguments.components))
        line: dict[str, Any] = {"benchmark": "gpu", "rows": n_rows, "components": arguments.components}
        line |= {"gpu_s": rounded(on_gpu.seconds), "gpu_quality": on_gpu.quality}
        if on_gpu.fitted is not None and "em_round" in parts:
            line["em_round"] = shares(on_gpu.fitted, n_rows, on_gpu.seconds["em_round"], card)
        if not arguments.gpu_only:
            on_cpu = measure(cpu, np, n_rows, arguments.components, parts)
            line |= {"cpu_s": rounded(on_cpu.seconds), "cpu_quality": on_cpu.quality}
            line["times_faster"] = {
                part: round(on_cpu.seconds[part] / seconds, 1) for part, seconds in on_gpu.seconds.items()
            }
        print(json.dumps(line), flush=True)


@dataclass
class Measured:
    """Seconds of each part, its quality where there is a measure, and the mixture that was fitted."""

    seconds: dict[str, float] = field(default_factory=dict)
    quality: dict[str, float] = field(default_factory=dict)
    fitted: Mixture | None = None


def measure(
    kernels: Kernels, xp: Any, n_rows: int, n_components: int, parts: set[str], rows_a_block: int = BLOCK_ROWS
) -> Measured:
    """Run the parts; rows are reduced, and a mixture is fitted, for whatever needs them."""
    found = Measured()

    def timed(part: str, work: Callable[[], Any]) -> Any:
        started = time.perf_counter()
        result = work()
        found.seconds[part] = time.perf_counter() - started
        return result

    if parts & {"pca", "em", "em_round", "assign", "layer"}:
        vectors = planted(n_rows, 0)
        scores = timed("pca", lambda: kernels.pca(vectors, CLUSTERING.reduce_dims, 0))
        rows = standardise(scores)
    if parts & {"em", "em_round", "assign"}:
        start = isotropic_mixture(rows[:n_components], 1.0, np.full(n_components, 1 / n_components))
        fitted = found.fitted = timed(
            "em", lambda: fit(lambda mixture: kernels.statistics(rows, mixture), start, n_rows)
        )
        held = xp.asarray(rows)
        timed("em_round", lambda: mixture_statistics(xp, held, fitted, block_rows=rows_a_block))
        timed("assign", lambda: kernels.assign(rows, fitted, 0.1))
        del held
    if "layer" in parts:
        soft = timed("layer", lambda: soft_clusters(scores, SETTINGS, kernels))
        found.quality["clusters"] = len(soft.sizes)
    if parts & {"bfs", "leiden"}:
        graph = heavy_tailed(n_rows, 0)
    if "bfs" in parts:
        sources = np.random.default_rng(0).integers(n_rows, size=SOURCES)
        timed("bfs", lambda: kernels.bfs(graph, sources))
    if "leiden" in parts:
        keys = visiting_keys(pa.chunked_array([pa.array(np.arange(graph.n_nodes))]), 0)
        levels = timed("leiden", lambda: kernels.leiden(graph, n_rows, 1.0, keys))
        found.quality |= {"modularity": round(modularity(graph, levels[0]), 4), "communities": int(levels[0].max()) + 1}
    return found


def shares(fitted: Mixture, n_rows: int, seconds: float, card: dict[str, Any]) -> dict[str, float]:
    """Return the utilisation of the card in a round of EM: bytes moved and operations done, over its measured peak."""
    n_dims = fitted.means.shape[1]
    n_columns = n_dims + 1
    elements = n_rows * fitted.n_components
    moved = 4 * (PASSES * elements + 4 * n_rows * n_dims)
    operations = 2 * elements * (n_dims + n_columns)  # the product with the rows, and those with the shares
    return {
        "gb_per_s": round(moved / seconds / 1e9, 1),
        "share_of_copy": round(moved / seconds / 1e9 / card["copy_gb_per_s"], 3),
        "tflop_per_s": round(operations / seconds / 1e12, 3),
        "share_of_matmul": round(operations / seconds / 1e12 / card["matmul_tflop_per_s"], 3),
    }


def card_rates(cupy: Any) -> dict[str, float]:
    """Return the measured peak of the card: bytes read and written by copies, and operations of float32 products."""
    block = cupy.zeros(1 << 28, dtype=cupy.float32)
    other = cupy.empty_like(block)
    square = cupy.ones((8192, 8192), dtype=cupy.float32)
    result = cupy.empty_like(square)
    copy_s = _best_of(cupy, lambda: cupy.copyto(other, block))
    matmul_s = _best_of(cupy, lambda: cupy.matmul(square, square, out=result))
    return {
        "copy_gb_per_s": round(2 * block.nbytes / copy_s / 1e9, 1),
        "matmul_tflop_per_s": round(2 * 8192**3 / matmul_s / 1e12, 2),
    }


def _best_of(cupy: Any, work: Callable[[], Any], times: int = 5) -> float:
    work()
    found = []
    for _ in range(times):
        cupy.cuda.runtime.deviceSynchronize()
        started = time.perf_counter()
        work()
        cupy.cuda.runtime.deviceSynchronize()
        found.append(time.perf_counter() - started)
    return min(found)


def planted(n_rows: int, seed: int) -> FloatMatrix:
    """Rows around a centre for every hundred of them."""
    random = np.random.default_rng(seed)
    centres = random.standard_normal((max(n_rows // 100, 1), COLUMNS), np.float32)
    rows: FloatMatrix = centres[random.integers(len(centres), size=n_rows)]
    rows += 0.5 * random.standard_normal(rows.shape, np.float32)
    return rows


def heavy_tailed(n_nodes: int, seed: int) -> CsrGraph:
    """A graph with hubs: one end of an edge is drawn towards the low numbers, the other near the first or anywhere."""
    random = np.random.default_rng(seed)
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


def rounded(seconds: dict[str, float]) -> dict[str, float]:
    """Four digits are more than enough."""
    return {part: float(f"{value:.4g}") for part, value in seconds.items()}


if __name__ == "__main__":
    main()
