"""An executor that starts with its first task, and may be chosen by the size of the work."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from typing import Any

from hirag_dist.execution.call_poll import CountsCalls
from hirag_dist.execution.stage import waits_for_models
from hirag_dist.execution.task import Task, TaskResult
from hirag_dist.llm.limits.protocol import CallTotals
from hirag_dist.protocols import CPU, Executor, ResidentShards

MAX_SMALL_TASKS = 64  # of a stage; of extraction 1,024 chunks, about a million tokens


class LazyExecutor:
    """Implements `protocols.Executor` by another one, made when it is needed: a run without a task starts no cluster.

    With a second one, that one takes over at the first stage of more than `MAX_SMALL_TASKS` tasks. The first stage that
    calls models decides for the rest of the build, because each executor counts rates and spending by itself. Results
    do not depend on the choice.

    Attributes:
        name: of the executor in use.
    """

    def __init__(
        self, name: str, make: Callable[[], Executor], large: tuple[str, Callable[[], Executor]] | None = None
    ) -> None:
        """Prepare; nothing is started.

        Args:
            name, make: name of the executor, and the function that makes it.
            large: name and function of the executor for large stages; None for no other.
        """
        self.name = name
        self._make = make
        self._large = large
        self._made: Executor | None = None

    def map(self, tasks: Iterable[Task]) -> Iterator[TaskResult]:
        """Run tasks, yield results as they come.

        Raises:
            BackendUnavailable: the executor does not start.
        """
        pending = iter(tasks)
        first = list(islice(pending, 1 if self._large is None else MAX_SMALL_TASKS + 1))
        if not first:
            return
        if self._large is not None:
            if len(first) > MAX_SMALL_TASKS:
                self.close()
                self._made, (self.name, self._make), self._large = None, self._large, None
            elif waits_for_models(first[0].stage):
                self._large = None
        yield from self._executor().map(chain(first, pending))

    @contextmanager
    def hold(
        self, load: Callable[[Any, Any], Any], shards: Sequence[Any], keep: bool = True, kernels: str = CPU
    ) -> Iterator[ResidentShards]:
        """Lend shards that stay with the workers.

        Raises:
            BackendUnavailable: the executor does not start.
        """
        with self._executor().hold(load, shards, keep, kernels) as held:
            yield held

    def call_totals(self) -> CallTotals:
        """Return the calls so far: none before the executor exists."""
        return self._made.call_totals() if isinstance(self._made, CountsCalls) else CallTotals()

    def _executor(self) -> Executor:
        if self._made is None:
            self._made = self._make()
        return self._made

    def release_idle(self) -> None:
        """Release idle workers, if anything was started."""
        if self._made is not None:
            self._made.release_idle()

    def close(self) -> None:
        """Stop what was started."""
        if self._made is not None:
            self._made.close()
