"""Time and memory of one update of a large index, by part.

A generated index's documents, chunks and mentions (`generated.py`) go through a build with the built-in model (not
counted: the extraction is left out), and ten documents of ten chunks each are added to it, a third of whose entities
are new and the rest neighbours in the index. The update runs in a process of its own. Prints a JSON line for each size:
wall and CPU seconds of the update, what it paid, the bytes that it wrote of the snapshot, and for each part seconds,
CPU seconds and the peak of anonymous and shared memory while it ran, in MB.

    python -m benchmarks.update_scale [--entities 100000] [--folder FOLDER] [--documents 10] [--remove] [--workers 2]
        [--nights 30]

The base is built once in FOLDER and copied for each update. A base of 100,000 entities takes minutes, one of a million
half an hour of one core, 8 GB of memory and, with its copy and the update, 25 GB of disk. --remove removes as many
documents of the index instead. With --workers the update runs on a Ray of this machine, and the CPU seconds of its
workers and the peak of the largest are printed too. With --nights other documents are added, or removed, again and
again; each line has the size of the index, in which a file of several snapshots counts once, and of its work folder.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.generated import generate
from benchmarks.generated_tables import generated_names
from benchmarks.prose import Prose
from benchmarks.settings import HASHING
from benchmarks.update_steps import measured
from hirag_dist.application.build import run_add, run_build, run_remove
from hirag_dist.config.loader import load_config
from hirag_dist.config.model import Config
from hirag_dist.execution.dataset import Dataset, DatasetPart
from hirag_dist.indexing import base_layer, changed_documents, communities, next_snapshot, pipeline
from hirag_dist.indexing.changed_documents import DocumentSelection
from hirag_dist.indexing.context import BuildContext
from hirag_dist.indexing.documents import ChunkedDocuments, ReadInput
from hirag_dist.indexing.mentions import GraphMentions, merge_base_layer
from hirag_dist.schemas import CHUNKS, DOCUMENTS, MENTIONS, PLACES, REJECTS, RELATION_MENTIONS
from hirag_dist.storage.digest import table_digest
from hirag_dist.storage.snapshot.reader import Snapshot, current_id, open_snapshot
from hirag_dist.storage.store import Store

PART_ROWS = 50_000
CHUNKS_A_DOCUMENT, NAMES_A_CHUNK, CHUNK_CHARS = 10, 10, 2500
NEW_SHARE = 0.3
FIRST_NEW = 10**9  # number of the first new name
LOOK_S = 0.05
WORKER_LOOKS = 20  # looks at this process for one at the workers
RAY_AGENTS = ("ray::DashboardAgent", "ray::RuntimeEnvAgent")  # this process counts their CPU among its children's
PARTS = {  # name → what is timed; `selected` is of `remove`
    "read": (pipeline, "read_input"),
    "unique documents": (pipeline, "unique_documents"),
    "selected": (pipeline, "selected_documents"),
    "changes": (pipeline, "changed_documents"),
    "layer 0": (next_snapshot, "write_base_layer"),
    "hierarchy": (next_snapshot, "write_hierarchy"),
    "communities": (communities, "detect_communities"),
    "outlines": (communities, "report_outlines"),
    "report material": (communities, "report_material"),
    "reports": (next_snapshot, "update_reports"),
    "publish": (pipeline, "publish"),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.update_scale",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--entities", type=int, nargs="+", default=[100_000])
    parser.add_argument("--folder", help="where bases are kept for the next run")
    parser.add_argument("--documents", type=int, default=10)
    parser.add_argument("--remove", action="store_true", help="remove documents instead of adding some")
    parser.add_argument("--workers", type=int, help="number of Ray workers; without it all runs in one process")
    parser.add_argument("--nights", type=int, default=1, help="number of updates, one after another")
    parser.add_argument("--step", choices=("base", "update"), help=argparse.SUPPRESS)  # in this process
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(arguments.folder or temporary)
        for n_entities in arguments.entities:
            place = root / f"{n_entities}"
            if arguments.step == "base":
                print(json.dumps(write_base(place, n_entities)), flush=True)
            elif arguments.step == "update":
                for night in range(arguments.nights):
                    print(json.dumps(update(place, n_entities, arguments, night)), flush=True)
            else:
                _in_own_processes(place, n_entities, arguments, root)


def _in_own_processes(place: Path, n_entities: int, arguments: argparse.Namespace, root: Path) -> None:
    own = [sys.executable, "-m", "benchmarks.update_scale", "--entities", str(n_entities), "--folder", str(root)]
    own += ["--documents", str(arguments.documents), *(["--remove"] if arguments.remove else [])]
    own += ["--workers", str(arguments.workers)] if arguments.workers else []
    own += ["--nights", str(arguments.nights)]
    if not (place / "base" / "current").exists():
        subprocess.run([*own, "--step", "base"], check=True)
    shutil.rmtree(place / "updated", ignore_errors=True)
    shutil.copytree(place / "base", place / "updated")
    subprocess.run([*own, "--step", "update"], check=True)


def configuration(workers: int | None = None) -> Config:
    """Return the configuration: built-in models, in one process or on a number of Ray workers."""
    engine = {"execution.workers": workers} if workers else {"execution.executor": "inline"}
    return load_config(None, {}, {**engine, "update.max_ratio": 3, **HASHING}).config


def write_base(place: Path, n_entities: int) -> dict[str, Any]:
    """Build the index of a generated graph's mentions; return the figures of the build."""
    store = Store(str(place / "generated"))
    if current_id(store) is None:
        generate(store, n_entities)
    snapshot = open_snapshot(store)
    (place / "none.txt").write_text("The documents come from the generated index.", encoding="utf-8")

    def read(context: BuildContext, inputs: Any, base: Any) -> ReadInput:
        documents = _put(context, "documents", snapshot.table("documents").cast(DOCUMENTS))
        return ReadInput(documents, Dataset(PLACES), Dataset(REJECTS))

    def chunked(context: BuildContext, found: ReadInput) -> ChunkedDocuments:
        chunks = _put(context, "chunks", snapshot.table("chunks").cast(CHUNKS))
        return ChunkedDocuments(found.documents, chunks, found.places, found.rejects)

    def extract(context: BuildContext, chunks: Dataset) -> Any:
        entities = snapshot.table("entities")
        mentions = GraphMentions(
            _put(context, "generated_mentions", mentions_of(entities)),
            _put(context, "generated_relation_mentions", relation_mentions_of(snapshot.table("relations"), entities)),
        )
        return merge_base_layer(context, chunks, mentions, Dataset(REJECTS))

    with ExitStack() as stack:
        patched = (
            (pipeline, "read_input", read),
            (changed_documents, "chunked", chunked),
            (base_layer, "extract_base_layer", extract),
        )
        for module, name, stand_in in patched:
            stack.enter_context(mock.patch.object(module, name, stand_in))
        run = measured(
            lambda heard: run_build([str(place / "none.txt")], str(place / "base"), configuration(), None, heard)
        )
    return {"benchmark": "update_scale", "case": "base", "entities": n_entities, **run}


