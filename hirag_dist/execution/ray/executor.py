"""The executor: tasks go to the least busy worker; shards are held where they were loaded."""

from __future__ import annotations

import os
import uuid
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import chain, islice
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from hirag_dist.errors import HiragError
from hirag_dist.execution.ray.cluster import check_gpus, count_cpus, start
from hirag_dist.execution.ray.quota_actor import ACTOR_PREFIX, QuotaActor
from hirag_dist.execution.ray.worker_pool import LOST, GpuWorkers, MakeServices, PoolLease, ShardStep, WorkerPool, actor
from hirag_dist.execution.stage import kernels_of, waits_for_models
from hirag_dist.execution.task import Task, TaskResult
from hirag_dist.llm.limits.coordinator import QuotaCoordinator
from hirag_dist.llm.limits.protocol import CallTotals
from hirag_dist.protocols import CPU

_STEPS = 2  # of a worker at a time: one runs, one is ready
_PREFETCH = 4  # steps for each worker beyond the awaited one; results that come early wait in Ray's store


class RayResidentShards:
    """Implements `protocols.ResidentShards`. Each shard has a home, the worker that loaded it.

    The shards of a worker that died are loaded by others. Every call names its shard and how to load it, so that a
    worker that was started again needs no bookkeeping. Results wait in Ray's store until it is their turn: the driver
    has one at a time.
    """

    def __init__(
        self, pool: WorkerPool, load: Callable[[Any, Any], Any], shards: Sequence[Any], keep: bool, on_gpu: bool
    ) -> None:
        self._pool = pool
        self._load = load
        self._shards = shards
        self._keep = keep
        self._on_gpu = on_gpu
        self._name = uuid.uuid4().hex
        self._homes: dict[int, int] = {}

    def each(self, step: Callable[[Any, Any, Any], Any], argument: Any) -> Iterator[Any]:
        """Do a step on every shard, yield the results in the order of the shards.

        Raises:
            HiragError: a step failed; the others in flight have ended.
        """
        self._rebalance()
        max_ahead = _PREFETCH * self._pool.size(self._on_gpu)
        return _ShardPass(self, self._pool, len(self._shards), max_ahead, step, argument).results()

    def drop(self) -> None:
        """Release the shards."""
        for worker in self.available():
            self._pool.workers[worker].drop.remote(self._name)

    def available(self) -> list[int]:
        """Return the workers that can hold shards."""
        return self._pool.available(self._on_gpu)

    def begin(self, worker: int, number: int, step: Callable[[Any, Any, Any], Any], argument: Any) -> list[Any]:
        """Start a step on a shard; return references to its status and its result."""
        work = ShardStep(self._name, number, self._shards[number], self._load, self._keep, step)
        refs: list[Any] = self._pool.workers[worker].step.options(num_returns=2).remote(work, argument)
        return refs

    def _rebalance(self) -> None:
        """Spread shards evenly over the workers that are there: some may have come since."""
        available = self.available()
        if not available:
            return
        max_per_worker = -(-len(self._shards) // len(available))
        kept: Counter[int] = Counter()
        for number, worker in sorted(self._homes.items()):
            if worker in available and kept[worker] < max_per_worker:
                kept[worker] += 1
                continue
            del self._homes[number]
            if worker in available and self._keep:
                self._pool.workers[worker].drop.remote(self._name, number)

    def home(self, number: int, load: Counter[int]) -> int | None:
        """Return the worker of a shard, or None if no worker is alive.

        A shard without a worker is given to one of those that hold the fewest shards.
        """
        available = self.available()
        if self._homes.get(number) not in available:
            if not available:
                return None
            held = Counter(self._homes.values())
            self._homes[number] = min(available, key=lambda n: (held[n], load[n], n))
        return self._homes[number]

    def lose(self, worker: int) -> None:
        """Note that a worker holds nothing more."""
        for number in [number for number, home in self._homes.items() if home == worker]:
            del self._homes[number]


class _ShardPass:
    """One step on every shard."""

    def __init__(
        self,
        held: RayResidentShards,
        pool: WorkerPool,
        n_shards: int,
        max_ahead: int,
        step: Callable[[Any, Any, Any], Any],
        argument: Any,
    ) -> None:
        self._held = held
        self._pool = pool
        self._step = step
        self._argument = ray.put(argument)
        self._pending = list(range(n_shards))
        self._running: dict[Any, tuple[int, int, Any]] = {}  # the call's status → worker, shard, result
        self._done: dict[int, tuple[int, Any]] = {}  # shard → worker, result
        self._load: Counter[int] = Counter()
        self._losses: Counter[Hashable] = Counter()
        self._failure: HiragError | None = None
        self._n_shards = n_shards
        self._max_ahead = max_ahead
        self._turn = 0

    def results(self) -> Iterator[Any]:
        """Yield them in order."""
        try:
            while self._turn < self._n_shards:
                if self._failure is None:
                    self._send()
                elif not self._running:
                    raise self._failure
                self._collect()
                while self._failure is None and self._turn in self._done:
                    worker, result = self._done.pop(self._turn)
                    outcome = self._pool.outcome(result, worker, self._turn, self._losses)
                    del result  # Ray may free it
                    if not self._has_failed(outcome, self._turn):
                        self._turn += 1
                        yield outcome
        finally:
            if self._running:  # the driver itself has failed, or stopped iterating
                for status in self._running:
                    ray.cancel(status)
                ray.wait(list(self._running), num_returns=len(self._running))

    def _send(self) -> None:
        """Give workers that have room their next shards, not far ahead of the one whose turn it is."""
        end = self._turn + self._max_ahead
        for number in [number for number in self._pending[: end - self._turn] if number < end]:
            worker = self._held.home(number, self._load)
            if worker is None:
                return
            if self._load[worker] < _STEPS:
                self._pending.remove(number)
                self._load[worker] += 1
                status, result = self._held.begin(worker, number, self._step, self._argument)
                self._running[status] = worker, number, result

    def _collect(self) -> None:
        """Wait until something has happened, and note which steps are done."""
        for status in self._pool.first_of(self._running):
            worker, number, result = self._running.pop(status)
            self._load[worker] -= 1
            outcome = self._pool.outcome(status, worker, number, self._losses)
            if outcome is LOST:
                self._held.lose(worker)
            if not self._has_failed(outcome, number):
                self._done[number] = worker, result

    def _has_failed(self, outcome: Any, number: int) -> bool:
        """Note a lost or failed step; return whether it is one of these."""
        if outcome is LOST:
            self._pending = sorted([*self._pending, number])
        elif isinstance(outcome, HiragError):
            self._failure = self._failure or outcome
        else:
            return False
        return True


_TOTALS_S = 5.0
_COMPUTING = 2  # tasks of a worker that compute: one runs, one is ready


class RayExecutor:
    """Implements `protocols.Executor`. Starts a Ray of its own unless it is given an address or one is running here.

    The tasks of a worker or node that dies go to the other workers, and it takes part again once it is replaced: a
    task writes its marker last, and replies are in the ledger, so nothing is paid or counted twice.
    """

    name = "ray"

    def __init__(
        self,
        make_services: MakeServices,
        make_coordinator: Callable[[], QuotaCoordinator],
        *,
        workers: int | None = None,
        address: str | None = None,
        in_flight: Callable[[int], int] = lambda n_workers: 4,
        gpu: GpuWorkers | None = None,
    ) -> None:
        """Connect, and start the workers; those with a GPU when there is work for them.

        Args:
            workers: that do all work, or all but what `gpu` is for; None for one a CPU of the cluster, without the
                nodes that have a GPU where there is `gpu`.
            address: of a running cluster, `auto` for the one of this machine, None for a new one.
            in_flight: number of workers → tasks that each holds at a time where they wait for models; of others two.
            gpu: workers that do what kernels of a GPU compute, and nothing else.

        Raises:
            BackendUnavailable: the cluster is out of reach, or Ray does not start, or there can be no GPU.
        """
        self._owns_ray = not ray.is_initialized()
        if self._owns_ray:
            start(address, max(os.cpu_count() or 1, workers or 1))
        on_gpu = gpu is not None and gpu.count > 0
        if on_gpu and self._owns_ray and address is None:
            try:
                check_gpus()
            except HiragError:
                ray.shutdown()
                raise
        count = workers or max(1, count_cpus(beside_gpus=on_gpu))
        self._in_flight = in_flight(count)
        name = f"{ACTOR_PREFIX}{uuid.uuid4().hex}"  # workers look the actor up by name, to restart without this process
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        self._coordinator = (  # never restarted: the usage so far would be lost
            actor(QuotaActor, max_restarts=0)
            .options(name=name, scheduling_strategy=here, num_cpus=0, max_concurrency=10_000)
            .remote(make_coordinator)
        )
        self._totals = CallTotals()
        forget, listen = self._coordinator.forget.remote, self._coordinator.warning.remote
        self._pool = WorkerPool(make_services, name, count, forget, listen, gpu)

    def map(self, tasks: Iterable[Task]) -> Iterator[TaskResult]:
        """Run tasks on the least busy workers, yield results as they come."""
        pending = iter(tasks)
        first = next(pending, None)
        if first is None:
            return
        on_gpu = _needs_gpu(first)
        n_ahead = self._pool.size(on_gpu) if on_gpu else 1  # as many as workers can be used
        ahead = [first, *islice(pending, n_ahead - 1)]
        with self._pool.using(len(ahead), on_gpu) as use:
            yield from self._map(chain(ahead, pending), use)

    def _map(self, pending: Iterator[Task], use: PoolLease) -> Iterator[TaskResult]:
        lost: list[Task] = []  # together with their worker
        losses: Counter[Hashable] = Counter()
        running: dict[Any, tuple[int, Task]] = {}
        load: Counter[int] = Counter()
        failure: HiragError | None = None
        next_task: Task | None = None
        try:
            while True:
                while failure is None:
                    next_task = next_task or (lost.pop() if lost else next(pending, None))
                    if next_task is None:
                        break
                    room = self._in_flight if waits_for_models(next_task.stage) else _COMPUTING
                    chosen = self._pool.least_busy(load, room, _needs_gpu(next_task))
                    if chosen is None:
                        break
                    running[self._pool.workers[chosen].run.remote(next_task)] = chosen, next_task
                    load[chosen] += 1
                    next_task = None
                if next_task is None:
                    use.n = len(running)  # nothing else is pending: idle workers are not needed any more
                if not running and (next_task is None or failure is not None):
                    break
                for ref in self._pool.first_of(running):
                    chosen, task = running.pop(ref)
                    load[chosen] -= 1
                    outcome = self._pool.outcome(ref, chosen, task.number, losses)
                    if outcome is LOST:
                        lost.append(task)
                    elif isinstance(outcome, HiragError):
                        failure = failure or outcome
                    elif failure is None:
                        yield outcome
        finally:
            if running:  # the driver itself has failed: what was sent ends and is stored before its error is raised
                for ref in running:
                    ray.cancel(ref)
                ray.wait(list(running), num_returns=len(running))
        if failure is not None:
            raise failure

    @contextmanager
    def hold(
        self, load: Callable[[Any, Any], Any], shards: Sequence[Any], keep: bool = True, kernels: str = CPU
    ) -> Iterator[RayResidentShards]:
        """Lend shards that stay in the workers, spread evenly over those that are there."""
        on_gpu = kernels != CPU
        held = RayResidentShards(self._pool, load, shards, keep, on_gpu)
        with self._pool.using(len(shards), on_gpu):
            try:
                yield held
            finally:
                held.drop()

    def call_totals(self) -> CallTotals:
        """Return the calls of all workers so far; where the coordinator does not reply, those of the last time."""
        with suppress(ray.exceptions.RayError):
            if not ray.is_initialized():  # shut down by other code: a call of Ray would start another one
                return self._totals
            self._totals = ray.get(self._coordinator.totals.remote(), timeout=_TOTALS_S)
        return self._totals

    def release_idle(self) -> None:
        """End the workers that have a GPU each; the next work for them starts them again."""
        self._pool.release_idle()

    def close(self) -> None:
        """Stop the workers, and the Ray that this executor started.

        Where Ray was shut down by other code, the workers are gone: a call of Ray would start another one.
        """
        if ray.is_initialized():
            self._pool.close()
            ray.kill(self._coordinator)
        if self._owns_ray:
            ray.shutdown()


def _needs_gpu(task: Task) -> bool:
    """Return whether a task computes on the kernels of a GPU; a task of a first pass does not."""
    return task.scatter is None and kernels_of(task.stage) != CPU
