"""An executor that is chosen by the size of the work: this process for a small build, Ray for a large one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from typing import Any

from hirag_dist.execution.lazy_executor import LazyExecutor
from hirag_dist.execution.stage import waits_for_models
from hirag_dist.execution.task import Task, TaskResult
from hirag_dist.llm.limits.protocol import CallTotals
from hirag_dist.protocols import CPU, ResidentShards

MAX_INLINE_TASKS = 64  # of a stage; of extraction 1,024 chunks, about a million tokens


class SizedExecutor:
    """Implements `protocols.Executor` by `small` until a stage has more than `MAX_INLINE_TASKS` tasks, then by `large`.

    The first stage that calls models decides for the rest of the build, because each executor counts rates and spending
    by itself. Results do not depend on the choice.

    Attributes:
        name: of the executor in use.
    """

    def __init__(self, small: LazyExecutor, large: LazyExecutor) -> None:
        self.name = small.name
        self._chosen = small
        self._large = large
        self._is_final = False

    def map(self, tasks: Iterable[Task]) -> Iterator[TaskResult]:
        """Run tasks, yield results as they come.

        Raises:
            BackendUnavailable: the executor does not start.
        """
        pending = iter(tasks)
        first = list(islice(pending, MAX_INLINE_TASKS + 1))
        if not first:
            return
        if not self._is_final and len(first) > MAX_INLINE_TASKS:
            self._chosen.close()
            self._chosen, self._is_final = self._large, True
            self.name = self._large.name
        self._is_final = self._is_final or waits_for_models(first[0].stage)
        yield from self._chosen.map(chain(first, pending))

    @contextmanager
    def hold(
        self, load: Callable[[Any, Any], Any], shards: Sequence[Any], keep: bool = True, kernels: str = CPU
    ) -> Iterator[ResidentShards]:
        """Lend shards that stay with the workers.

        Raises:
            BackendUnavailable: the executor does not start.
        """
        with self._chosen.hold(load, shards, keep, kernels) as held:
            yield held

    def call_totals(self) -> CallTotals:
        """Return the calls so far."""
        return self._chosen.call_totals()

    def release_idle(self) -> None:
        """Release idle workers."""
        self._chosen.release_idle()

    def close(self) -> None:
        """Stop what was started."""
        self._chosen.close()
