"""An executor that starts with its first task: a run with nothing to do starts no cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any

from hirag_dist.execution.task import Task, TaskResult
from hirag_dist.protocols import CPU, Executor, ResidentShards


class LazyExecutor:
    """Implements `ports.Executor` by another one, made when it is needed."""

    def __init__(self, name: str, make: Callable[[], Executor]) -> None:
        self.name = name
        self._make = make
        self._made: Executor | None = None
        self._charged = (0, 0.0)  # before there was an executor

    def map(self, tasks: Iterable[Task]) -> Iterator[TaskResult]:
        """Run tasks, yield results as they come.

        Raises:
            BackendUnavailable: the executor does not start.
        """
        waiting = iter(tasks)
        first = next(waiting, None)
        if first is None:
            return
        yield from self._there().map(chain((first,), waiting))

    @contextmanager
    def hold(
        self, load: Callable[[Any, Any], Any], shards: Sequence[Any], keep: bool = True, kernels: str = CPU
    ) -> Iterator[ResidentShards]:
        """Lend shards that stay with the workers.

        Raises:
            BackendUnavailable: the executor does not start.
        """
        with self._there().hold(load, shards, keep, kernels) as held:
            yield held

    def charge(self, tokens: int, usd: float) -> None:
        """Count what was spent outside of tasks, once there is who counts."""
        self._charged = (self._charged[0] + tokens, self._charged[1] + usd)
        self._settle()

    def _there(self) -> Executor:
        if self._made is None:
            self._made = self._make()
            self._settle()
        return self._made

    def _settle(self) -> None:
        if self._made is not None and self._charged != (0, 0.0):
            self._made.charge(*self._charged)
            self._charged = (0, 0.0)

    def release_idle(self) -> None:
        """Let go of what is kept for the next work, where anything was started."""
        if self._made is not None:
            self._made.release_idle()

    def close(self) -> None:
        """Stop what was started."""
        if self._made is not None:
            self._made.close()
