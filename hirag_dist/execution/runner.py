"""The stages of one build: a stage runs only if its output is not in the store."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import cast

from hirag_dist.errors import WorkFileDamaged
from hirag_dist.execution.dataset import Dataset, DatasetStore, TableSet
from hirag_dist.execution.dead_letters import load_drops
from hirag_dist.execution.events import KernelsResolved, StageFinished, StagesRepeated, UsageRecorded
from hirag_dist.execution.stage import AnyStage, In, Out, Services, Stage
from hirag_dist.execution.stage_results import discard
from hirag_dist.execution.stage_run import ExecutionContext, StageRun, TaskSelection
from hirag_dist.execution.stage_store import StageStore
from hirag_dist.execution.usage_bill import UsageBill
from hirag_dist.llm.usage import UsageMeter
from hirag_dist.protocols import EventListener, Executor
from hirag_dist.storage.store import Store

logger = logging.getLogger(__name__)
_SYNC_EVERY_S = 2.0  # work of this run that a power cut may lose, in addition to that of the stage that runs


class StageRunner:
    """Runs the stages of one build over one store; the outputs of finished stages are returned at once.

    Attributes:
        store: the index.
        datasets: tables of the store.
        bill: usage of the build.
        drops: accepted losses.
        fence: entered around writes that only the holder of the index may make; raises IndexBusy otherwise.
        stages_run: stages that were executed so far.
        retry: whether tasks with dead letters are run again.
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
            listeners: called with every event.
            max_reject_ratio: a stage with a larger share of open dead letters fails.
            fresh: run finished stages again; replies in the ledger are not paid again.
            retry: run tasks with dead letters again, each refused unit with new attempts.
            fence: see the attribute.
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
        self._executor = executor
        self._entered: set[str] = set()  # folders of stages that this run has finished
        self._unsynced: list[tuple[list[str], str]] = []
        self._synced_at = time.monotonic()
        self._context = ExecutionContext(executor, self.emit, fence)

    def run(self, stage: Stage[In, Out], label: str, /, *args: In.args, **inputs: In.kwargs) -> Out:
        """Return the outputs of a stage after running its missing tasks.

        Args:
            stage: with the types of its inputs and outputs.
            label: name in progress, records and the bill.
            args, inputs: the fields of `stage.Inputs`.

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

    def repair(self, error: WorkFileDamaged) -> None:
        """Remove a damaged file of the work folder, and its marker, so that the stages run again make it again.

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

    def record_usage(self, label: str, usage: UsageMeter) -> None:
        """Put usage outside any stage on the bill."""
        if usage.uses:
            self.emit(UsageRecorded(label, usage))

    def ask_kernels(self, find: Callable[[Services, None, None], str], kernels: str) -> str:
        """Return the name of the kernels that a worker has; the worker may have to start first.

        Args:
            find: a step (`protocols.ResidentShards`) that returns the name.
            kernels: selects the workers to ask.

        Raises:
            HiragError: the worker cannot use them.
        """
        with self._executor.hold(_load_nothing, [None], kernels=kernels) as shards:
            (name,) = shards.each(find, None)
        self.emit(KernelsResolved(name))
        return name

    def release_idle(self) -> None:
        """Release idle workers before long work of the driver itself."""
        self._executor.release_idle()

    def _outputs(
        self, stage: AnyStage, label: str, inputs: Mapping[str, Dataset], max_reject_ratio: float | None
    ) -> dict[str, Dataset]:
        started = time.perf_counter()
        folder = StageStore(self.store, stage, inputs, self.drops)
        n_units = next(iter(inputs.values())).rows
        stored = folder.load()
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
            run = StageRun(self._context, stage, label, folder, TaskSelection(cached, retried, accepted))
            results = run.run(inputs)
            n_open, n_dropped = folder.count_rejects(results)
            if max_reject_ratio is not None:
                run.check_rejects(results, n_open, n_units, max_reject_ratio)
            with self.fence():
                folder.finish(results)
                if accepted:
                    folder.forget_accepted()
            self.stages_run += 1
            self._unsynced.append(folder.files(results))
            if time.monotonic() - self._synced_at >= _SYNC_EVERY_S:
                self.sync()
        self._entered.add(folder.path)
        usage = UsageMeter()
        for result in results:
            usage.add(UsageMeter.from_rows(result.usage))
        seconds = time.perf_counter() - started
        self.emit(StageFinished(label, reused, n_units, n_open, seconds, usage, n_dropped, folder.path))
        return folder.outputs(results)

    def emit(self, event: object) -> None:
        """Publish an event."""
        for listener in (self.bill, *self.listeners):
            listener(event)


def _load_nothing(services: Services, nothing: None) -> None:
    """Load no data: the shard only places the step."""