def update(place: Path, n_entities: int, arguments: argparse.Namespace, night: int) -> dict[str, Any]:
    """Add or remove documents once; return the figures by part.

    Args:
        night: number of this update, which chooses the documents.
    """
    n_documents, remove, config = arguments.documents, arguments.remove, configuration(arguments.workers)
    index = str(place / "updated")
    snapshot = open_snapshot(Store(index))
    ids = np.random.default_rng(1 + night).permutation(np.array(snapshot.table("documents")["document_id"]))
    path = place / "added.jsonl"
    if not remove:
        path.write_text("".join(documents(snapshot, n_documents, night)), encoding="utf-8")
    selection = DocumentSelection(tuple(ids[:n_documents].tolist()))
    clock = PartClock()
    with clock.watching():
        run = measured(
            lambda heard: (
                run_remove(selection, index, config, None, heard)
                if remove
                else run_add([str(path)], index, config, None, heard)
            )
        )
    line: dict[str, Any] = {"benchmark": "update_scale", "case": "remove" if remove else "add"}
    line |= {"entities": n_entities, "night": night} | run
    rest = round(run["wall_s"] - sum(part["wall_s"] for part in clock.parts.values()), 2)
    line |= written(Path(index, open_snapshot(Store(index)).folder)) | clock.workers.figures()
    line |= {"index_mb": _size_mb(Path(index)), "work_mb": _size_mb(Path(index, "work"))}
    return line | {"changed_documents": n_documents, "parts": clock.parts, "rest_s": rest}


