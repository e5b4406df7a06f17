"""One execution of a stage: the tasks that are missing, and their results."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace

from hirag_dist.core.text.normalize import count_noun
from hirag_dist.errors import StageFailed, StoreError
from hirag_dist.execution.call_poll import CallPoll
from hirag_dist.execution.dataset import Dataset
from hirag_dist.execution.dead_letters import n_rejects
from hirag_dist.execution.events import (
    StageFailedEvent,
    StageFinished,
    StageStarted,
    TaskFinished,
)
from hirag_dist.execution.iterative import run_iterations
from hirag_dist.execution.partitioning import PartitionPlan, Shuffle, plan
from hirag_dist.execution.stage import AnyStage, Iterative, waits_for_models
from hirag_dist.execution.stage_store import StageStore
from hirag_dist.execution.task import Task, TaskResult, scattered
from hirag_dist.llm.usage import UsageMeter
from hirag_dist.protocols import EventListener, Executor
from hirag_dist.types import Rejected

MIN_REJECTS = 3  # a share of fewer units says nothing: one of two clusters of the last layer is half of them


@dataclass(frozen=True)
class ExecutionContext:
    """Facilities that all stages of a run share.

    Attributes:
        emit: publishes an event.
        fence: entered around writes that only the holder of the index may make; raises IndexBusy otherwise.
    """

    executor: Executor
    emit: EventListener
    fence: Callable[[], AbstractContextManager[None]]


@dataclass(frozen=True)
class TaskSelection:
    """The state of a stage's tasks before a run.

    Attributes:
        cached: results that are in the store.
        retried: tasks to run again because of dead letters, each with its dropped letters.
        accepted: dropped letters of tasks that are run from the beginning.
    """

    cached: Mapping[int, TaskResult]
    retried: Mapping[int, tuple[Rejected, ...]]
    accepted: Mapping[int, tuple[Rejected, ...]]

    def prepare(self, task: Task) -> Task | None:
        """Return a task as it has to be run; None if its result is cached."""
        number = task.number
        if number in self.retried:
            return replace(task, attempt=self.cached[number].attempt + 1, dropped=self.retried[number])
        if number in self.cached:
            return None
        return replace(task, dropped=self.accepted.get(number, ()))


class StageRun:
    """One stage while its missing tasks run."""

    def __init__(
        self, context: ExecutionContext, stage: AnyStage, label: str, folder: StageStore, selection: TaskSelection
    ) -> None:
        self._context = context
        self._stage = stage
        self._label = label
        self._folder = folder
        self._selection = selection
        self._running: dict[int, int] = {}  # task number → attempt

    def run(self, inputs: Mapping[str, Dataset]) -> list[TaskResult]:
        """Run the missing tasks and return the results of all tasks in order."""
        context, path, selection = self._context, self._folder.path, self._selection
        planned = plan(self._stage, path, self._folder.store, inputs)
        rows = planned.rows
        finished = [number for number in selection.cached if number < len(rows) and number not in selection.retried]
        self._folder.clear_failures()
        if planned.shuffle is not None and len(finished) < len(rows):
            self._scatter(planned.shuffle)
        n_finished_rows = sum(rows[number] for number in finished)
        context.emit(StageStarted(self._label, len(rows), len(finished), sum(rows), n_finished_rows, path))
        results = dict(selection.cached)
        calls = waits_for_models(self._stage)
        try:
            with CallPoll(context.executor, context.emit, self._label) if calls else nullcontext():
                self._run_missing(planned, results)
        except BaseException:
            context.emit(StageFailedEvent(self._label, self._unreported_usage()))
            raise
        if planned.shuffle is not None:
            with context.fence():
                self._folder.drop_shuffle()
        return [results[number] for number in range(len(rows))]

    def check_rejects(self, results: list[TaskResult], n_open: int, n_units: int, max_ratio: float) -> None:
        """Refuse an output with too many dead letters.

        Raises:
            StageFailed: more than `max_ratio` of the units are open dead letters, and at least `MIN_REJECTS` are; with
                a ratio of 0 one is enough.
        """
        if n_open <= max_ratio * n_units or (max_ratio > 0 and n_open < MIN_REJECTS):
            return
        raise StageFailed(
            f"{self._label}: refused {n_open:,} of {count_noun(n_units, 'unit')}, more than max_reject_ratio "
            f"{max_ratio:g} allows; the first reason: {self._folder.first_reason(results)}. `hirag-dist status "
            "--letters` shows them; `hirag-dist retry` asks them again, `retry --drop` accepts the loss, and with a "
            "higher max_reject_ratio `hirag-dist index` goes on without them"
        )

    def _run_missing(self, planned: PartitionPlan, results: dict[int, TaskResult]) -> None:
        """Run the missing tasks and add their results."""
        iterative = isinstance(self._stage.split, Iterative)
        executor = self._context.executor
        tasks = self._missing(planned)
        for result in run_iterations(tasks, executor) if iterative else executor.map(tasks):
            results[result.number] = result
            self._running.pop(result.number)
            n_rows = planned.rows[result.number]
            usage = UsageMeter.from_rows(result.usage)
            self._context.emit(TaskFinished(self._label, n_rows, n_rejects(result), result.seconds, usage))

    def _missing(self, planned: PartitionPlan) -> Iterator[Task]:
        """Yield the tasks to run, each when an executor has room for it."""
        for task in planned.tasks():
            prepared = self._selection.prepare(task)
            if prepared is not None:
                self._running[prepared.number] = prepared.attempt
                yield prepared

    def _scatter(self, shuffle: Shuffle) -> None:
        """Run the missing tasks of the first pass of a stage that is split by key."""
        started = time.perf_counter()
        emit, label, rows = self._context.emit, f"{self._label}: by key", shuffle.rows
        finished = scattered(self._folder.store, shuffle.folder)
        n_finished_rows = sum(n_rows for number, n_rows in enumerate(rows) if number in finished)
        emit(StageStarted(label, len(rows), len(finished), sum(rows), n_finished_rows, shuffle.folder))
        try:
            for result in self._context.executor.map(task for task in shuffle.tasks() if task.number not in finished):
                emit(TaskFinished(label, rows[result.number], 0, result.seconds))
        except BaseException:
            emit(StageFailedEvent(label))
            raise
        seconds = time.perf_counter() - started
        emit(StageFinished(label, False, sum(rows), 0, seconds, folder=shuffle.folder))

    def _unreported_usage(self) -> UsageMeter:
        usage = UsageMeter()
        with suppress(StoreError):  # the error that stopped the stage is the one to raise
            self._folder.add_unreported_usage(usage, self._running)
        return usage
