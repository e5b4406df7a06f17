"""Executors: one in this process, one that starts with its first task; progress by reply, and memory given back.

Memory that is freed goes back to the system. By default glibc raises its threshold for mapped blocks to the largest
block that was freed, up to 32 MiB, and keeps what is below it, in arenas of several threads. A build frees tables and
matrices of megabytes at the end of each stage, which stayed resident. Arrow's own allocators keep what was freed too.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from typing import Any, Final, Protocol, runtime_checkable

import pyarrow as pa

from hirag_dist.execution.events import CallsProgress
from hirag_dist.execution.stage import Services, waits_for_models
from hirag_dist.execution.task import Task, TaskResult, one_thread, run_task
from hirag_dist.llm.limits.protocol import CallTotals
from hirag_dist.protocols import CPU, EventListener, Executor, ResidentShards

_M_TRIM_THRESHOLD: Final = -1  # numbers of malloc.h
_M_MMAP_THRESHOLD: Final = -3
_THRESHOLD_BYTES: Final = 8 << 20  # with 1 MiB a build takes 18 % more CPU, for page faults, and 45 MB less
_ARROW_SETTING: Final = "ARROW_DEFAULT_MEMORY_POOL"
_SETTINGS: Final = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_")


def return_freed_memory() -> None:
    """Make malloc of this process return freed blocks from 8 MiB on, and Arrow use malloc.

    Without effect where the environment configures them, and where the C library has no `mallopt` (mallopt(3)).
    """
    if _ARROW_SETTING not in os.environ:
        pa.set_memory_pool(pa.system_memory_pool())
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if os.name == "posix" else None
    is_configured = any(name in os.environ for name in _SETTINGS) or "malloc" in os.environ.get("GLIBC_TUNABLES", "")
    if mallopt is None or is_configured:
        return
    mallopt(_M_MMAP_THRESHOLD, _THRESHOLD_BYTES)
    mallopt(_M_TRIM_THRESHOLD, _THRESHOLD_BYTES)


_INTERVAL_S = 1.0
_JOIN_S = 10.0


@runtime_checkable
class CountsCalls(Protocol):
    """Executor that knows the calls of all its workers."""

    def call_totals(self) -> CallTotals:
        """Return the calls of this run so far. Any thread may call it; it raises nothing."""
        ...


@contextmanager
def polled_calls(
    executor: Executor, emit: EventListener, label: str, interval_s: float = _INTERVAL_S
) -> Iterator[None]:
    """Emit `CallsProgress` of one stage while the block lasts, from a thread of its own.

    Args:
        executor: emits nothing unless it is `CountsCalls`.
    """
    if not isinstance(executor, CountsCalls):
        yield
        return
    before = executor.call_totals()
    stopped = threading.Event()

    def poll() -> None:
        while not stopped.wait(interval_s):
            emit(CallsProgress(label, executor.call_totals().since(before)))

    thread = threading.Thread(target=poll, name="call-poll", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join(_JOIN_S)


MAX_SMALL_TASKS = 64  # of a stage; of extraction 1,024 chunks, about a million tokens


class LazyExecutor:
    """Implements `protocols.Executor` by another one, made when it is needed: a run without a task starts no cluster.

    With a second one, that one takes over at the first stage of more than `MAX_SMALL_TASKS` tasks. The first stage that
    calls models decides for the rest of the build, because each executor counts rates and spending by itself. Results
    do not depend on the choice.
    """

    def __init__(
        self, name: str, make: Callable[[], Executor], large: tuple[str, Callable[[], Executor]] | None = None
    ) -> None:
        """Prepare, nothing is started: an executor by name, and another one for large stages if there is one."""
        self.name = name
        self._make = make
        self._large = large
        self._made: Executor | None = None

    def map(self, tasks: Iterable[Task]) -> Iterator[TaskResult]:
        """Run tasks, yield results as they come."""
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
        """Lend shards that stay with the workers."""
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
                done, running = self._runner.run(asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED))
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
                for ended in self._runner.run(asyncio.wait(running))[0]:
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
