"""Growth of the cost of clustering a layer, and the recovery of planted clusters.

For each number of vectors and of dimensions: unit vectors of planted, overlapping clusters with heavy-tailed sizes are
written to a file and memory-mapped; then principal components, soft clusters, and how they agree with the planted ones.
For comparison, where they can be run: scikit-learn's mixtures on the same components with their own BIC choice, and the
method of the HiRAG reference (every k from 1 to 49, five starts, full covariance, two dimensions).
Prints a JSON line each, and one with the growth exponent. Memory is what the system lists as anonymous (RssAnon),
over this process and those below it, so that mapped vectors don't count.

With --executor the layer goes through the stages of a build, on one process or on Ray's workers; `labels`, a digest of
all memberships, is then the same for any number of workers.

    python benchmarks/hierarchy.py [--rows 1000 5000 20000] [--dims 384] [--workers 2] [--layers 100000]
    python benchmarks/hierarchy.py --rows 200000 --executor ray --workers 2
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import numpy as np
import psutil
from scipy.sparse import csr_array
from sklearn.mixture import GaussianMixture
from threadpoolctl import threadpool_limits

from benchmarks.agreement import agreement, members
from benchmarks.layer_stages import cluster_stages, memberships, write_layer
from benchmarks.planted import SPREAD, Planted, plant
from hirag_dist.compute.cpu import CpuKernels
from hirag_dist.config.model import ClusteringConfig, Config
from hirag_dist.core.clustering.gaussian_mixture import standardise
from hirag_dist.core.clustering.partition_tree import ClusterSettings
from hirag_dist.core.clustering.soft_clusters import SoftClusters, soft_clusters
from hirag_dist.core.clustering.sparsity import cluster_sparsity
from hirag_dist.core.clustering.stop_rule import StopLimits, stop_after_clustering, stop_before_clustering
from hirag_dist.storage.store import Store

MB = 1e6
REFERENCE_K = range(1, 50)
REFERENCE_SAMPLED_K = (10, 25, 49)
REFERENCE_STARTS = 5
REFERENCE_THRESHOLD = 0.1
SUMMARY_NOISE = 0.05  # of a summary's vector around the mean of its members, in units of the vectors' spread
KERNELS = CpuKernels()

_cluster: Callable[[Any], Any] | None = None


class Peak:
    """The most anonymous memory of this process and its children, looked at every 50 ms."""

    def __enter__(self) -> Peak:
        self.megabytes = 0.0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        me = psutil.Process()
        while True:
            self.megabytes = max(self.megabytes, sum(map(anonymous, [me, *me.children(recursive=True)])) / MB)
            if self._done.wait(0.05):
                return


StopName = Literal["compression", "paper"]


def anonymous(process: psutil.Process) -> float:
    """Return bytes of RssAnon; 0 for a process that has just ended. Forked pages count in each that wrote them."""
    try:
        lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((float(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon")), 0)


def spread_over(workers: int, marks: list[float]) -> Callable[..., Iterable[Any]]:
    """Return a map over cells in forked processes that notes when each call starts and ends."""

    def each_cell(function: Callable[[Any], Any], parts: Iterable[Any]) -> Iterator[Any]:
        global _cluster  # a fork inherits it, and the rows with it: only row numbers travel
        _cluster = function
        marks.append(time.perf_counter())
        if workers == 1:
            yield from map(function, parts)
        else:
            with multiprocessing.get_context("fork").Pool(
                workers, initializer=threadpool_limits, initargs=(1,)
            ) as pool:
                yield from pool.imap(_call, parts)
        marks.append(time.perf_counter())

    return each_cell


def _call(part: Any) -> Any:
    assert _cluster is not None
    return _cluster(part)


def ours(planted: Planted, clustering: ClusteringConfig, workers: int) -> tuple[dict[str, Any], SoftClusters, Any]:
    """Reduce and cluster; return the figures, the clusters and the components."""
    marks: list[float] = []
    settings = settings_of(clustering)
    with Peak() as peak:
        started = time.perf_counter()
        with threadpool_limits(workers):
            reduced = KERNELS.pca(planted.vectors, clustering.reduce_dims, 0)
        at_reduced, memory_reduced = time.perf_counter(), peak.megabytes
        with threadpool_limits(1):
            found = soft_clusters(reduced, settings, KERNELS, spread_over(workers, marks))
        ended = time.perf_counter()
    cut, fitted = marks[0], marks[-1]
    return (
        {
            "seconds": round(ended - started, 2),
            "reduce_s": round(at_reduced - started, 2),
            "cut_s": round(cut - at_reduced, 2),
            "fit_s": round(fitted - cut, 2),
            "join_s": round(ended - fitted, 2),
            "reduce_peak_mb": round(memory_reduced),
            "peak_mb": round(peak.megabytes),
            "components": found.n_components,
            "clusters": len(found.sizes),
            "memberships_a_row": round(len(found.rows) / len(reduced), 3),
        },
        found,
        reduced,
    )


def through_stages(
    planted: Planted, folder: Path, clustering: ClusteringConfig, workers: int
) -> tuple[dict[str, Any], csr_array]:
    """Cluster by the stages of a build, on Ray's workers or in this process with none; return figures and clusters."""
    store = Store(str(folder / "store"))
    write_layer(store, planted.vectors)
    figures, table = cluster_stages(store, workers, settings_of(clustering), clustering.reduce_dims)
    return figures, members(*memberships(table), len(planted.vectors))


