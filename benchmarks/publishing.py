"""Memory and time of publishing, by part.

The parts of a made-up index (`generated.py`) are written as stages leave them, in no order (not counted), and
published, in a process of its own that looks at itself ten times a second. Prints a JSON line for each case: seconds of
wall time and of CPU, bytes of the snapshot, and the peaks in MB of anonymous memory (RssAnon), of pages of files
(RssFile) and of shared memory (RssShmem), each for itself. Pages of files stay until other processes need the memory.
`parts_s` has the seconds of each part; files are written by two threads at a time, so these add up to more.

With `--update` the index is published once (not counted), then the parts after an update of ten documents
(`changed_parts.py`) are: without a base, and with the first snapshot as the base. The files must be the same.
`opening_s` is the time in which the query engine's index of the new snapshot opens.

    python -m benchmarks.publishing [--entities 100000 1000000] [--update] [--folder FOLDER]

A million entities take 6.3 GB of disk in FOLDER; meanwhile 4.4 GB more there, and tables and vectors uncompressed among
the temporary files. An update takes 15 GB in FOLDER.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa

from benchmarks.changed_parts import ChangedParts
from benchmarks.generated import generate
from hirag_dist import schemas
from hirag_dist.execution.dataset import Dataset, DatasetPart
from hirag_dist.execution.runner import StageRunner
from hirag_dist.indexing import publish as publish_module
from hirag_dist.indexing.publish import SnapshotContents, publish
from hirag_dist.indexing.stages.embed import vector_table
from hirag_dist.retrieval.view.index import MappedIndex
from hirag_dist.storage.serving.renderings import TOKENIZER
from hirag_dist.storage.snapshot import writer as writer_module
from hirag_dist.storage.snapshot.files import SnapshotFiles
from hirag_dist.storage.snapshot.reader import Snapshot, current_id, open_snapshot
from hirag_dist.storage.snapshot.writer import make_current
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
    parser.add_argument("--update", action="store_true")
    parser.add_argument("--step", choices=_STEPS, help=argparse.SUPPRESS)  # in this process
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(arguments.folder or temporary)
        for n_entities in arguments.entities:
            place = root / f"{n_entities}"
            if arguments.step is not None:
                _STEPS[arguments.step](place, n_entities)
                continue
            own = [sys.executable, "-m", "benchmarks.publishing", "--entities", str(n_entities)]
            own += ["--folder", str(root)]
            files = {"write": "parts.json", "write-base": "base/current", "write-update": "changed.json"}
            wanted = ["write", "write-base", "write-update", "without-base", "with-base"]
            for step in wanted if arguments.update else ["write", "publish"]:
                if step not in files or not (place / files[step]).exists():
                    subprocess.run([*own, "--step", step], check=True)


def write_parts(place: Path, n_entities: int) -> None:
    """Write the datasets of a made-up index in no order, and what they are in `parts.json`."""
    store = Store(str(place))
    if current_id(store) is None:
        generate(store, n_entities)
    snapshot = open_snapshot(store)
    rng = np.random.default_rng(0)
    datasets: dict[str, list[tuple[str, int]]] = {}
    for name in TABLES:
        table = snapshot.table(name)
        order = np.arange(table.num_rows) if name == "communities" else rng.permutation(table.num_rows)
        slices = (order[first : first + PART_ROWS] for first in range(0, len(order), PART_ROWS))
        datasets[name] = _write(store, "parts", name, (table.take(pa.array(rows)) for rows in slices))
    for name, column in (("entities", "entity_id"), ("chunks", "chunk_id")):
        ids = snapshot.table(name, [column])[column].combine_chunks()
        vectors = snapshot.array(f"vectors/{name}")
        order = rng.permutation(len(ids))
        slices = (order[first : first + VECTOR_ROWS] for first in range(0, len(order), VECTOR_ROWS))
        tables = (vector_table(ids.take(pa.array(rows)), vectors[rows]) for rows in slices)
        datasets[f"vectors_{name}"] = _write(store, "parts", f"vectors_{name}", tables)
    store.write_json("parts.json", {"dim": snapshot.manifest.dim, "datasets": datasets})


def write_base(place: Path, n_entities: int) -> None:
    """Publish the index that is updated, in `base`."""
    store = _PartsElsewhere(str(place), str(place / "base"))
    noted = Store(str(place)).read_json("parts.json")
    runner = StageRunner(store, mock.Mock(), (), 1.0)
    manifest = publish(runner, _contents(noted), embedder="made up", dim=noted["dim"], build={})
    make_current(Store(str(place / "base")), manifest.snapshot_id)


def write_update(place: Path, n_entities: int) -> None:
    """Write the datasets after an update, and what they are in `changed.json`."""
    store = Store(str(place))
    snapshot = open_snapshot(Store(str(place / "base")))
    datasets: dict[str, list[tuple[str, int]]] = {}

    def write(name: str, tables: Iterator[pa.Table]) -> None:
        datasets[name] = _write(store, "changed", name, tables)

    ChangedParts(snapshot).write(write)
    store.write_json("changed.json", {"dim": snapshot.manifest.dim, "datasets": datasets})


def _write(store: Store, folder: str, name: str, tables: Any) -> list[tuple[str, int]]:
    written = []
    for number, table in enumerate(tables):
        path = f"{folder}/{name}/part-{number:06d}.parquet"
        store.write_table(path, table)
        written.append((path, table.num_rows))
    return written


def publish_alone(place: Path, n_entities: int) -> None:
    with tempfile.TemporaryDirectory(dir=place) as target:
        _print(published(place, "parts.json", target, "new"), n_entities)


def publish_update(place: Path, n_entities: int) -> None:
    """Publish the updated index without a base, and keep the list of its files."""
    with tempfile.TemporaryDirectory(dir=place) as target:
        line = published(place, "changed.json", target, "update, no base")
        _print(line, n_entities)
        Store(str(place)).write_json("alone.json", _files(open_snapshot(Store(target), line["snapshot"])))


def publish_on_base(place: Path, n_entities: int) -> None:
    """Publish the updated index with the base, and check that its files are those without one."""
    target = Store(str(place / "base"))
    line = published(place, "changed.json", str(place / "base"), "update of the base")
    snapshot = open_snapshot(target, line["snapshot"])
    started = time.perf_counter()
    MappedIndex.open(snapshot, TOKENIZER)
    _print(line | {"opening_s": round(time.perf_counter() - started, 3)}, n_entities)
    same = _files(snapshot) == Store(str(place)).read_json("alone.json")
    target.delete(snapshot.folder)
    assert same, "a file differs from the one that is written without a base"


def _files(snapshot: Snapshot) -> dict[str, str]:
    names = (name for name in snapshot.manifest.files if not name.startswith(("usage", "rejects")))
    return {name: snapshot.manifest.files[name].sha256 for name in names}


def _print(line: dict[str, Any], n_entities: int) -> None:
    print(json.dumps({"benchmark": "publishing", "entities": n_entities} | line), flush=True)


def published(place: Path, parts: str, target: str, case: str) -> dict[str, Any]:
    """Publish the datasets of a file into an index and return the cost."""
    noted = Store(str(place)).read_json(parts)
    contents = _contents(noted)
    runner = StageRunner(_PartsElsewhere(str(place), target), mock.Mock(), (), 1.0)
    peaks, stop = dict.fromkeys(KINDS, 0), threading.Event()
    before = _memory()["RssAnon"]
    looking = threading.Thread(target=_watch, args=(peaks, stop), daemon=True)
    looking.start()
    seconds: dict[str, float] = {}
    started, cpu_started = time.perf_counter(), time.process_time()
    with ExitStack() as stack:
        for owner, name, part in _PARTS:
            stack.enter_context(_timed(owner, name, part, seconds))
        manifest = publish(runner, contents, embedder="made up", dim=noted["dim"], build={})
    wall_s, cpu_s = time.perf_counter() - started, time.process_time() - cpu_started
    stop.set()
    looking.join()
    return {
        "case": case,
        "relations": contents.relations.rows,
        "snapshot": manifest.snapshot_id,
        "snapshot_mb": sum(entry.bytes for entry in manifest.files.values()) // 1_000_000,
        "seconds": round(wall_s, 1),
        "cpu_s": round(cpu_s, 1),
        "parts_s": {name: round(value, 2) for name, value in seconds.items()},
        "before_mb": before,
    } | {f"peak_{kind.removeprefix('Rss').lower()}_mb": value for kind, value in peaks.items()}


def _contents(noted: dict[str, Any]) -> SnapshotContents:
    def dataset(name: str, schema: pa.Schema) -> Dataset:
        return Dataset(schema, tuple(DatasetPart(path, rows, "") for path, rows in noted["datasets"].get(name, ())))

    tables: dict[str, Any] = {
        name: dataset(name, getattr(schemas, name.upper())) for name in (*TABLES, "rejects", "aliases", "claims")
    }
    tables |= {f"{one}_vectors": dataset(f"vectors_{many}", schemas.VECTORS) for one, many in _VECTORS}
    return SnapshotContents(**tables, layers=schemas.LAYERS.empty_table())


@contextmanager
def _timed(owner: Any, name: str, part: str, seconds: dict[str, float]) -> Iterator[None]:
    """Add the seconds of each call of a function to those of a part."""
    function = vars(owner)[name]

    def timed(*arguments: Any, **named: Any) -> Any:
        started = time.perf_counter()
        try:
            return function(*arguments, **named)
        finally:
            seconds[part] = seconds.get(part, 0.0) + time.perf_counter() - started

    with mock.patch.object(owner, name, timed):
        yield


_PARTS = (
    (publish_module, "_tables", "tables"),
    (publish_module, "_aligned", "vectors"),
    (publish_module, "build_graph", "graph"),
    (publish_module, "lineage", "lineage"),
    (writer_module, "_digests", "digests"),
    (writer_module, "_write_files", "writing"),
    (writer_module, "_write_serving", "writing: serving"),
    (SnapshotFiles, "table", "writing: parquet"),
    (SnapshotFiles, "array", "writing: arrays"),
)
_STEPS = {
    "write": write_parts,
    "publish": publish_alone,
    "write-base": write_base,
    "write-update": write_update,
    "without-base": publish_update,
    "with-base": publish_on_base,
}
_VECTORS = (("entity", "entities"), ("chunk", "chunks"))


class _PartsElsewhere(Store):
    """Reads parts where they are, and writes everything else into another folder."""

    def __init__(self, uri: str, target: str) -> None:
        super().__init__(target)
        self._parts = Store(uri)

    def pieces(self, path: str) -> Iterator[pa.Table]:
        return self._parts.pieces(path) if path.startswith(("parts/", "changed/")) else super().pieces(path)


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