def _size_mb(folder: Path) -> float:
    """Return the size of all files in a folder in MB; one with several names counts once."""
    files = [path.stat() for path in folder.rglob("*") if path.is_file()]
    return round(sum({file.st_ino: file.st_size for file in files}.values()) / 1e6, 1)


def written(folder: Path) -> dict[str, float]:
    """Return the size of a snapshot, and of those of its files that no other snapshot shares, in MB."""
    files = [path.stat() for path in folder.rglob("*") if path.is_file()]
    sizes = (sum(file.st_size for file in files), sum(file.st_size for file in files if file.st_nlink == 1))
    return {name: round(size / 1e6, 1) for name, size in zip(("snapshot_mb", "written_mb"), sizes, strict=True)}


def mentions_of(entities: pa.Table) -> pa.Table:
    """Return MENTIONS that merge to the entities of layer 0: one in each of an entity's chunks."""
    found = entities.filter(pc.equal(entities["layer"], 0)).combine_chunks()
    lists = found["chunk_ids"].combine_chunks()
    owners = pc.list_parent_indices(lists)
    columns = {
        "name_key": pc.utf8_lower(found["name"]).take(owners),
        "chunk_id": lists.flatten(),
        "position": np.zeros(len(owners), np.int32),
        "name": found["name"].take(owners),
        "type": found["type"].take(owners),
        "description": found["description"].take(owners),
        "described": np.ones(len(owners), bool),
    }
    return pa.table([columns[name] for name in MENTIONS.names], names=MENTIONS.names).cast(MENTIONS)


def relation_mentions_of(relations: pa.Table, entities: pa.Table) -> pa.Table:
    """Return RELATION_MENTIONS that merge to the extracted relations."""
    found = relations.filter(pc.equal(relations["kind"], "extracted")).combine_chunks()
    keys = pc.utf8_lower(entities["name"])
    ends = [keys.take(pc.index_in(found[name], entities["entity_id"])) for name in ("source_id", "target_id")]
    swap = pc.greater(*ends)
    columns = {
        "source_key": pc.if_else(swap, ends[1], ends[0]),
        "target_key": pc.if_else(swap, ends[0], ends[1]),
        "chunk_id": found["chunk_ids"].combine_chunks().flatten(),
        "position": np.zeros(len(found), np.int32),
        "description": found["description"],
        "strength": found["weight"],
    }
    return pa.table([columns[name] for name in RELATION_MENTIONS.names], names=RELATION_MENTIONS.names).cast(
        RELATION_MENTIONS
    )


def documents(snapshot: Snapshot, count: int, seed: int = 0) -> Iterator[str]:
    """Yield JSON lines of new documents about entities that are neighbours in the index, and about new ones."""
    rng, prose = np.random.default_rng(seed), Prose()
    entities = snapshot.table("entities", ["layer", "name", "chunk_ids"])
    entities = entities.filter(pc.equal(entities["layer"], 0))
    first = pc.list_element(entities["chunk_ids"], 0)
    chunks = snapshot.table("chunks", ["chunk_id", "document_id"])
    home = chunks["document_id"].take(pc.index_in(first, chunks["chunk_id"]))
    homes = rng.permutation(np.array(snapshot.table("documents", ["document_id"])["document_id"]))[:count]
    n_new = int(CHUNKS_A_DOCUMENT * NAMES_A_CHUNK * NEW_SHARE)
    for number, own in enumerate(homes):
        known = entities["name"].filter(pc.equal(home, own)).to_pylist()
        new = generated_names(prose, np.arange(n_new), rng, FIRST_NEW + number * n_new).to_pylist()
        names = known[: CHUNKS_A_DOCUMENT * NAMES_A_CHUNK - n_new] + new
        texts = prose.texts(np.full(CHUNKS_A_DOCUMENT, CHUNK_CHARS), rng).to_pylist()
        text = "\n\n".join(f"{text}. {_sentences(names, rng)}" for text in texts)
        yield json.dumps({"id": f"added-{seed}-{number}", "title": f"Added {seed}-{number}", "text": text}) + "\n"


