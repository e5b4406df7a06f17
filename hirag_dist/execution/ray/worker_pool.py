"""Workers of a Ray executor: their kinds, which of them are available, and the life cycle of those with a GPU."""

from __future__ import annotations

import logging
import time
import uuid
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Set
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import ray

from hirag_dist.errors import HiragError, StageFailed
from hirag_dist.execution.executors import return_freed_memory
from hirag_dist.execution.ray.cluster import check_own_node, count_gpus, last_line
from hirag_dist.execution.ray.quota_actor import DeclaredDead, RemoteQuotaCoordinator
from hirag_dist.execution.stage import Services
from hirag_dist.execution.task import Task, TaskResult, one_thread, run_task
from hirag_dist.llm.limits.protocol import QuotaClient

MakeServices = Callable[[QuotaClient, str], Services]


@dataclass(frozen=True, slots=True)
class ShardStep:
    """A step on a shard (`protocols.ResidentShards`), as a worker is asked for it.

    Attributes:
        hold: names the shards that are held together.
        load: (services, shard) → data.
        keep: whether the data stay with the worker.
        step: (services, data, argument) → result.
    """

    hold: str
    number: int
    shard: Any
    load: Callable[[Any, Any], Any]
    keep: bool
    step: Callable[[Any, Any, Any], Any]


class Worker:
    """One process: runs tasks, and holds shards."""

    def __init__(self, make_services: MakeServices, coordinator_name: str, number: int) -> None:
        return_freed_memory()
        self._make_services = make_services
        self._coordinator_name = coordinator_name
        self._number = number
        self._services: Services | None = None
        self._held: dict[tuple[str, int], Any] = {}

    async def ready(self) -> None:
        """Return when the worker has started."""

    async def run(self, task: Task) -> TaskResult | HiragError:
        """Run a task; a HiragError is returned, not raised."""
        services: Services | None = None
        try:
            services = self._made_services()
            return await run_task(task, services)
        except DeclaredDead:  # by mistake: continue as a new holder without leases
            if self._services is services:
                self._services = None
            return await self.run(task)
        except HiragError as error:
            return error

    async def step(self, work: ShardStep, argument: Any) -> tuple[HiragError | None, Any]:
        """Run a step on a shard, which is loaded if it is not resident; return (HiragError or None, result)."""
        try:
            one_thread()
            services = self._made_services()
            key = work.hold, work.number
            data = self._held[key] if key in self._held else work.load(services, work.shard)
            if work.keep:
                self._held[key] = data
            return None, work.step(services, data, argument)
        except HiragError as error:
            return error, None

    async def drop(self, hold: str, number: int | None = None) -> None:
        """Release the shards of a hold, or one of them."""
        for key in [key for key in self._held if key[0] == hold and number in (None, key[1])]:
            del self._held[key]

    async def close(self) -> None:
        """Wait for requests in flight and close connections."""
        if self._services is not None:
            await self._services.close()

    def _made_services(self) -> Services:
        if self._services is None:  # built here: clients and device handles do not pickle
            client = RemoteQuotaCoordinator(ray.get_actor(self._coordinator_name))
            self._services = self._make_services(client, f"{self._number}/{uuid.uuid4().hex}")
        return self._services


def actor(kind: type, max_restarts: int = -1) -> Any:
    """Return a class as an actor, restarted whenever it dies by default; Ray has no types for its arguments."""
    return ray.remote(max_restarts=max_restarts)(kind)


logger = logging.getLogger(__name__)
_CLOSE_S = 30.0
_NODE_CHECK_S = 10.0  # while a worker is away
_WARN_AGAIN_S = 600.0
_MAX_LOST_WORKERS = 100  # without one piece of work being done
_MAX_LOSSES = 5  # work over which so many workers have died is the cause itself


@dataclass(frozen=True, slots=True)
class GpuWorkers:
    """Workers that have a GPU each, and do what is computed on it, and nothing else.

    They are started when there is such work and end when there has been none for a while, so that a group of nodes
    can be at zero while models are called.

    Attributes:
        count: at most; fewer where there is less to do at a time. 0: no such kind, every worker does all work.
        idle_s: how long they stay without work: to start one again takes seconds on a node that is still there.
        notice_s: how long to wait for a worker with a GPU without a warning.
    """

    count: int = 0
    idle_s: float = 30.0
    notice_s: float = 10.0


@dataclass(slots=True, eq=False)
class PoolLease:
    """A use of workers in progress."""

    n: int


LOST: Final = object()  # outcome of work whose worker died: it has to be done again


