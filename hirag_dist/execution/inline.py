"""Tasks in this process, several at a time on one event loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from hirag_dist.execution.stage import Services, waits_for_models
from hirag_dist.execution.task import Task, TaskResult, one_thread, run_task
from hirag_dist.llm.limits.protocol import CallTotals
from hirag_dist.protocols import CPU

logger = logging.getLogger(__name__)


class InlineExecutor:
    """Implements `protocols.Executor` without any cluster."""

    name = "inline"

    def __init__(
        self,
        make_services: Callable[[], Services],
        in_flight: int = 4,
        totals: Callable[[], CallTotals] = CallTotals,
    ) -> None:
        """Prepare; services are made with the first task.

        Args:
            in_flight: tasks at a time that wait for models; of others one.
            totals: returns the calls so far.
        """
        self.call_totals = totals
        self._make_services = make_services
        self._in_flight = in_flight
        self._runner = asyncio.Runner()  # turns Ctrl-C into a cancelled wait: no task is interrupted within a step
        self._services: Services | None = None

    def map(self, tasks: Iterable[Task]) -> Iterator[TaskResult]:
        """Run tasks, yield results as they come.

        Raises:
            HiragError: a task failed; the others in flight have finished and are stored.
            KeyboardInterrupt: requests that were sent have ended and are stored. A second Ctrl-C drops them.
        """
        pending = iter(tasks)
        running: set[asyncio.Task[TaskResult]] = set()
        loop = self._runner.get_loop()
        room = 1
        try:
            while True:
                while len(running) < room and (task := next(pending, None)) is not None:
                    room = self._in_flight if waits_for_models(task.stage) else 1
                    running.add(loop.create_task(self._run(task)))
                if not running:
                    return
                done, running = self._runner.run(_wait(running, asyncio.FIRST_COMPLETED))
                failures = [error for finished in done if (error := finished.exception()) is not None]
                yield from (finished.result() for finished in done if finished.exception() is None)
                if failures:
                    raise failures[0]
        except KeyboardInterrupt:
            logger.warning("interrupted: waiting for the replies in flight; Ctrl-C again drops them")
            for task_running in running:
                task_running.cancel()
            raise
        finally:
            if running:  # what was sent ends and is stored before the failure rises
                for ended in self._runner.run(_wait(running, asyncio.ALL_COMPLETED))[0]:
                    if not ended.cancelled():
                        ended.exception()

    @contextmanager
    def hold(
        self, load: Callable[[Any, Any], Any], shards: Sequence[Any], keep: bool = True, kernels: str = CPU
    ) -> Iterator[_LocalShards]:
        """Lend shards that stay in this process: all of them at once, where they are kept."""
        yield _LocalShards(self._made_services(), load, shards, keep)

    def release_idle(self) -> None:
        """Do nothing: there are no other workers."""

    def close(self) -> None:
        """Close the services and the loop."""
        if self._services is not None:
            self._runner.run(_close(self._services))
        self._runner.close()

    async def _run(self, task: Task) -> TaskResult:
        return await run_task(task, self._made_services())

    def _made_services(self) -> Services:
        if self._services is None:
            self._services = self._make_services()
        return self._services


class _LocalShards:
    """Implements `protocols.ResidentShards`: one shard after the other."""

    def __init__(self, services: Services, load: Callable[[Any, Any], Any], shards: Sequence[Any], keep: bool) -> None:
        self._services = services
        self._load = load
        self._shards = shards
        self._keep = keep
        self._loaded: dict[int, Any] = {}

    def each(self, step: Callable[[Any, Any, Any], Any], argument: Any) -> Iterator[Any]:
        """Do a step on every shard, yield the results in the order of the shards."""
        one_thread()
        for number, shard in enumerate(self._shards):
            data = self._loaded[number] if number in self._loaded else self._load(self._services, shard)
            if self._keep:
                self._loaded[number] = data
            yield step(self._services, data, argument)
            del data


async def _close(services: Services) -> None:
    await services.close()


async def _wait(
    tasks: set[asyncio.Task[TaskResult]], until: str
) -> tuple[set[asyncio.Task[TaskResult]], set[asyncio.Task[TaskResult]]]:
    return await asyncio.wait(tasks, return_when=until)
