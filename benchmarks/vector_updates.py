"""Time of taking an updated snapshot into Milvus, and of searches in the collection that it shares with its base.

Prints a JSON line for each number of rows and backend: seconds to fill a collection from scratch, to open updates that
change some rows, and to open a complete one again; recall@20 and milliseconds of a search before the updates and after
them, for the newest snapshot and for the first; and with a filter that admits every row.

    python benchmarks/vector_updates.py [--rows 10000 100000] [--changed 50] [--updates 3] [--vectors milvus-lite]
        [--uri http://127.0.0.1:19530]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.recall import LIMIT, brute_force, generated
from hirag_dist.config.model import VectorsConfig
from hirag_dist.protocols import VectorIndex
from hirag_dist.retrieval.vector_index.milvus import MilvusCollections, open_milvus, open_milvus_lite
from hirag_dist.retrieval.vector_index.milvus.connection import connect, open_lite
from hirag_dist.storage.snapshot.reader import Snapshot
from tests.lineages import with_new_vectors


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="*", type=int, default=[10_000])
    parser.add_argument("--changed", type=int, default=50, help="rows that an update changes")
    parser.add_argument("--updates", type=int, default=3)
    parser.add_argument("--searches", type=int, default=100)
    parser.add_argument("--vectors", nargs="*", default=["milvus-lite"])
    parser.add_argument("--uri", help="of a Milvus server")
    arguments = parser.parse_args()
    for n_rows in arguments.rows:
        with tempfile.TemporaryDirectory() as folder:
            snapshot, queries = generated(Path(folder) / "generated", n_rows, arguments.searches)
            snapshots = [snapshot]
            for number in range(arguments.updates):
                first = number * 2 * arguments.changed
                snapshots.append(with_new_vectors(snapshots[-1], range(first, first + arguments.changed)))
            for backend in [*arguments.vectors, *(["milvus"] if arguments.uri else [])]:
                line = asyncio.run(_measured(snapshots, queries, arguments.uri if backend == "milvus" else None))
                head = {"benchmark": "vector_updates", "vectors": backend, "rows": n_rows, "changed": arguments.changed}
                print(json.dumps(head | line), flush=True)


async def _measured(
    snapshots: list[Snapshot], queries: NDArray[np.float32], uri: str | None
) -> dict[str, float | list[float]]:
    opened: list[VectorIndex] = []
    seconds: list[float] = []
    found: dict[str, float | list[float]] = {}
    for number, snapshot in enumerate(snapshots):
        index, duration = await asyncio.to_thread(_opened, snapshot, uri)
        opened.append(index)
        seconds.append(duration)
        if not number:
            found |= await _searched("alone", index, snapshot, queries)
    found |= await _searched("newest", opened[-1], snapshots[-1], queries)
    found |= await _searched("first", opened[0], snapshots[0], queries)
    found |= await _searched("admitting_filter", opened[-1], snapshots[-1], queries, max_layer=9)
    again, duration = await asyncio.to_thread(_opened, snapshots[-1], uri)
    for index in (*opened, again):
        index.close()
    started = time.perf_counter()
    client = open_lite(snapshots[0].store) if uri is None else connect(uri, "", 60.0)
    with MilvusCollections(client, "Milvus") as collections:
        ids = [snapshot.manifest.snapshot_id for snapshot in snapshots]
        collections.drop(collections.of(ids[:1]), lambda: snapshots[1:])
        pruned = time.perf_counter() - started
        collections.drop(collections.of(ids[1:]), list)
    rounded = [round(each, 2) for each in seconds]
    times: dict[str, float | list[float]] = {"fill_s": rounded[0], "update_s": rounded[1:]}
    return times | {"open_again_s": round(duration, 2), "prune_s": round(pruned, 2)} | found


def _opened(snapshot: Snapshot, uri: str | None) -> tuple[VectorIndex, float]:
    started = time.perf_counter()
    config = VectorsConfig(uri=uri, timeout_s=60.0)
    index = open_milvus_lite(snapshot, config) if uri is None else open_milvus(snapshot, config)
    return index, time.perf_counter() - started


async def _searched(
    label: str, index: VectorIndex, snapshot: Snapshot, queries: NDArray[np.float32], max_layer: int | None = None
) -> dict[str, float]:
    expected = brute_force(snapshot, queries, max_layer)
    milliseconds, n_found = [], 0
    for query, true in zip(queries, expected, strict=True):
        started = time.perf_counter()
        rows, _ = await index.search(query, LIMIT, max_layer)
        milliseconds.append((time.perf_counter() - started) * 1e3)
        n_found += len(np.intersect1d(rows, true))
    return {
        f"{label}_p50_ms": round(float(np.percentile(milliseconds, 50)), 1),
        f"{label}_p99_ms": round(float(np.percentile(milliseconds, 99)), 1),
        f"{label}_recall_at_{LIMIT}": round(n_found / sum(map(len, expected)), 4),
    }


if __name__ == "__main__":
    main()