class WorkerPool:
    """The workers of an executor and their availability.

    A worker that dies is given no work until it is there again: its node may never be, and the others go on. Numbers
    below `count` are of workers of the first kind, which are there from the beginning; those above of workers with a
    GPU.
    """

    def __init__(
        self,
        make_services: MakeServices,
        coordinator_name: str,
        count: int,
        forget: Callable[[int], object],
        listen: Callable[[], Any],
        gpu: GpuWorkers | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start `count` workers.

        Args:
            forget: called with the number of each worker that dies.
            listen: starts a call that ends with the next warning of the quota coordinator.
        """
        self._make_services = make_services
        self._coordinator_name = coordinator_name
        self._count = count
        self._forget = forget
        self._listen = listen
        self._warning: list[Any] = [listen()]  # empty once the coordinator is gone
        self._gpu = gpu or GpuWorkers()
        self._clock = clock
        self._n_lost = 0
        self.workers: dict[int, Any] = {}
        # A call that ends when the worker is there → the worker. A busy cluster may have no room for some yet.
        self._away: dict[Any, int] = {}
        self._uses: list[PoolLease] = []  # of the workers with a GPU
        self._worked: dict[int, float] = {}  # worker with a GPU → when it worked last, or was started
        self._warn_at: float | None = None  # when to warn that none of them is available
        for number in range(count):
            self._start(number, num_cpus=1)

    def size(self, on_gpu: bool = False) -> int:
        """Return how many workers of a kind there may be."""
        return self._gpu.count if self._apart(on_gpu) else self._count

    def available(self, on_gpu: bool = False) -> list[int]:
        """Return the numbers of the workers of a kind that can be given work."""
        away = set(self._away.values())
        apart = self._apart(on_gpu)
        return [n for n in self.workers if n not in away and (n >= self._count) == apart]

    def least_busy(self, load: Mapping[int, int], room: int, on_gpu: bool = False) -> int | None:
        """Return the least busy worker of a kind, of equals the first; None where all have `room` pieces of work."""
        free = [n for n in self.available(on_gpu) if load[n] < room]
        return min(free, key=lambda n: (load[n], n), default=None)

    @contextmanager
    def using(self, n: int, on_gpu: bool) -> Iterator[PoolLease]:
        """Have up to n workers of a kind while the block lasts: those with a GPU are asked for, the others are there.

        No more of them are started than there are pieces of work, and no more are kept: each may be a node that is
        paid for. The user of the lease lowers `PoolLease.n` when less is left to do.
        """
        use = PoolLease(n)
        if not self._apart(on_gpu):
            yield use
            return
        for number in range(self._count, self._count + min(n, self._gpu.count)):
            if number not in self.workers:
                self._start_gpu(number)
        self._uses.append(use)
        try:
            yield use
        finally:
            self._uses.remove(use)
            self._warn_at = None

    def first_of(self, running: Mapping[Any, tuple[Any, ...]]) -> list[Any]:
        """Wait until an event; return those of the calls that ended, which may be none.

        Args:
            running: call → its worker, and whatever else is known of it.
        """
        busy = {worker for worker, *_ in running.values()}
        pause = self._pause(busy)
        if self._away:
            pause = _NODE_CHECK_S if pause is None else min(pause, _NODE_CHECK_S)
        try:
            done, _ = ray.wait([*running, *self._away, *self._warning], num_returns=1, timeout=pause)
        except KeyboardInterrupt:
            logger.warning("interrupted: waiting for the replies in flight; Ctrl-C again drops them")
            raise
        if self._away and not done:
            check_own_node()
        now = self._clock()
        self._worked |= dict.fromkeys(busy & self._worked.keys(), now)
        for ref in done:
            if ref in self._away:
                self._restore_worker(ref)
            elif ref in self._warning:
                self._forward_warning(ref)
        return [ref for ref in done if ref in running]

    def outcome(self, ref: Any, worker: int, unit: Hashable, losses: Counter[Hashable]) -> Any:
        """Return the outcome of a call: its value, a HiragError, or LOST if the worker died.

        Args:
            unit: of work; it fails itself after `_MAX_LOSSES` deaths.
            losses: unit → workers that died over it.
        """
        try:
            value = ray.get(ref)
        except ray.exceptions.RayActorError as error:
            self._lose_worker(worker, error)
            return _lost(unit, losses, error)
        except ray.exceptions.ObjectLostError as error:  # the result was lost with its node
            return _lost(unit, losses, error)
        except ray.exceptions.RayError as error:
            return StageFailed(f"a worker failed: {last_line(error)}")
        self._n_lost = 0
        return value

    def release_idle(self) -> None:
        """Stop the idle workers with a GPU, before a time in which the idle limit is not checked."""
        if not self._uses:
            self._stop(list(self._worked))

    def close(self) -> None:
        """Stop the workers."""
        self._stop(list(self.workers))

    def _apart(self, on_gpu: bool) -> bool:
        """Return whether work goes to the workers with a GPU, if there is such a kind."""
        return on_gpu and self._gpu.count > 0

    def _start(self, number: int, **resources: int) -> None:
        kind = actor(Worker).options(**resources)
        self.workers[number] = kind.remote(self._make_services, self._coordinator_name, number)
        self._away[self._when_ready(number)] = number

    def _start_gpu(self, number: int) -> None:
        self._start(number, num_cpus=0, num_gpus=1)  # no CPU: where others have taken all, it still has room
        self._worked[number] = self._clock()

    def _stop(self, numbers: list[int]) -> None:
        """Stop workers; available ones finish their requests in flight first."""
        away = set(self._away.values())
        closing = [self.workers[n].close.remote() for n in numbers if n not in away]
        if closing:
            ray.wait(closing, num_returns=len(closing), timeout=_CLOSE_S)
        for number in numbers:
            ray.kill(self.workers.pop(number))
            self._worked.pop(number, None)
        self._away = {ref: number for ref, number in self._away.items() if number in self.workers}

    def _pause(self, busy: Set[int]) -> float | None:
        """Return how long to wait for news at most, None for as long as it takes; do what is due by now."""
        until = [at for at in (self._end_idle(busy), self._warn_without_gpu()) if at is not None]
        return max(min(until) - self._clock(), 0.0) if until else None

    def _end_idle(self, busy: Set[int]) -> float | None:
        """Stop workers with a GPU that are not needed any more; return when the next one is due, None if none is."""
        ends = sorted((at + self._gpu.idle_s, -number) for number, at in self._worked.items() if number not in busy)
        ends = ends[: max(len(self._worked) - sum(use.n for use in self._uses), 0)]
        now = self._clock()
        over = [-number for at, number in ends if at <= now]
        if over:
            logger.info("workers with a GPU that have had nothing to do for %g s end: %d", self._gpu.idle_s, len(over))
            self._stop(over)
        return min((at for at, _ in ends if at > now), default=None)

    def _warn_without_gpu(self) -> float | None:
        """Warn if work waits for a GPU; return when to warn next, None if no work waits."""
        if not self._uses or self.available(on_gpu=True):
            self._warn_at = None
            return None
        now = self._clock()
        if self._warn_at is None:
            self._warn_at = now + self._gpu.notice_s
        elif now >= self._warn_at:
            logger.warning(
                "waiting for a GPU: the cluster has %g, and no worker has one yet. The build goes on when a node with "
                "a GPU comes, which takes minutes where a group grows from nothing; Ctrl-C ends it and loses nothing",
                count_gpus(),
            )
            self._warn_at = now + _WARN_AGAIN_S
        return self._warn_at

    def _lose_worker(self, worker: int, error: Exception) -> None:
        if worker in self.workers and worker not in self._away.values():
            self._n_lost += 1
            if self._n_lost > _MAX_LOST_WORKERS:
                check_own_node()
                raise StageFailed(f"workers die as soon as they start: {last_line(error)}") from error
            logger.warning("a worker was lost, what it had to do goes to the others: %s", last_line(error))
            self._forget(worker)
            if worker < self._count:
                self._away[self._when_ready(worker)] = worker  # Ray starts it again
            else:  # as a new one, since Ray would print repeatedly that it cannot start it yet
                ray.kill(self.workers[worker])
                self._start_gpu(worker)

    def _restore_worker(self, ref: Any) -> None:
        worker = self._away.pop(ref)
        try:
            ray.get(ref)
        except ray.exceptions.RayActorError as error:
            self._lose_worker(worker, error)

    def _forward_warning(self, ref: Any) -> None:
        """Log a warning of the coordinator in the driver."""
        try:
            logger.warning("%s", ray.get(ref))
        except ray.exceptions.RayActorError:  # the callers of the coordinator report its loss
            self._warning = []
        else:
            self._warning = [self._listen()]

    def _when_ready(self, worker: int) -> Any:
        return self.workers[worker].ready.options(max_task_retries=-1).remote()


def _lost(unit: Hashable, losses: Counter[Hashable], error: Exception) -> object:
    losses[unit] += 1
    if losses[unit] < _MAX_LOSSES:
        return LOST
    return StageFailed(f"{_MAX_LOSSES} workers died over the same task: {last_line(error)}")
