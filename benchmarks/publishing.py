"""Memory and time of publishing.

The parts of a made-up index (`generated.py`) are written as stages leave them, in no order (not counted), and
published, in a process of its own that looks at itself ten times a second. Prints a JSON line for each case: seconds of
publishing and those of them in `write_snapshot`, bytes of the snapshot, and the peaks in MB of anonymous memory
(RssAnon), of pages of files (RssFile) and of shared memory (RssShmem), each for itself. Pages of files stay until
other processes need the memory.

    python -m benchmarks.publishing [--entities 100000 1000000] [--folder FOLDER]

A million entities take 6.3 GB of disk in FOLDER; meanwhile 4.4 GB more there, and tables and vectors uncompressed among
the temporary files.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa

from benchmarks.generated import generate
from hirag_dist import schemas
from hirag_dist.execution.dataset import Dataset, DatasetPart
from hirag_dist.execution.runner import StageRunner
from hirag_dist.indexing import publish as publish_module
from hirag_dist.indexing.publish import SnapshotContents, publish
from hirag_dist.indexing.stages.embed import vector_table
from hirag_dist.storage.snapshot.reader import current_id, open_snapshot
from hirag_dist.storage.store import Store

PART_ROWS = 20_000
VECTOR_ROWS = 1024  # as `EmbedEntities` leaves them
LOOK_S = 0.1
TABLES = ("documents", "chunks", "entities", "relations", "clusters", "communities", "reports")
KINDS = ("RssAnon", "RssFile", "RssShmem")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entities", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--folder", help="Where made-up indexes and parts are kept for the next run.")
    parser.add_argument("--step", choices=("write", "publish"), help=argparse.SUPPRESS)  # in this process
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(arguments.folder or temporary)
        for n_entities in arguments.entities:
            place = root / f"{n_entities}"
            if arguments.step == "write":
                write_parts(place, n_entities)
            elif arguments.step == "publish":
                line = {"benchmark": "publishing", "entities": n_entities}
                print(json.dumps(line | published(place)), flush=True)
            else:
                own = [sys.executable, "-m", "benchmarks.publishing", "--entities", str(n_entities)]
                own += ["--folder", str(root)]
                if not (place / "parts.json").exists():
                    subprocess.run([*own, "--step", "write"], check=True)
                subprocess.run([*own, "--step", "publish"], check=True)


def write_parts(place: Path, n_entities: int) -> None:
    """Write the datasets of a made-up index in no order, and what they are in `parts.json`."""
    store = Store(str(place))
    if current_id(store) is None:
        generate(store, n_entities)
    own_id = current_id(store)
    assert own_id is not None
    snapshot = open_snapshot(store, own_id)
    rng = np.random.default_rng(0)
    datasets: dict[str, list[tuple[str, int]]] = {}
    for name in TABLES:
        table = snapshot.table(name)
        order = np.arange(table.num_rows) if name == "communities" else rng.permutation(table.num_rows)
        slices = (order[first : first + PART_ROWS] for first in range(0, len(order), PART_ROWS))
        datasets[name] = _write(store, name, (table.take(pa.array(rows)) for rows in slices))
    for name, column in (("entities", "entity_id"), ("chunks", "chunk_id")):
        ids = snapshot.table(name, [column])[column].combine_chunks()
        vectors = snapshot.array(f"vectors/{name}")
        order = rng.permutation(len(ids))
        slices = (order[first : first + VECTOR_ROWS] for first in range(0, len(order), VECTOR_ROWS))
        tables = (vector_table(ids.take(pa.array(rows)), vectors[rows]) for rows in slices)
        datasets[f"vectors_{name}"] = _write(store, f"vectors_{name}", tables)
    store.write_json("parts.json", {"dim": snapshot.manifest.dim, "datasets": datasets})


def _write(store: Store, name: str, tables: Any) -> list[tuple[str, int]]:
    written = []
    for number, table in enumerate(tables):
        path = f"parts/{name}/part-{number:06d}.parquet"
        store.write_table(path, table)
        written.append((path, table.num_rows))
    return written


def published(place: Path) -> dict[str, Any]:
    """Publish into a second, empty index and return the cost."""
    noted = Store(str(place)).read_json("parts.json")

    def dataset(name: str, schema: pa.Schema) -> Dataset:
        return Dataset(schema, tuple(DatasetPart(path, rows, "") for path, rows in noted["datasets"][name]))

    known = {name: dataset(name, getattr(schemas, name.upper())) for name in TABLES}
    nothing = {name: Dataset(getattr(schemas, name.upper()), ()) for name in ("rejects", "aliases", "claims")}
    vectors = {f"{one}_vectors": dataset(f"vectors_{many}", schemas.VECTORS) for one, many in _VECTORS}
    tables: dict[str, Any] = known | nothing | vectors
    parts = SnapshotContents(**tables, layers=schemas.LAYERS.empty_table())
    written: list[float] = []
    write = vars(publish_module)["write_snapshot"]

    def timed(*arguments: Any, **named: Any) -> Any:
        started = time.perf_counter()
        try:
            return write(*arguments, **named)
        finally:
            written.append(time.perf_counter() - started)

    with tempfile.TemporaryDirectory(dir=place) as target:
        store = _Beside(str(place), target)
        runner = StageRunner(store, mock.Mock(), (), 1.0)
        peaks, stop = dict.fromkeys(KINDS, 0), threading.Event()
        before = _memory()["RssAnon"]
        looking = threading.Thread(target=_watch, args=(peaks, stop), daemon=True)
        looking.start()
        started = time.perf_counter()
        with mock.patch.object(publish_module, "write_snapshot", timed):
            manifest = publish(runner, parts, embedder="made up", dim=noted["dim"], build={})
        seconds = time.perf_counter() - started
        stop.set()
        looking.join()
    return {
        "relations": known["relations"].rows,
        "snapshot": manifest.snapshot_id,
        "snapshot_mb": sum(entry.bytes for entry in manifest.files.values()) // 1_000_000,
        "seconds": round(seconds, 1),
        "writing_s": round(sum(written), 1),
        "before_mb": before,
    } | {f"peak_{kind.removeprefix('Rss').lower()}_mb": value for kind, value in peaks.items()}


_VECTORS = (("entity", "entities"), ("chunk", "chunks"))


class _Beside(Store):
    """Reads parts where they are, and writes everything else into another folder."""

    def __init__(self, uri: str, target: str) -> None:
        super().__init__(target)
        self._parts = Store(uri)

    def read_table(self, path: str, columns: Any = None) -> pa.Table:
        return self._parts.read_table(path, columns)


def _memory() -> dict[str, int]:
    lines = Path("/proc/self/status").read_text().splitlines()
    pairs = (line.split()[:2] for line in lines if line.startswith("Rss"))
    return {name.removesuffix(":"): int(kib) * 1024 // 1_000_000 for name, kib in pairs}


def _watch(peaks: dict[str, int], stop: threading.Event) -> None:
    while not stop.wait(LOOK_S):
        for kind, value in _memory().items():
            peaks[kind] = max(peaks[kind], value)


if __name__ == "__main__":
    main()