def _sentences(names: list[str], rng: np.random.Generator) -> str:
    picked = [names[at] for at in rng.choice(len(names), min(NAMES_A_CHUNK, len(names)), replace=False)]
    pairs = zip(picked, [*picked[1:], picked[0]], strict=True)
    return " ".join(f"{one} was seen with {other}, and wrote about {other}." for one, other in pairs)


@dataclass
class RayWorkers:
    """CPU seconds and peak memory of the processes of Ray's workers, by process."""

    cpu_s: dict[int, float] = field(default_factory=dict)
    peak_mb: dict[int, int] = field(default_factory=dict)

    def look(self) -> None:
        """Note what the workers use now."""
        for process in psutil.process_iter(["cmdline"]):
            name = (process.info["cmdline"] or [""])[0]
            if name.startswith("ray::") and not name.startswith(RAY_AGENTS):
                with suppress(psutil.Error, OSError):
                    self.cpu_s[process.pid] = sum(process.cpu_times()[:2])
                    self.peak_mb[process.pid] = max(self.peak_mb.get(process.pid, 0), _memory_mb(process.pid))

    def figures(self) -> dict[str, float]:
        """Return the sum of CPU seconds and the peak of the largest worker, in MB; nothing without workers."""
        if not self.cpu_s:
            return {}
        return {"workers_cpu_s": round(sum(self.cpu_s.values()), 1), "largest_worker_mb": max(self.peak_mb.values())}


@dataclass
class PartClock:
    """Seconds and peak memory of the functions in `PARTS`; a part within another counts for the outer one.

    Attributes:
        parts: name → its figures.
        workers: what Ray's workers use.
    """

    parts: dict[str, dict[str, Any]] = field(default_factory=dict)
    workers: RayWorkers = field(default_factory=RayWorkers)
    _running: str = ""

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Time the parts while this lasts."""
        stop = threading.Event()
        looking = threading.Thread(target=self._look, args=(stop,), daemon=True)
        with ExitStack() as stack:
            for name, (module, function) in PARTS.items():
                timed = self._timed(name, getattr(module, function))
                stack.enter_context(mock.patch.object(module, function, timed))
            looking.start()
            yield
        stop.set()
        looking.join()

    def _timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **named: Any) -> Any:
            if self._running:
                return function(*arguments, **named)
            part = self.parts.setdefault(name, {"wall_s": 0.0, "cpu_s": 0.0, "peak_mb": 0})
            self._running, started, before = name, time.perf_counter(), sum(os.times()[:4])
            try:
                return function(*arguments, **named)
            finally:
                self._running = ""
                part["wall_s"] = round(part["wall_s"] + time.perf_counter() - started, 2)
                part["cpu_s"] = round(part["cpu_s"] + sum(os.times()[:4]) - before, 2)

        return run

    def _look(self, stop: threading.Event) -> None:
        for look in itertools.count():
            if stop.wait(LOOK_S):
                return
            if look % WORKER_LOOKS == 0:
                self.workers.look()
            part = self.parts.get(self._running)
            if part is not None:
                part["peak_mb"] = max(part["peak_mb"], _memory_mb())


def _memory_mb(process: int | str = "self") -> int:
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    kib = sum(int(line.split()[1]) for line in lines if line.startswith(("RssAnon:", "RssShmem:")))
    return kib * 1024 // 1_000_000


def _put(context: BuildContext, name: str, table: pa.Table) -> Dataset:
    """Return a dataset of a table in parts."""
    store, parts = context.runner.store, []
    for first in range(0, table.num_rows, PART_ROWS):
        part = table.slice(first, PART_ROWS).combine_chunks()
        path = f"work/{name}/generated/part-{first:09d}.parquet"
        store.write_table(path, part)
        parts.append(DatasetPart(path, part.num_rows, table_digest(part)))
    return Dataset(table.schema, tuple(parts))


if __name__ == "__main__":
    main()
