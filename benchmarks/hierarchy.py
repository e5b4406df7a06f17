"""Growth of the cost of clustering a layer, and the recovery of planted clusters, on any number of workers.

Vectors of planted, overlapping clusters with heavy-tailed sizes are written to a temporary folder as a build leaves
them (not counted) and clustered by its stages, inline and on Ray; a case each in a process of its own. Prints a JSON
line for each: seconds of all stages and of each, the peaks of anonymous memory (resident, without the page cache) of
the driver and of the largest worker, a digest of the labels, which is the same for any number of workers, and how the
clusters agree with the planted ones. `growth` is the exponent of the seconds from the case with fewer rows.

    python -m benchmarks hierarchy [--rows 20000 100000] [--dim 384] [--workers 0 2] [--spread 0.25]    (0: inline)
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from benchmarks.agreement import agreement, members
from benchmarks.planted import SPREAD, plant
from benchmarks.processes import workers_below
from hirag_dist.compute.kernels import CpuKernels
from hirag_dist.config.model import ClusteringConfig
from hirag_dist.core.clustering.partition_tree import ClusterSettings
from hirag_dist.execution.dataset import Dataset, DatasetPart
from hirag_dist.execution.events import StageFinished
from hirag_dist.execution.executors import InlineExecutor
from hirag_dist.execution.ray import RayExecutor
from hirag_dist.execution.runner import StageRunner
from hirag_dist.execution.stage import Services
from hirag_dist.indexing.layer_clusters import LayerClusteringOptions as How
from hirag_dist.indexing.layer_clusters import cluster_layer
from hirag_dist.indexing.stages.embed import vector_table
from hirag_dist.llm.limits.coordinator import QuotaCoordinator
from hirag_dist.llm.limits.protocol import QuotaClient
from hirag_dist.protocols import Executor
from hirag_dist.schemas import ENTITIES, VECTORS
from hirag_dist.storage.digest import table_digest
from hirag_dist.storage.store import Store

PART_ROWS = 8192
TARGET_SIZE = 20
THRESHOLD = 0.1
DESCRIPTION = "What is said of an entity, in a few sentences that a prompt shows. " * 5
CHARS = 480
LOOK_S = 0.1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[20_000, 100_000])
    parser.add_argument("--dim", type=int, default=384)
    parser.add_argument("--workers", type=int, nargs="+", default=[0, 2])
    parser.add_argument("--spread", type=float, default=SPREAD, help="of a cluster's rows, in that of the centres")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--step", choices=("write", "cluster"), help=argparse.SUPPRESS)  # in this process
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.step == "write":
        planted = plant(Path(arguments.folder), arguments.rows[0], arguments.dim, arguments.seed, arguments.spread)
        np.savez(Path(arguments.folder, "planted.npz"), clusters=planted.clusters, rows=planted.rows)
        write_layer(Store(arguments.folder), planted.vectors)
    elif arguments.step == "cluster":
        settings = ClusterSettings(TARGET_SIZE, 2 * TARGET_SIZE, THRESHOLD, arguments.seed)
        figures, clusters = cluster_stages(Store(arguments.folder), arguments.workers[0], settings)
        with np.load(Path(arguments.folder, "planted.npz")) as truth:
            planted_clusters = members(truth["clusters"], truth["rows"], arguments.rows[0])
        score = agreement(members(*memberships(clusters), arguments.rows[0]), planted_clusters)
        figures |= {"planted": planted_clusters.shape[0], "f1": round(score.f1, 3), "nmi": round(score.nmi, 3)}
        print(json.dumps(figures), flush=True)
    else:
        compare(arguments)


def compare(arguments: argparse.Namespace) -> None:
    """Measure each case in a process of its own, and print its line."""
    before: dict[int, tuple[int, float]] = {}  # workers → rows and seconds of the case with fewer rows
    for n_rows in arguments.rows:
        with tempfile.TemporaryDirectory() as folder:
            own = [sys.executable, "-m", "benchmarks.hierarchy", "--folder", folder, "--rows", str(n_rows)]
            own += ["--dim", str(arguments.dim), "--seed", str(arguments.seed), "--spread", str(arguments.spread)]
            subprocess.run([*own, "--step", "write"], check=True)
            for workers in arguments.workers:
                command = [*own, "--step", "cluster", "--workers", str(workers)]
                done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
                line = {"benchmark": "hierarchy", "rows": n_rows, "dim": arguments.dim} | json.loads(done.stdout)
                if workers in before:
                    rows, seconds = before[workers]
                    line["growth"] = round(math.log(line["seconds"] / seconds) / math.log(n_rows / rows), 3)
                before[workers] = n_rows, line["seconds"]
                print(json.dumps(line), flush=True)


@dataclass
class Peaks:
    """Anonymous memory in MB: resident, but not the page cache."""

    driver_mb: int = 0
    worker_mb: int = 0
    stop: threading.Event = field(default_factory=threading.Event)

    def watch(self) -> None:
        """Look until it is stopped."""
        while not self.stop.wait(LOOK_S):
            self.driver_mb = max(self.driver_mb, anonymous_mb(os.getpid()))
            for worker in workers_below(os.getpid()):
                self.worker_mb = max(self.worker_mb, anonymous_mb(worker.pid))


def anonymous_mb(pid: int) -> int:
    """Return RssAnon of a process; 0 where it is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return next((int(line.split()[1]) // 1024 for line in lines if line.startswith("RssAnon")), 0)


@contextmanager
def watched() -> Iterator[Peaks]:
    """Watch the memory of this process and of the workers below it."""
    peaks = Peaks()
    looking = threading.Thread(target=peaks.watch, daemon=True)
    looking.start()
    try:
        yield peaks
    finally:
        peaks.stop.set()
        looking.join()


def write_layer(store: Store, vectors: NDArray[np.float32]) -> None:
    """Write a layer as embedding leaves it, in parts, and what they are in `layer.json`; not counted."""
    parts: dict[str, list[Any]] = {"vectors": [], "entities": []}
    for first in range(0, len(vectors), PART_ROWS):
        block = np.asarray(vectors[first : first + PART_ROWS])
        ids = [f"{number:024x}" for number in range(first, first + len(block))]
        rows = {
            "vectors": vector_table(pa.chunked_array([ids]), block),
            "entities": pa.table(
                {
                    "entity_id": ids,
                    "layer": pa.array(np.zeros(len(ids), np.int32)),
                    "name": [f"Entity number {own}" for own in ids],
                    "type": ["concept"] * len(ids),
                    "description": [DESCRIPTION] * len(ids),
                    "described": [True] * len(ids),
                    "n_mentions": pa.array(np.ones(len(ids), np.int32)),
                    "chunk_ids": pa.array([[]] * len(ids), ENTITIES.field("chunk_ids").type),
                },
                schema=ENTITIES,
            ),
        }
        for name, table in rows.items():
            path = f"{name}/part-{first // PART_ROWS:06d}.parquet"
            store.write_table(path, table)
            parts[name].append((path, table.num_rows, table_digest(table)))
    store.write_json("layer.json", {"dim": vectors.shape[1], "parts": parts})


def cluster_stages(
    store: Store, workers: int, settings: ClusterSettings, reduce_dims: int = ClusteringConfig().reduce_dims
) -> tuple[dict[str, Any], pa.Table]:
    """Cluster what `write_layer` wrote, on so many workers of Ray, or inline with none; return figures and CLUSTERS.

    A stage's seconds hold those of its first pass, `by key`, and the first one's hold the start of the workers.
    `labels` is a digest of all memberships: equal for equal clusters.
    """
    given = store.read_json("layer.json")
    schemas = {"vectors": VECTORS, "entities": ENTITIES}
    layer = {
        name: Dataset(schemas[name], tuple(DatasetPart(*part) for part in given["parts"][name])) for name in schemas
    }
    seconds: dict[str, float] = {}

    def listen(event: object) -> None:
        if isinstance(event, StageFinished):
            seconds[event.label.removeprefix("cluster layer 0: ")] = round(event.seconds, 2)

    executor = make_executor(workers)
    try:
        runner = StageRunner(store, executor, (listen,), 0.0, fresh=True)
        how = How(settings, given["dim"], reduce_dims, CHARS, "cpu")
        with watched() as peaks:
            found = cluster_layer(runner, how, 0, **layer)
    finally:
        executor.close()
    clusters = runner.datasets.read(found.clusters).sort_by([("cluster_id", "ascending"), ("entity_id", "ascending")])
    figures = {
        "executor": f"ray, {workers} workers" if workers else "inline",
        "seconds": round(sum(took for label, took in seconds.items() if not label.endswith("by key")), 1),
        "stage_seconds": seconds,
        "driver_anonymous_mb": peaks.driver_mb,
        "worker_anonymous_mb": peaks.worker_mb,
        "labels": table_digest(clusters)[:16],
    }
    return figures | asdict(found.stats), clusters


def memberships(clusters: pa.Table) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return (n_entries,) numbers of clusters, and of rows: `write_layer` made the ids of those."""
    numbers = clusters["cluster_id"].combine_chunks().dictionary_encode().indices.to_numpy().astype(np.int64)
    return numbers, np.array([int(own, 16) for own in clusters["entity_id"].to_pylist()])


def make_executor(workers: int) -> Executor:
    """Return an executor whose workers know no models."""
    if not workers:
        return InlineExecutor(lambda: make_services(QuotaCoordinator({}), ""))
    return RayExecutor(make_services, lambda: QuotaCoordinator({}), workers=workers)


def make_services(client: QuotaClient, holder: str) -> Services:
    """Return the services of a worker that clusters."""
    unused: Any = None
    return Services(unused, unused, lambda name: CpuKernels(), unused, len)


if __name__ == "__main__":
    main()
