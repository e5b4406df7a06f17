"""Whether a stage runs: only when its output is not there. Keys are content; machines and counts stay out."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from hirag_dist.errors import StageFailed
from hirag_dist.execution.events import StageFinished, StageStarted, TaskFinished
from hirag_dist.execution.task import KeyPart, Slice, Task, TaskResult, output_path, result_of
from hirag_dist.index.layout import work_path
from hirag_dist.index.store import Store
from hirag_dist.pool.metering import Meter
from hirag_dist.ports import Executor
from hirag_dist.stages.base import ByKey, ByRows, Stage

Listener = Callable[[object], None]
_DONE = "done.json"


@dataclass(frozen=True, slots=True)
class Part:
    """A Parquet file in the store."""

    path: str
    rows: int
    digest: str


@dataclass(frozen=True, slots=True)
class Dataset:
    """A table as files in the store, in order."""

    schema: pa.Schema
    parts: tuple[Part, ...]

    @property
    def rows(self) -> int:
        """Rows of all parts."""
        return sum(part.rows for part in self.parts)

    def __add__(self, other: Dataset) -> Dataset:
        return Dataset(self.schema, self.parts + other.parts)


class Run:
    """One build over one store. Stages are called in order; finished ones give their datasets at once."""

    def __init__(
        self,
        store: Store,
        executor: Executor,
        listeners: tuple[Listener, ...],
        max_reject_ratio: float,
        fresh: bool = False,
        fence: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        """Prepare a run.

        Args:
            max_reject_ratio: a stage of which a larger share of units are dead letters fails.
            fresh: do finished stages again; replies in the ledger are still not paid again.
            fence: entered around what only the holder of the index may write; raises IndexBusy where we are not it.
        """
        self.store = store
        self.fence = fence
        self._executor = executor
        self._listeners = listeners
        self._max_reject_ratio = max_reject_ratio
        self._fresh = fresh
        self.usage: dict[str, Meter] = {}
        self.sent = Meter()
        self.stages_run = 0

    def stage(self, stage: Stage, /, label: str, any_rejects: bool = False, **inputs: Dataset) -> dict[str, Dataset]:
        """Return the outputs of a stage, running what is missing of it.

        Args:
            label: for people, and for the bill.
            any_rejects: let the stage pass however many of its units are dead letters.

        Raises:
            StageFailed: too many dead letters.
        """
        started = time.perf_counter()
        folder = work_path(stage.name, stage_key(stage, inputs))
        done = f"{folder}/{_DONE}"
        n_units = next(iter(inputs.values())).rows
        if not self._fresh and self.store.exists(done):
            results = [result_of(marker) for marker in self.store.read_json(done)["tasks"]]
            reused = True
        else:
            results = self._run_tasks(stage, label, folder, inputs)
            if not any_rejects:
                self._check_rejects(folder, label, results, n_units)
            with self.fence():
                self.store.write_json(done, {"tasks": [dataclasses.asdict(result) for result in results]})
            self.stages_run += 1
            reused = False
        meter = Meter()
        for result in results:
            meter.add(Meter.from_rows(result.usage))
        self.usage.setdefault(label, Meter()).add(meter)
        rejects = sum(result.outputs.get("rejects", (0, ""))[0] for result in results)
        self._tell(StageFinished(label, reused, n_units, rejects, time.perf_counter() - started, meter))
        return {
            name: Dataset(
                schema,
                tuple(
                    Part(output_path(folder, name, r.number), *r.outputs[name]) for r in results if r.outputs[name][0]
                ),
            )
            for name, schema in stage.writes.items()
        }

    def put(self, name: str, table: pa.Table, digest: str) -> Dataset:
        """Return a dataset of a table made outside any stage."""
        path = f"{work_path(name, digest[:24])}/part-000000.parquet"
        if not self.store.exists(path):
            self.store.write_table(path, table)
        return Dataset(table.schema, (Part(path, table.num_rows, digest),) if table.num_rows else ())

    def read(self, dataset: Dataset) -> pa.Table:
        """Return a dataset as one table."""
        tables = [self.store.read_table(part.path) for part in dataset.parts]
        return (
            pa.concat_tables(tables).cast(dataset.schema).combine_chunks() if tables else dataset.schema.empty_table()
        )

    def _run_tasks(self, stage: Stage, label: str, folder: str, inputs: Mapping[str, Dataset]) -> list[TaskResult]:
        tasks = list(_tasks(stage, folder, self.store, inputs))
        if self._fresh:  # markers first: an interrupted run must not find them beside other output
            self.store.delete(f"{folder}/{_DONE}")
            self.store.delete(f"{folder}/tasks")
        kept = self._finished(folder)
        missing = [task for task in tasks if task.number not in kept]
        rows = {task.number: sum(piece.stop - piece.start for piece in _first(task.inputs)) for task in tasks}
        self._tell(StageStarted(label, len(tasks), len(tasks) - len(missing), sum(rows.values())))
        results = dict(kept)
        for result in self._executor.map(missing):
            results[result.number] = result
            usage = Meter.from_rows(result.usage)
            self.sent.add(usage)
            rejects = result.outputs.get("rejects", (0, ""))[0]
            self._tell(TaskFinished(label, rows[result.number], rejects, result.seconds, usage))
        return [results[task.number] for task in tasks]

    def _finished(self, folder: str) -> dict[int, TaskResult]:
        results = (
            result_of(self.store.read_json(f"{folder}/tasks/{name}")) for name in self.store.names(f"{folder}/tasks")
        )
        return {result.number: result for result in results}

    def _check_rejects(self, folder: str, label: str, results: list[TaskResult], n_units: int) -> None:
        rejects = sum(result.outputs.get("rejects", (0, ""))[0] for result in results)
        if rejects > self._max_reject_ratio * n_units and rejects:
            path = next(output_path(folder, "rejects", r.number) for r in results if r.outputs["rejects"][0])
            first = self.store.read_table(path, ["reason"])["reason"][0].as_py()
            raise StageFailed(
                f"{label}: {rejects} of {n_units} units were refused, more than max_reject_ratio "
                f"{self._max_reject_ratio:g} allows; the first reason: {first}"
            )

    def _tell(self, event: object) -> None:
        for listener in self._listeners:
            listener(event)


def stage_key(stage: Stage, inputs: Mapping[str, Dataset]) -> str:
    """Return a hash of the stage, its whole configuration, and the content of its inputs."""
    config: Any = dataclasses.asdict(stage)  # type: ignore[call-overload]
    content = {name: [(part.digest, part.rows) for part in dataset.parts] for name, dataset in inputs.items()}
    seen = json.dumps([stage.name, stage.version, config, content], sort_keys=True, default=repr)
    return hashlib.sha256(seen.encode()).hexdigest()[:24]


def _tasks(stage: Stage, folder: str, store: Store, inputs: Mapping[str, Dataset]) -> Iterator[Task]:
    whole = {name: tuple(Slice(p.path, 0, p.rows) for p in dataset.parts) for name, dataset in inputs.items()}
    split = stage.split
    main = next(iter(inputs))
    if isinstance(split, ByRows):
        for number, pieces in enumerate(_cut(inputs[main], split.n)):
            yield Task(stage, number, whole | {main: pieces}, folder, store)
    elif isinstance(split, ByKey):
        count = max(1, -(-inputs[main].rows // split.n))
        for number in range(count):
            yield Task(stage, number, whole, folder, store, KeyPart(split.column, number, count))
    else:
        yield Task(stage, 0, whole, folder, store)


def _cut(dataset: Dataset, n: int) -> Iterator[tuple[Slice, ...]]:
    """Yield runs of `n` rows, which may span files."""
    pieces: list[Slice] = []
    room = n
    for part in dataset.parts:
        start = 0
        while start < part.rows:
            stop = min(part.rows, start + room)
            pieces.append(Slice(part.path, start, stop))
            room -= stop - start
            start = stop
            if room == 0:
                yield tuple(pieces)
                pieces, room = [], n
    if pieces:
        yield tuple(pieces)


def _first(inputs: Mapping[str, tuple[Slice, ...]]) -> tuple[Slice, ...]:
    return next(iter(inputs.values()))