def settings_of(clustering: ClusteringConfig) -> ClusterSettings:
    """Return the settings that a build would use."""
    return ClusterSettings(clustering.target_size, clustering.max_size, clustering.threshold, 0)


def scikit_learn(reduced: Any, clustering: ClusteringConfig, kind: str) -> tuple[dict[str, Any], csr_array]:
    """Fit scikit-learn's mixtures of half to twice the usual number, choose by BIC, assign by the same threshold."""
    rows = standardise(reduced)
    usual = len(rows) / clustering.target_size
    started = time.perf_counter()
    fits = [
        GaussianMixture(k, covariance_type=kind, init_params="k-means++", reg_covar=1e-4, random_state=0).fit(rows)
        for k in np.geomspace(usual / 2, usual * 2, 5).round().astype(int).tolist()
    ]
    best = min(fits, key=lambda fit: float(fit.bic(rows)))
    found = thresholded(best.predict_proba(rows), clustering.threshold)
    return {"seconds": round(time.perf_counter() - started, 2), "components": best.n_components}, found


def reference(vectors: Any, largest: int) -> tuple[dict[str, Any], csr_array | None]:
    """Do as the HiRAG reference does; past `largest` rows, time three k and add up the line through them."""
    started = time.perf_counter()
    if find_spec("umap"):
        from umap import UMAP

        neighbours = int((len(vectors) - 1) ** 0.5)
        plane = UMAP(n_neighbors=neighbours, n_components=2, metric="cosine").fit_transform(np.asarray(vectors))
    else:
        plane = KERNELS.pca(vectors, 2, 0)
    reduced_s = time.perf_counter() - started
    whole = len(vectors) <= largest
    seconds, fits = [], []
    for k in REFERENCE_K if whole else REFERENCE_SAMPLED_K:
        begun = time.perf_counter()
        fit = GaussianMixture(k, n_init=REFERENCE_STARTS, random_state=0).fit(plane)
        fits.append((float(fit.bic(plane)), k, fit))
        seconds.append(time.perf_counter() - begun)
    total = sum(seconds)
    if not whole:
        slope, base = np.polyfit(REFERENCE_SAMPLED_K, seconds, 1)
        total = float(sum(base + slope * k for k in REFERENCE_K))
    line = {
        "seconds": round(reduced_s + total, 2),
        "reduction": "umap" if find_spec("umap") else "pca",
        "extrapolated": not whole,
    }
    if not whole:
        return line, None
    best = min(fits)[2]
    return line | {"components": best.n_components}, thresholded(best.predict_proba(plane), REFERENCE_THRESHOLD)


def thresholded(shares: Any, threshold: float) -> csr_array:
    """Return (clusters, rows) memberships: shares past the threshold, and each row's best."""
    keep = shares >= threshold
    keep[np.arange(len(shares)), shares.argmax(axis=1)] = True
    rows, clusters = np.nonzero(keep)
    return members(np.unique(clusters, return_inverse=True)[1], rows, len(shares))


