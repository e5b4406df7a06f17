"""Tasks in this process, several at a time on one event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator
from typing import Any

from hirag_dist.execution.task import Task, TaskResult, run_task
from hirag_dist.stages.base import Services


class InlineExecutor:
    """Implements `ports.Executor` without any cluster."""

    name = "inline"

    def __init__(
        self,
        make_services: Callable[[], Services],
        close_services: Callable[[Services], Coroutine[Any, Any, None]],
        in_flight: int = 4,
    ) -> None:
        self._make_services = make_services
        self._close_services = close_services
        self._in_flight = in_flight
        self._loop = asyncio.new_event_loop()
        self._services: Services | None = None

    def map(self, tasks: Iterable[Task]) -> Iterator[TaskResult]:
        """Run tasks, yield results as they come."""
        waiting = iter(tasks)
        running: set[asyncio.Task[TaskResult]] = set()
        try:
            while True:
                while len(running) < self._in_flight and (task := next(waiting, None)) is not None:
                    running.add(self._loop.create_task(self._run(task)))
                if not running:
                    return
                done, running = self._loop.run_until_complete(
                    asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                )
                for finished in sorted(done, key=lambda task: task.get_name()):
                    yield finished.result()
        finally:
            if running:  # what was sent ends and is stored before the failure rises
                self._loop.run_until_complete(asyncio.wait(running))
                for rest in running:
                    if not rest.cancelled():
                        rest.exception()

    def close(self) -> None:
        """Close the services and the loop."""
        if self._services is not None:
            self._loop.run_until_complete(self._close_services(self._services))
        self._loop.close()

    async def _run(self, task: Task) -> TaskResult:
        if self._services is None:
            self._services = self._make_services()
        return await run_task(task, self._services)
