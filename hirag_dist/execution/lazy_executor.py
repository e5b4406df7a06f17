"""An executor that starts with its first task: a run with nothing to do starts no cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any

from hirag_dist.execution.call_poll import CountsCalls
from hirag_dist.execution.task import Task, TaskResult
from hirag_dist.llm.limits.protocol import CallTotals
from hirag_dist.protocols import CPU, Executor, ResidentShards


class LazyExecutor:
    """Implements `protocols.Executor` by another one, which is made when it is needed."""

    def __init__(self, name: str, make: Callable[[], Executor]) -> None:
        self.name = name
        self._make = make
        self._made: Executor | None = None

    def map(self, tasks: Iterable[Task]) -> Iterator[TaskResult]:
        """Run tasks, yield results as they come.

        Raises:
            BackendUnavailable: the executor does not start.
        """
        pending = iter(tasks)
        first = next(pending, None)
        if first is None:
            return
        yield from self._executor().map(chain((first,), pending))

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