def layers(
    n_rows: int, dim: int, clustering: ClusteringConfig, stop: Literal["compression", "paper"], workers: int
) -> Iterator[dict[str, Any]]:
    """Grow a hierarchy of planted vectors; a summary's vector is the mean of its members with some noise."""
    rng = np.random.default_rng(1)
    defaults = Config()
    limits = StopLimits(stop, defaults.min_change_rate, clustering.target_size, defaults.max_layers)
    with tempfile.TemporaryDirectory() as folder:
        vectors: Any = plant(Path(folder), n_rows, dim).vectors
        below, sparsities, layer = None, [], 0
        while True:
            line: dict[str, Any] = {"layer": layer, "entities": len(vectors)}
            decision = stop_before_clustering(layer, len(vectors), below, limits)
            if decision is None:
                reduced = KERNELS.pca(vectors, min(clustering.reduce_dims, len(vectors) - 1), 0)
                found = soft_clusters(reduced, settings_of(clustering), KERNELS, spread_over(workers, []))
                sparsities.append(cluster_sparsity(found.sizes, len(vectors)))
                median = float(np.median(found.sizes))
                line |= {"clusters": len(found.sizes), "median": median, "sparsity": round(sparsities[-1], 6)}
                decision = stop_after_clustering(sparsities, median, limits)
            yield {"benchmark": "hierarchy", "case": f"layers, {stop}"} | line | {"decision": decision or "go on"}
            if decision is not None:
                return
            matrix = members(found.clusters, found.rows, len(vectors))
            means = (matrix @ vectors) / found.sizes[:, None]
            below, layer = len(vectors), layer + 1
            spread = float(np.sqrt(np.mean(np.var(vectors[:5000], axis=0))))
            means += SUMMARY_NOISE * spread * rng.standard_normal(means.shape)
            vectors = (means / np.linalg.norm(means, axis=1, keepdims=True)).astype(np.float32)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="*", default=[1000, 5000, 20_000])
    parser.add_argument("--dims", type=int, nargs="+", default=[384])
    parser.add_argument("--spread", type=float, default=SPREAD, help="of a cluster's rows, in that of the centres")
    parser.add_argument("--workers", type=int, default=2, help="processes that cells are spread over")
    parser.add_argument("--executor", choices=("inline", "ray"), help="use a build's stages; rows past one shard")
    parser.add_argument("--reduce-dims", type=int, default=ClusteringConfig().reduce_dims)
    parser.add_argument("--sklearn-rows", type=int, default=5000, help="scikit-learn's mixtures up to so many rows")
    parser.add_argument("--reference-rows", type=int, default=5000, help="the reference's method up to so many rows")
    parser.add_argument("--reference-whole", type=int, default=20_000, help="rows past which only three k are timed")
    parser.add_argument("--layers", type=int, default=0, help="vectors to grow a whole hierarchy from, both stop rules")
    options = parser.parse_args()
    warnings.filterwarnings("ignore", module="sklearn")  # that EM has not converged: the reference does not mind
    clustering = ClusteringConfig(reduce_dims=options.reduce_dims)
    for dim in options.dims:
        times = []
        for n_rows in options.rows:
            case = {"benchmark": "hierarchy", "vectors": n_rows, "dims": dim, "spread": options.spread}
            case |= clustering.model_dump(include={"reduce_dims"})
            with tempfile.TemporaryDirectory() as folder:
                planted = plant(Path(folder), n_rows, dim, spread=options.spread)
                truth = members(planted.clusters, planted.rows, n_rows)
                if options.executor:
                    workers = options.workers if options.executor == "ray" else 0
                    figures, found = through_stages(planted, Path(folder), clustering, workers)
                    times.append(figures["seconds"])
                    show(case | {"way": "stages", "planted": truth.shape[0]} | figures, found, truth)
                    continue
                figures, found, reduced = ours(planted, clustering, options.workers)
                times.append(figures["seconds"])
                line = {"planted": truth.shape[0]} | figures
                show(
                    case | {"way": "ours", "workers": options.workers} | line,
                    members(found.clusters, found.rows, n_rows),
                    truth,
                )
                if n_rows <= options.sklearn_rows:
                    for kind in ("diag", "spherical"):
                        show(case | {"way": f"scikit-learn {kind}"}, *scikit_learn(reduced, clustering, kind), truth)
                if n_rows <= options.reference_rows:
                    figures, other = reference(planted.vectors, options.reference_whole)
                    figures |= {"speed_up": round(figures["seconds"] / times[-1], 1)}
                    show(case | {"way": "reference"} | figures, other, truth)
        if len(times) > 1:
            exponent = float(np.polyfit(np.log(options.rows), np.log(times), 1)[0])
            steps = np.diff(np.log(times)) / np.diff(np.log(options.rows))
            line = {"exponent": round(exponent, 3), "last_step": round(float(steps[-1]), 3)}
            print(json.dumps({"benchmark": "hierarchy", "dims": dim, "way": "growth"} | line), flush=True)
    if options.layers:
        for stop in ("compression", "paper"):
            for line in layers(options.layers, options.dims[0], clustering, stop, options.workers):
                print(json.dumps(line), flush=True)


def show(line: dict[str, Any], *rest: Any) -> None:
    """Print a line with its agreement. `rest`: further figures or none, the clusters found or None, the planted."""
    *more, found, truth = rest
    for figures in more:
        line |= figures
    if found is not None:
        score = agreement(found, truth)
        line |= {"f1": round(score.f1, 3), "nmi": round(score.nmi, 3)}
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
