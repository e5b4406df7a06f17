"""Whether a stage runs: only when its output is not there. Keys are content; machines and counts stay out."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any

import pyarrow as pa

from hirag_dist.core.text.normalize import count_noun
from hirag_dist.errors import StageFailed, StoreError
from hirag_dist.execution.batch_api.driver import BatchAttempts, Batches
from hirag_dist.execution.batch_api.records import open_batches
from hirag_dist.execution.dataset import Dataset as Dataset
from hirag_dist.execution.dataset import DatasetPart
from hirag_dist.execution.dead_letters import (
    DONE,
    SPARED,
    keep_spared,
    load_drops,
    n_rejects,
    rejected,
    spared_letters,
    split_letters,
    stage_results,
    task_letters,
)
from hirag_dist.execution.events import (
    BatchesSubmitted,
    KernelsResolved,
    StageFailedEvent,
    StageFinished,
    StageStarted,
    TaskFinished,
    UsageRecorded,
)
from hirag_dist.execution.iterative import run_iterations
from hirag_dist.execution.partitioning import Shuffle, layout, plan
from hirag_dist.execution.stage import InRounds, Services, Stage
from hirag_dist.execution.task import Task, TaskResult, failed_path, marker_of, output_path, result_of, scattered
from hirag_dist.llm.usage import UsageMeter
from hirag_dist.protocols import Executor
from hirag_dist.storage.layout import work_path
from hirag_dist.storage.store import Store
from hirag_dist.types import Rejected

Listener = Callable[[object], None]


class Run:
    """One build over one store. Stages are called in order; finished ones give their datasets at once."""

    def __init__(
        self,
        store: Store,
        executor: Executor,
        listeners: tuple[Listener, ...],
        max_reject_ratio: float,
        fresh: bool = False,
        retry: bool = False,
        fence: Callable[[], AbstractContextManager[None]] = nullcontext,
        batches: Batches | None = None,
    ) -> None:
        """Prepare a run.

        Args:
            max_reject_ratio: a stage of which a larger share of units are dead letters fails.
            fresh: do finished stages again; replies in the ledger are still not paid again.
            retry: do tasks with dead letters again, each refused unit with new attempts.
            fence: entered around what only the holder of the index may write; raises IndexBusy where we are not it.
            batches: how calls are sent in batches where that is wanted, and how those that are out come home.
        """
        self.store = store
        self.fence = fence
        self.drops = load_drops(store)
        self._executor = executor
        self.listeners = listeners
        self._max_reject_ratio = max_reject_ratio
        self._fresh = fresh
        self._retry = retry
        self._batches = batches
        self.usage: dict[str, UsageMeter] = {}
        self.sent = UsageMeter()
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
        done = f"{folder}/{DONE}"
        n_units = next(iter(inputs.values())).rows
        there = stage_results(self.store, folder)
        known = {} if self._fresh else there
        again = self._to_retry(folder, known) if self._retry else {}
        reused = not self._fresh and not again and self.store.exists(done)
        if reused:
            results = list(known.values())
        else:
            spared = self._spared(stage.name, folder, there)
            with self.fence():
                if self._fresh and spared:
                    keep_spared(self.store, folder, spared)  # if this run is killed, the next one knows them
                self.store.delete(done)  # first of all: an interrupted run must not find it beside other output
                if self._fresh:
                    self.store.delete(f"{folder}/tasks")
                    self._drop_shuffle(f"{folder}/shuffle")
            results = self._run_tasks(stage, label, folder, inputs, known, again, spared)
        rejects, dropped = self._count_rejects(stage.name, folder, results)
        if not reused:
            if not any_rejects:
                self._check_rejects(folder, label, results, rejects, n_units)
            with self.fence():
                self.store.write_json(done, {"tasks": [marker_of(result) for result in results]}, compact=True)
                if spared:
                    self.store.delete(f"{folder}/{SPARED}")
            self.stages_run += 1
        meter = UsageMeter()
        for result in results:
            meter.add(UsageMeter.from_rows(result.usage))
        self.usage.setdefault(label, UsageMeter()).add(meter)
        seconds = time.perf_counter() - started
        self._tell(StageFinished(label, reused, n_units, rejects, seconds, meter, dropped, folder))
        return {
            name: Dataset(
                schema,
                tuple(
                    DatasetPart(output_path(folder, name, r), *r.outputs[name]) for r in results if r.outputs[name][0]
                ),
            )
            for name, schema in stage.writes.items()
        }

    def collect(self) -> None:
        """Bring home what an earlier run left out in batches, so that it is not asked, and paid, again."""
        out = open_batches(self.store)
        if out and self._batches is not None:
            for label in dict.fromkeys(each.stage for each in out):
                there = [each.lines for each in out if each.stage == label]
                self._tell(BatchesSubmitted(label, len(there), sum(there)))
            self._batches.collect(self._came_home, out)

    def spent(self, label: str, usage: UsageMeter) -> None:
        """Put on the bill what was spent outside any stage."""
        if usage.uses:
            self.usage.setdefault(label, UsageMeter()).add(usage)
            self.sent.add(usage)
            self._tell(UsageRecorded(label, usage, outside=True))

    def ask_kernels(self, find: Callable[[Services, None, None], str], kernels: str) -> str:
        """Return what a worker says of the kernels that it has; it may have to be waited for.

        Args:
            find: a step (`ports.Held`) that gives their name.
            kernels: a name that says which workers are asked.

        Raises:
            HiragError: the worker cannot use them.
        """
        with self._executor.hold(_nothing, [None], kernels=kernels) as held:
            (name,) = held.each(find, None)
        self._tell(KernelsResolved(name))
        return name

    def rest(self) -> None:
        """Let go of workers that cost by being there, before what takes this process long by itself."""
        self._executor.rest()

    def put(self, name: str, table: pa.Table, digest: str) -> Dataset:
        """Return a dataset of a table made outside any stage."""
        path = f"{work_path(name, digest[:24])}/part-000000.parquet"
        if not self.store.exists(path):
            self.store.write_table(path, table)
        return Dataset(table.schema, (DatasetPart(path, table.num_rows, digest),) if table.num_rows else ())

    def read(self, dataset: Dataset, columns: Sequence[str] | None = None) -> pa.Table:
        """Return a dataset, or some columns of it, as one table."""
        schema = dataset.schema if columns is None else pa.schema([dataset.schema.field(name) for name in columns])
        tables = [self.store.read_table(part.path, columns) for part in dataset.parts]
        return pa.concat_tables(tables).cast(schema).combine_chunks() if tables else schema.empty_table()

    def tables(self, dataset: Dataset) -> Iterator[pa.Table]:
        """Yield a dataset part by part, one at a time in memory."""
        for part in dataset.parts:
            yield self.store.read_table(part.path).cast(dataset.schema)

    def _run_tasks(
        self,
        stage: Stage,
        label: str,
        folder: str,
        inputs: Mapping[str, Dataset],
        known: Mapping[int, TaskResult],
        again: Mapping[int, tuple[Rejected, ...]],
        spared: Mapping[int, tuple[Rejected, ...]],
    ) -> list[TaskResult]:
        planned = plan(stage, folder, self.store, inputs)
        rows = planned.rows
        done = [number for number in known if number < len(rows) and number not in again]
        self.store.delete(failed_path(folder))  # of a run that was killed
        if planned.shuffle is not None and len(done) < len(rows):
            self._scatter(planned.shuffle, label)
        self._tell(StageStarted(label, len(rows), len(done), sum(rows), sum(rows[number] for number in done), folder))
        results = dict(known)
        waiting: dict[int, int] = {}

        def missing(only: set[int] | None) -> Iterator[Task]:
            for task in planned.tasks():  # made when an executor has room for them
                here = task.number not in known or task.number in again
                if here and (only is None or task.number in only):
                    task = _once_more(task, known, again) if task.number in again else _first_time(task, spared)
                    waiting[task.number] = task.round
                    yield task

        try:
            rounds = BatchAttempts(self._batches_for(stage), label, folder)
            wanted: set[int] | None = None
            while wanted is None or wanted:
                deferred = set()
                tasks = rounds.prepared(missing(wanted))
                in_rounds = isinstance(stage.split, InRounds)
                for result in run_iterations(tasks, self._executor) if in_rounds else self._executor.map(tasks):
                    usage = UsageMeter.from_rows(result.usage)
                    self.sent.add(usage)
                    if result.n_deferred:
                        deferred.add(result.number)
                        self._tell(UsageRecorded(label, usage))
                        continue
                    results[result.number] = result
                    waiting.pop(result.number)
                    self._tell(TaskFinished(label, rows[result.number], n_rejects(result), result.seconds, usage))
                wanted = deferred
                if wanted:
                    self.rest()  # a batch is out for up to a day
                    rounds.ask(self.sent.spent(), self._came_home, self._sent_batches)
        except BaseException:
            self._account(label, folder, waiting)
            raise
        if planned.shuffle is not None:
            with self.fence():
                self._drop_shuffle(planned.shuffle.folder)
        return [results[number] for number in range(len(rows))]

    def _scatter(self, shuffle: Shuffle, label: str) -> None:
        """Do what is missing of the first pass of a stage that is split by key."""
        started = time.perf_counter()
        label = f"{label}: by key"
        done = scattered(self.store, shuffle.folder)
        n_done = sum(rows for number, rows in enumerate(shuffle.rows) if number in done)
        self._tell(StageStarted(label, len(shuffle.rows), len(done), sum(shuffle.rows), n_done, shuffle.folder))
        try:
            for result in self._executor.map(task for task in shuffle.tasks() if task.number not in done):
                self._tell(TaskFinished(label, shuffle.rows[result.number], 0, result.seconds))
        except BaseException:
            self._tell(StageFailedEvent(label))
            raise
        seconds = time.perf_counter() - started
        self._tell(StageFinished(label, False, sum(shuffle.rows), 0, seconds, folder=shuffle.folder))

    def _drop_shuffle(self, folder: str) -> None:
        """Remove what a first pass left, markers first: one that stays would vouch for a file that is gone."""
        self.store.delete(f"{folder}/tasks")
        self.store.delete(folder)

    def _batches_for(self, stage: Stage) -> Batches | None:
        """Return the batches, where a stage's calls go there: embeddings are answered at once."""
        wanted = self._batches is not None and self._batches.settings.wanted
        return self._batches if wanted and hasattr(stage, "models") else None

    def _sent_batches(self, label: str, n_batches: int, n_calls: int) -> None:
        self._tell(BatchesSubmitted(label, n_batches, n_calls))

    def _came_home(self, label: str, usage: UsageMeter) -> None:
        self.sent.add(usage)
        self._executor.charge(*usage.spent())
        self._tell(UsageRecorded(label, usage))

    def _account(self, label: str, folder: str, waiting: Mapping[int, int]) -> None:
        """Count what was spent by tasks of a stopped stage that were begun and did not come home: number → round."""
        spent = UsageMeter()
        with suppress(StoreError):  # what stopped the stage is what is told
            failed = failed_path(folder)
            for name in self.store.names(failed):
                spent.add(UsageMeter.from_rows(self.store.read_json(f"{failed}/{name}")))
            self.store.delete(failed)
            for name in self.store.names(f"{folder}/tasks"):
                if waiting.get(int(name.partition(".")[0])) is not None:
                    result = result_of(self.store.read_json(f"{folder}/tasks/{name}"))
                    if waiting[result.number] == result.round:
                        spent.add(UsageMeter.from_rows(result.usage))
        self.sent.add(spent)
        self._tell(StageFailedEvent(label, spent))

    def _to_retry(self, folder: str, known: Mapping[int, TaskResult]) -> dict[int, tuple[Rejected, ...]]:
        """Return the tasks with open dead letters, each with the letters that were dropped."""
        found = {}
        for number, result in known.items():
            if n_rejects(result):
                still_open, dropped = split_letters(task_letters(self.store, folder, result), self.drops)
                if still_open.num_rows:
                    found[number] = rejected(dropped)
        return found

    def _spared(self, name: str, folder: str, there: Mapping[int, TaskResult]) -> dict[int, tuple[Rejected, ...]]:
        """Return the dropped letters, by task, of a stage that is run again from the beginning.

        The rerun may have been started by this run, or by an earlier one that was stopped.
        """
        if all(stage != name for stage, _ in self.drops):
            return {}
        found = spared_letters(self.store, folder)
        if self._fresh:
            found |= {
                number: rejected(split_letters(task_letters(self.store, folder, result), self.drops)[1])
                for number, result in there.items()
            }
        still = {
            number: tuple(letter for letter in letters if (name, letter.unit) in self.drops)
            for number, letters in found.items()
        }
        return {number: letters for number, letters in still.items() if letters}

    def _count_rejects(self, name: str, folder: str, results: list[TaskResult]) -> tuple[int, int]:
        """Return how many dead letters of a stage are open, and how many were dropped."""
        total = sum(map(n_rejects, results))
        if not total or all(stage != name for stage, _ in self.drops):
            return total, 0
        n_open = sum(self._open_letters(folder, result, ["stage", "unit_id"]).num_rows for result in results)
        return n_open, total - n_open

    def _open_letters(self, folder: str, result: TaskResult, columns: Sequence[str]) -> pa.Table:
        letters = task_letters(self.store, folder, result, columns)
        keys = zip(letters["stage"].to_pylist(), letters["unit_id"].to_pylist(), strict=True)
        return letters.filter(pa.array([key not in self.drops for key in keys], pa.bool_()))

    def _check_rejects(self, folder: str, label: str, results: list[TaskResult], rejects: int, n_units: int) -> None:
        if rejects <= self._max_reject_ratio * n_units or not rejects:
            return
        columns = ["stage", "unit_id", "reason"]
        letters = (self._open_letters(folder, result, columns) for result in results if n_rejects(result))
        first = next(table["reason"][0].as_py() for table in letters if table.num_rows)
        raise StageFailed(
            f"{label}: refused {rejects:,} of {count_noun(n_units, 'unit')}, more than max_reject_ratio "
            f"{self._max_reject_ratio:g} allows; the first reason: {first}. `hirag-dist status --letters` shows them; "
            "`hirag-dist retry` asks them again, `retry --drop` accepts the loss, and with a higher max_reject_ratio "
            "`hirag-dist index` goes on without them"
        )

    def _tell(self, event: object) -> None:
        for listener in self.listeners:
            listener(event)


def _nothing(services: Services, nothing: None) -> None:
    """Load nothing."""


def _first_time(task: Task, spared: Mapping[int, tuple[Rejected, ...]]) -> Task:
    return dataclasses.replace(task, dropped=spared.get(task.number, ()))


def _once_more(task: Task, known: Mapping[int, TaskResult], again: Mapping[int, tuple[Rejected, ...]]) -> Task:
    return dataclasses.replace(task, round=known[task.number].round + 1, dropped=again[task.number])


def stage_key(stage: Stage, inputs: Mapping[str, Dataset]) -> str:
    """Return a hash of the stage, its whole configuration, and the content of its inputs."""
    config: Any = dataclasses.asdict(stage)  # type: ignore[call-overload]
    content = {name: [(part.digest, part.rows) for part in dataset.parts] for name, dataset in inputs.items()}
    by_key = layout(stage, inputs)  # else half a stage of other partitions would be taken for half of this one
    seen = json.dumps([stage.name, stage.version, config, content, *by_key], sort_keys=True, default=repr)
    return hashlib.sha256(seen.encode()).hexdigest()[:24]
