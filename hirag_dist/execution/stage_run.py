"""One execution of a stage: the tasks that are missing, their batches of calls, and their results."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace

from hirag_dist.core.prompts.refusal_reasons import beginning, remedy_of
from hirag_dist.core.text.normalize import count_noun
from hirag_dist.errors import StageFailed, StoreError
from hirag_dist.execution.batch_api.driver import BatchAttempts, Batches
from hirag_dist.execution.call_poll import CallPoll
from hirag_dist.execution.dataset import Dataset
from hirag_dist.execution.dead_letters import n_rejects
from hirag_dist.execution.events import (
    BatchesSubmitted,
    StageFailedEvent,
    StageFinished,
    StageStarted,
    TaskFinished,
    UsageRecorded,
)
from hirag_dist.execution.iterative import run_iterations
from hirag_dist.execution.partitioning import PartitionPlan, Shuffle, plan
from hirag_dist.execution.stage import AnyStage, CallsChatModels, Iterative, waits_for_models
from hirag_dist.execution.stage_store import StageStore
from hirag_dist.execution.task import Task, TaskResult, scattered
from hirag_dist.llm.usage import UsageMeter
from hirag_dist.protocols import EventListener, Executor
from hirag_dist.types import Rejected

MIN_REJECTS = 3  # a share of fewer units says nothing: one of two clusters of the last layer is half of them
_SHOWN_CHARS = 300  # of a refused reply, in the error of a stage


@dataclass(frozen=True)
class ExecutionContext:
    """Facilities that all stages of a run share.

    Attributes:
        emit: publishes an event.
        sent: returns the tokens and dollars that this run has spent so far.
        fence: entered around writes that only the holder of the index may make; raises IndexBusy otherwise.
        batches: sends calls in batches where that is wanted.
    """

    executor: Executor
    emit: EventListener
    sent: Callable[[], tuple[int, float]]
    fence: Callable[[], AbstractContextManager[None]]
    batches: Batches | None

    def on_batches_submitted(self, label: str, n_batches: int, n_calls: int) -> None:
        """Report batches that were sent."""
        self.emit(BatchesSubmitted(label, n_batches, n_calls))

    def on_batch_returned(self, label: str, usage: UsageMeter) -> None:
        """Charge and report a batch that was answered."""
        self.executor.charge(*usage.spent())
        self.emit(UsageRecorded(label, usage))


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
                self._run_passes(planned, results)
        except BaseException:
            context.emit(StageFailedEvent(self._label, self._unreported_usage()))
            raise
        if planned.shuffle is not None:
            with context.fence():
                self._folder.drop_shuffle()
        return [results[number] for number in range(len(rows))]

    def _run_passes(self, planned: PartitionPlan, results: dict[int, TaskResult]) -> None:
        """Run the missing tasks, and those again whose calls were answered by batches."""
        context = self._context
        attempts = BatchAttempts(self._batches(), self._label, self._folder.path)
        deferred = self._run_pass(planned, attempts, None, results)
        while deferred:
            context.executor.release_idle()  # a batch takes up to a day
            attempts.ask(context.sent(), context.on_batch_returned, context.on_batches_submitted)
            deferred = self._run_pass(planned, attempts, deferred, results)

    def check_rejects(
        self, results: list[TaskResult], n_open: int, n_units: int, max_ratio: float, before: UsageMeter
    ) -> None:
        """Refuse an output with too many dead letters.

        Args:
            n_open: open dead letters.
            max_ratio: largest share of them, from 0 to 1; with 1 any number is taken.
            before: usage of the stages that have finished.

        Raises:
            StageFailed: more than `max_ratio` of the units are open dead letters, and at least `MIN_REJECTS` are; with
                a ratio of 0 one is enough. Or all units are, however few, and its models have given no usable reply in
                this build.
        """
        if n_open <= max_ratio * n_units:
            return
        usage = usage_of(results)
        is_hopeless = n_open >= n_units and not _n_usable(usage, before)
        if max_ratio > 0 and n_open < MIN_REJECTS and not is_hopeless:
            return
        summary = self._folder.dominant_reason(results)
        reply = f". One of these replies begins: {beginning(summary.reply, _SHOWN_CHARS)!r}" if summary.reply else ""
        remedy = remedy_of(summary.reason, _most_refused(usage))
        raise StageFailed(
            f"{self._label}: refused {n_open:,} of {count_noun(n_units, 'unit')}, more than max_reject_ratio "
            f"{max_ratio:g} allows; the reason of {summary.n_letters:,}: {summary.reason}{reply}. "
            f"{f'To change: {remedy}. ' if remedy else ''}`hirag-dist status --letters` shows all; `hirag-dist retry` "
            "asks them again, `retry --drop` accepts the loss, and with a higher max_reject_ratio `hirag-dist index` "
            "goes on without them"
        )

    def _run_pass(
        self, planned: PartitionPlan, attempts: BatchAttempts, only: set[int] | None, results: dict[int, TaskResult]
    ) -> set[int]:
        """Run tasks, add their results, and return the numbers of those whose calls were left for batches."""
        deferred = set()
        tasks = attempts.prepared(self._missing(planned, only))
        iterative = isinstance(self._stage.split, Iterative)
        executor = self._context.executor
        for result in run_iterations(tasks, executor) if iterative else executor.map(tasks):
            usage = UsageMeter.from_rows(result.usage)
            if result.n_deferred:
                deferred.add(result.number)
                self._context.emit(UsageRecorded(self._label, usage))
                continue
            results[result.number] = result
            self._running.pop(result.number)
            n_rows = planned.rows[result.number]
            self._context.emit(TaskFinished(self._label, n_rows, n_rejects(result), result.seconds, usage))
        return deferred

    def _missing(self, planned: PartitionPlan, only: set[int] | None) -> Iterator[Task]:
        """Yield the tasks to run, each when an executor has room for it."""
        for task in planned.tasks():
            prepared = self._selection.prepare(task)
            if prepared is not None and (only is None or task.number in only):
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

    def _batches(self) -> Batches | None:
        """Return the batches if the stage's calls go there: embeddings are always sent directly."""
        batches = self._context.batches
        wanted = batches is not None and batches.settings.wanted and isinstance(self._stage, CallsChatModels)
        return batches if wanted else None

    def _unreported_usage(self) -> UsageMeter:
        usage = UsageMeter()
        with suppress(StoreError):  # the error that stopped the stage is the one to raise
            self._folder.add_unreported_usage(usage, self._running)
        return usage


def usage_of(results: Iterable[TaskResult]) -> UsageMeter:
    """Return the usage of finished tasks."""
    usage = UsageMeter()
    for result in results:
        usage.add(UsageMeter.from_rows(result.usage))
    return usage


def _n_usable(usage: UsageMeter, before: UsageMeter) -> int:
    """Return the replies that were not refused: of the stage, and of those before it that asked in the same roles."""
    roles = {role for role, _, _ in usage.uses}
    uses = [*usage.uses.values(), *(use for (role, _, _), use in before.uses.items() if role in roles)]
    return sum(use.calls - use.rejected for use in uses)


def _most_refused(usage: UsageMeter) -> str:
    """Return the name of the endpoint with the most calls without a usable reply."""
    uses = usage.uses.items()
    return max(uses, key=lambda item: item[1].rejected + item[1].failed)[0][2] if uses else "NAME"
