"""Does merging take time by the mention and memory by the partition, whatever the hubs?

Mentions of names with Zipf frequencies are written in parts to a temporary folder, as extraction leaves them (not
counted), and merged into entities inline and on Ray; a case each in a process of its own. Prints a JSON line for each:
seconds of the whole stage and of its first pass, CPU seconds of driver and workers, mentions a second, the peaks of
driver and largest worker (VmHWM of /proc, the system's own) with what they were before, how many mentions the largest
hub has, and a digest of the output, which is the same in every case.

    python benchmarks/merge.py [--mentions 1000000 10000000] [--names N] [--workers 0 1 2]    (0: inline)
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.faulty_runs import workers_below
from benchmarks.memory import peak_mb
from hirag_dist.execution.dataset import Dataset, DatasetPart
from hirag_dist.execution.events import StageFinished
from hirag_dist.execution.inline import InlineExecutor
from hirag_dist.execution.ray import RayExecutor
from hirag_dist.execution.runner import StageRunner
from hirag_dist.execution.stage import Services
from hirag_dist.indexing.stages.merge import MergeEntities
from hirag_dist.llm.limits.coordinator import QuotaCoordinator
from hirag_dist.llm.limits.protocol import QuotaClient
from hirag_dist.protocols import Executor
from hirag_dist.schemas import MENTIONS
from hirag_dist.storage.digest import table_digest
from hirag_dist.storage.store import Store

A_PART = 10_000
A_CHUNK = 10
FORMS = 3
LABEL = "merge entities"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mentions", type=int, nargs="+", default=[1_000_000, 10_000_000])
    parser.add_argument("--names", type=int, help="distinct names; by default a tenth of the mentions")
    parser.add_argument("--workers", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--step", choices=("write", "merge"), help=argparse.SUPPRESS)  # in this process
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    for n_mentions in arguments.mentions:
        n_names = arguments.names or max(n_mentions // 10, 1)
        if arguments.step == "write":
            write(Store(arguments.folder), n_mentions, n_names, arguments.seed)
        elif arguments.step == "merge":
            print(json.dumps(measure(Store(arguments.folder), arguments.workers[0])), flush=True)
        else:
            with tempfile.TemporaryDirectory() as folder:
                own = [sys.executable, __file__, "--folder", folder, "--mentions", str(n_mentions)]
                own += ["--names", str(n_names), "--seed", str(arguments.seed)]
                subprocess.run([*own, "--step", "write"], check=True)
                for workers in arguments.workers:
                    subprocess.run([*own, "--step", "merge", "--workers", str(workers)], check=True)


def write(store: Store, n_mentions: int, n_names: int, seed: int) -> None:
    """Write mentions in parts, and what they are in `dataset.json`. Name k comes up in proportion to 1 / (k + 1)."""
    rng = np.random.default_rng(seed)
    weights = np.cumsum(1 / np.arange(1, n_names + 1))
    counts = np.zeros(n_names, np.int64)
    parts = []
    for first in range(0, n_mentions, A_PART):
        rows = np.arange(first, min(first + A_PART, n_mentions))
        names = np.searchsorted(weights, rng.random(len(rows)) * weights[-1])
        np.add.at(counts, names, 1)
        table = mentions_of(rows, names)
        path = f"mentions/part-{first // A_PART:06d}.parquet"
        store.write_table(path, table)
        parts.append((path, table.num_rows, table_digest(table)))
    store.write_json("dataset.json", {"parts": parts, "hub": int(counts.max()), "names": int((counts > 0).sum())})


def mentions_of(rows: np.ndarray[Any, Any], names: np.ndarray[Any, Any]) -> pa.Table:
    """Return MENTIONS: each described in words of its own, in one of three forms of its name and mostly of one type."""
    chunk_ids = [hashlib.sha256(str(chunk).encode()).hexdigest()[:24] for chunk in np.unique(rows // A_CHUNK).tolist()]
    chunk_of = rows // A_CHUNK - rows[0] // A_CHUNK
    number = pa.array(names).cast(pa.string())
    forms = pa.array(["Entity number", "ENTITY NUMBER", "Entity Number"]).take(pa.array(rows * 31 % FORMS))
    said = pa.array(rows).cast(pa.string())
    return pa.table(
        {
            "name_key": pc.binary_join_element_wise("entity number", number, " "),
            "chunk_id": pa.array(chunk_ids).take(pa.array(chunk_of)),
            "position": pa.array(rows % A_CHUNK, pa.int32()),
            "name": pc.binary_join_element_wise(forms, number, " "),
            "type": pa.array(["concept", "person"]).take(pa.array((rows * 17 % 5 == 0).astype(np.int64))),
            "description": pc.binary_join_element_wise(
                "It is what sentence", said, "of a corpus that nobody wrote says about number", number, " "
            ),
            "described": pa.array(rows % 11 != 0),
        },
        schema=MENTIONS,
    )


def measure(store: Store, workers: int) -> dict[str, Any]:
    """Merge what `write` wrote, and return the figures."""
    given = store.read_json("dataset.json")
    parts = Dataset(MENTIONS, ())
    for path, rows, digest in given["parts"]:
        parts += one_part(path, rows, digest)
    seconds: dict[str, float] = {}
    worker_peaks: list[float] = []
    cpu_s: list[float] = []  # of driver and workers, when the stages were done

    def listen(event: object) -> None:
        if isinstance(event, StageFinished):
            workers = workers_below(os.getpid())
            seconds[event.label] = event.seconds
            worker_peaks[:] = [peak_mb(each.pid) for each in workers]
            cpu_s.append(sum(sum(each.cpu_times()[:2]) for each in [psutil.Process(), *workers]))

    executor = make_executor(workers)
    try:
        runner = StageRunner(store, executor, (listen,), 0.0, fresh=True)
        runner.run(MergeEntities(), "first", mentions=one_part(*given["parts"][0]))  # so that workers are there
        driver_start_mb, worker_start_mb = peak_mb(os.getpid()), max(worker_peaks, default=0.0)
        started = time.perf_counter()
        found = runner.run(MergeEntities(), LABEL, mentions=parts)
        took = time.perf_counter() - started
    finally:
        executor.close()
    digests = json.dumps([part.digest for part in found.entities.parts])
    return {
        "benchmark": "merge",
        "case": f"{parts.rows:,} mentions, {f'ray, {workers} workers' if workers else 'inline'}",
        "mentions": parts.rows,
        "entities": found.entities.rows,
        "hub_mentions": given["hub"],
        "entities_cut": found.cut.rows,
        "partitions": len(found.entities.parts),
        "seconds": round(took, 2),
        "first_pass_s": round(seconds.get(f"{LABEL}: by key", 0.0), 2),
        "cpu_s": round(cpu_s[-1] - cpu_s[0], 2),
        "mentions_a_second": round(parts.rows / took),
        "driver_start_mb": round(driver_start_mb),
        "driver_peak_mb": round(peak_mb(os.getpid())),
        "worker_start_mb": round(worker_start_mb),
        "worker_peak_mb": round(max(worker_peaks, default=0.0)),
        "output": hashlib.sha256(digests.encode()).hexdigest()[:12],
    }


def one_part(path: str, rows: int, digest: str) -> Dataset:
    """Return a file as a dataset."""
    return Dataset(MENTIONS, (DatasetPart(path, rows, digest),))


def make_executor(workers: int) -> Executor:
    """Return an executor whose workers know no models."""
    if not workers:
        return InlineExecutor(lambda: make_services(QuotaCoordinator({}), ""))
    return RayExecutor(make_services, lambda: QuotaCoordinator({}), workers=workers)


def make_services(client: QuotaClient, holder: str) -> Services:
    """Return the services of a worker that merges: none are used."""
    unused: Any = None
    return Services(unused, unused, unused, unused, len)


if __name__ == "__main__":
    main()
