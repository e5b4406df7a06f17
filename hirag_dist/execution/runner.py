"""The stages of one build: a stage runs only if its output is not in the store, and only its missing tasks run."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from typing import cast

from hirag_dist.core.prompts.reply_validation import beginning, remedy_of
from hirag_dist.core.text.normalize import count_noun
from hirag_dist.errors import StageFailed, StoreError, WorkFileDamaged
from hirag_dist.execution.dataset import Dataset, DatasetStore, TableSet
from hirag_dist.execution.events import (
    KernelsResolved,
    StageFailedEvent,
    StageFinished,
    StagesRepeated,
    StageStarted,
    TaskFinished,
    UsageBill,
)
from hirag_dist.execution.executors import polled_calls
from hirag_dist.execution.partitioning import PartitionPlan, Shuffle, plan, run_iterations
from hirag_dist.execution.stage import AnyStage, In, Iterative, Out, Services, Stage, waits_for_models
from hirag_dist.execution.stage_results import (
    DONE,
    StageStore,
    discard,
    drop_shuffle,
    load_drops,
    n_rejects,
    output_files,
    stage_results,
)
from hirag_dist.execution.task import Task, TaskResult, failed_path, scattered
from hirag_dist.llm.usage import UsageMeter
from hirag_dist.protocols import EventListener, Executor
from hirag_dist.storage.layout import WORK, work_path
from hirag_dist.storage.store import Store
from hirag_dist.types import Rejected

logger = logging.getLogger(__name__)
MIN_REJECTS = 3  # a share of fewer units says nothing: one of two clusters of the last layer is half of them
_SHOWN_CHARS = 300  # of a refused reply, in the error of a stage
_SYNC_EVERY_S = 2.0  # work of this run that a power cut may lose, in addition to that of the stage that runs


class StageRunner:
    """Runs the stages of one build over one store; the outputs of finished stages are returned at once.

    Attributes:
        drops: accepted losses.
        fence: entered around writes that only the holder of the index may make; raises IndexBusy otherwise.
        stages_run: stages that were executed so far.
        repaired: damaged files of the work folder that were found and are made again.
    """

    def __init__(
        self,
        store: Store,
        executor: Executor,
        listeners: Sequence[EventListener],
        max_reject_ratio: float,
        fresh: bool = False,
        retry: bool = False,
        fence: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        """Prepare a run.

        Args:
            max_reject_ratio: a stage with a larger share of open dead letters fails.
            fresh: run finished stages again; replies in the ledger are not paid again.
            retry: run tasks with dead letters again, each refused unit with new attempts.
        """
        self.store = store
        self.datasets = DatasetStore(store)
        self.bill = UsageBill()
        self.drops = load_drops(store)
        self.fence = fence
        self.listeners = tuple(listeners)
        self.stages_run = 0
        self._max_reject_ratio = max_reject_ratio
        self._fresh = fresh
        self.retry = retry
        self.repaired: list[str] = []
        self.executor = executor
        self._entered: set[str] = set()  # folders of stages that this run has finished
        self._unsynced: list[tuple[list[str], str]] = []
        self._synced_at = time.monotonic()

    def run(self, stage: Stage[In, Out], label: str, /, *args: In.args, **inputs: In.kwargs) -> Out:
        """Return the outputs of a stage after running its missing tasks.

        Args:
            label: name in progress, records and the bill.

        Raises:
            StageFailed: too many dead letters.
        """
        tables = cast(TableSet, stage.Inputs(*args, **inputs)).datasets()
        return stage.Outputs(**self._outputs(stage, label, tables, self._max_reject_ratio))

    def run_tolerant(self, stage: Stage[In, Out], label: str, /, *args: In.args, **inputs: In.kwargs) -> Out:
        """Return the outputs of a stage as `run` does, with any number of dead letters."""
        tables = cast(TableSet, stage.Inputs(*args, **inputs)).datasets()
        return stage.Outputs(**self._outputs(stage, label, tables, None))

    def sync(self) -> None:
        """Make the outputs of finished stages durable, and after them the markers of the stages."""
        waiting, self._unsynced = self._unsynced, []
        self._synced_at = time.monotonic()
        if waiting:
            self.store.sync(path for outputs, _ in waiting for path in outputs)
            self.store.sync(marker for _, marker in waiting)

    def remove_unused(self) -> None:
        """Remove the files of the work folder that this run neither wrote nor read.

        After an update, the next one starts from its snapshot: without this, the folder would grow by every update. A
        later build from nothing finds the replies of removed stages in the ledger.
        """
        used = self._entered | self.datasets.folders
        for stage in self.store.names(WORK):
            for key in self.store.names(f"{WORK}/{stage}"):
                folder = work_path(stage, key)
                if folder not in used:
                    with self.fence():
                        self.store.delete(folder)

    def repair(self, error: WorkFileDamaged) -> None:
        """Remove the damaged outputs of a stage and their markers, so that the stages run again make them again.

        Stages that have finished in this run are reused, also with `fresh` and `retry`.

        Raises:
            WorkFileDamaged: the same file was damaged before, in this run.
        """
        if error.path in self.repaired:
            raise error
        logger.warning("%s; it is made again", error)
        self.repaired.append(error.path)
        with self.fence():
            discard(self.store, error.path)
        self.emit(StagesRepeated(error.path))

    def ask_kernels(self, find: Callable[[Services, None, None], str], kernels: str) -> str:
        """Return the name of the kernels that a worker has; the worker may have to start first.

        Args:
            find: a step (`protocols.ResidentShards`) that returns the name.
            kernels: selects the workers to ask.
        """
        with self.executor.hold(_load_nothing, [None], kernels=kernels) as shards:
            (name,) = shards.each(find, None)
        self.emit(KernelsResolved(name))
        return name

    def _outputs(
        self, stage: AnyStage, label: str, inputs: Mapping[str, Dataset], max_reject_ratio: float | None
    ) -> dict[str, Dataset]:
        started = time.perf_counter()
        folder = StageStore(self.store, stage, inputs, self.drops)
        n_units = next(iter(inputs.values())).rows
        stored = stage_results(self.store, folder.path)
        fresh = self._fresh and folder.path not in self._entered
        cached = {} if fresh else stored.results
        retried = folder.letters_to_retry(cached) if self.retry and folder.path not in self._entered else {}
        reused = stored.finished and not fresh and not retried
        if reused:
            results = list(cached.values())
            n_open, n_dropped = folder.count_rejects(results)
        else:
            accepted = folder.accepted_letters(stored.results if fresh else {})
            with self.fence():
                folder.begin(fresh, accepted)
            run = StageRun(self, stage, label, folder, cached, retried, accepted)
            results = run.run(inputs)
            n_open, n_dropped = folder.count_rejects(results)
            if max_reject_ratio is not None:
                try:
                    run.check_rejects(results, n_open, n_units, max_reject_ratio, self.bill.total())
                except StageFailed:
                    self.emit(StageFailedEvent(label))
                    raise
            with self.fence():
                folder.finish(results, accepted)
            self.stages_run += 1
            self._unsynced.append((output_files(folder.path, results), f"{folder.path}/{DONE}"))
            if time.monotonic() - self._synced_at >= _SYNC_EVERY_S:
                self.sync()
        self._entered.add(folder.path)
        usage = _usage_of(results)
        seconds = time.perf_counter() - started
        self.emit(StageFinished(label, reused, n_units, n_open, seconds, usage, n_dropped, folder.path))
        return folder.outputs(results)

    def emit(self, event: object) -> None:
        """Publish an event."""
        for listener in (self.bill, *self.listeners):
            listener(event)


def _load_nothing(services: Services, nothing: None) -> None:
    """Load no data: the shard only places the step."""


@dataclass(frozen=True)
class StageRun:
    """One stage while its missing tasks run.

    Attributes:
        cached: results that are in the store.
        retried: tasks to run again because of dead letters, each with its dropped letters.
        accepted: dropped letters of tasks that are run from the beginning.
        running: task number → attempt.
    """

    runner: StageRunner
    stage: AnyStage
    label: str
    folder: StageStore
    cached: Mapping[int, TaskResult]
    retried: Mapping[int, tuple[Rejected, ...]]
    accepted: Mapping[int, tuple[Rejected, ...]]
    running: dict[int, int] = field(default_factory=dict)

    def run(self, inputs: Mapping[str, Dataset]) -> list[TaskResult]:
        """Run the missing tasks and return the results of all tasks in order."""
        store, emit, path = self.runner.store, self.runner.emit, self.folder.path
        planned = plan(self.stage, path, store, inputs)
        rows = planned.rows
        finished = [number for number in self.cached if number < len(rows) and number not in self.retried]
        store.delete(failed_path(path))  # the usage that failed tasks of an earlier run left
        if planned.shuffle is not None and len(finished) < len(rows):
            self._scatter(planned.shuffle)
        n_finished_rows = sum(rows[number] for number in finished)
        emit(StageStarted(self.label, len(rows), len(finished), sum(rows), n_finished_rows, path))
        results = dict(self.cached)
        calls = waits_for_models(self.stage)
        try:
            with polled_calls(self.runner.executor, emit, self.label) if calls else nullcontext():
                self._run_missing(planned, results)
        except BaseException:
            usage = UsageMeter()
            with suppress(StoreError):  # the error that stopped the stage is the one to raise
                self.folder.add_unreported_usage(usage, self.running)
            emit(StageFailedEvent(self.label, usage))
            raise
        if planned.shuffle is not None:
            with self.runner.fence():
                drop_shuffle(store, path)
        return [results[number] for number in range(len(rows))]

    def check_rejects(
        self, results: list[TaskResult], n_open: int, n_units: int, max_ratio: float, before: UsageMeter
    ) -> None:
        """Refuse an output with too many dead letters.

        Args:
            n_open: open dead letters. Those of units of which a part was kept do not count here.
            max_ratio: largest share of them, from 0 to 1; with 1 any number is taken.
            before: usage of the stages that have finished.

        Raises:
            StageFailed: more than `max_ratio` of the units are open dead letters, and at least `MIN_REJECTS` are; with
                a ratio of 0 one is enough. Or all units are, however few, and its models have given no usable reply in
                this build.
        """
        if n_open <= max_ratio * n_units:
            return
        n_open -= self.folder.count_kept(results)
        if n_open <= max_ratio * n_units:
            return
        usage = _usage_of(results)
        roles = {role for role, _, _ in usage.uses}
        uses = [*usage.uses.values(), *(use for (role, _, _), use in before.uses.items() if role in roles)]
        is_hopeless = n_open >= n_units and not sum(use.calls - use.rejected for use in uses)
        if max_ratio > 0 and n_open < MIN_REJECTS and not is_hopeless:
            return
        reason, n_letters, example = self.folder.dominant_reason(results)
        reply = f". One of these replies begins: {beginning(example, _SHOWN_CHARS)!r}" if example else ""
        if len(self.cached) == len(results) and not self.retried:
            reply += ". Nothing was asked now: an earlier run stored them"
        most_refused = max(usage.uses.items(), key=lambda item: item[1].rejected + item[1].failed, default=None)
        remedy = remedy_of(reason, "NAME" if most_refused is None else most_refused[0][2])  # the endpoint's name
        uri = self.runner.store.quoted
        raise StageFailed(
            f"{self.label}: refused {n_open:,} of {count_noun(n_units, 'unit')}, more than max_reject_ratio "
            f"{max_ratio:g} allows; the reason of {n_letters:,}: {reason}{reply}. "
            f"{f'To change: {remedy}. ' if remedy else ''}`hirag-dist status --letters --index {uri}` "
            f"shows all; `hirag-dist retry --index {uri}` asks them again, `retry --drop` accepts the loss, and with a "
            "higher max_reject_ratio `hirag-dist index` goes on without them"
        )

    def _run_missing(self, planned: PartitionPlan, results: dict[int, TaskResult]) -> None:
        """Run the missing tasks and add their results."""
        iterative = isinstance(self.stage.split, Iterative)
        executor = self.runner.executor
        tasks = self._missing(planned)
        for result in run_iterations(tasks, executor) if iterative else executor.map(tasks):
            results[result.number] = result
            self.running.pop(result.number)
            n_rows = planned.rows[result.number]
            usage = UsageMeter.from_rows(result.usage)
            self.runner.emit(TaskFinished(self.label, n_rows, n_rejects(result), result.seconds, usage))

    def _missing(self, planned: PartitionPlan) -> Iterator[Task]:
        """Yield the tasks to run, each when an executor has room for it."""
        for task in planned.tasks():
            number = task.number
            if number in self.retried:
                prepared = replace(task, attempt=self.cached[number].attempt + 1, dropped=self.retried[number])
            elif number not in self.cached:
                prepared = replace(task, dropped=self.accepted.get(number, ()))
            else:
                continue
            self.running[number] = prepared.attempt
            yield prepared

    def _scatter(self, shuffle: Shuffle) -> None:
        """Run the missing tasks of the first pass of a stage that is split by key."""
        started = time.perf_counter()
        emit, label, rows = self.runner.emit, f"{self.label}: by key", shuffle.rows
        finished = scattered(self.runner.store, shuffle.folder)
        n_finished_rows = sum(n_rows for number, n_rows in enumerate(rows) if number in finished)
        emit(StageStarted(label, len(rows), len(finished), sum(rows), n_finished_rows, shuffle.folder))
        try:
            for result in self.runner.executor.map(task for task in shuffle.tasks() if task.number not in finished):
                emit(TaskFinished(label, rows[result.number], 0, result.seconds))
        except BaseException:
            emit(StageFailedEvent(label))
            raise
        seconds = time.perf_counter() - started
        emit(StageFinished(label, False, sum(rows), 0, seconds, folder=shuffle.folder))


def _usage_of(results: Iterable[TaskResult]) -> UsageMeter:
    """Return the usage of finished tasks."""
    usage = UsageMeter()
    for result in results:
        usage.add(UsageMeter.from_rows(result.usage))
    return usage
