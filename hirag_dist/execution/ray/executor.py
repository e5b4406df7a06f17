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
from hirag_dist.execution.ray.cluster import check_gpus, count_cpus, start, stop
from hirag_dist.execution.ray.quota_actor import ACTOR_PREFIX, QuotaActor
from hirag_dist.execution.ray.resident_shards import RayResidentShards
from hirag_dist.execution.ray.worker_pool import LOST, GpuWorkers, PoolLease, WorkerPool
from hirag_dist.execution.ray.workers import MakeServices, actor
from hirag_dist.execution.stage import kernels_of, waits_for_models
from hirag_dist.execution.task import Task, TaskResult
from hirag_dist.llm.limits.coordinator import QuotaCoordinator
from hirag_dist.llm.limits.protocol import CallTotals
from hirag_dist.protocols import CPU

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
        n_cpus: int | None = None,
        gpu: GpuWorkers | None = None,
    ) -> None:
        """Connect, and start the workers; those with a GPU when there is work for them.

        Args:
            workers: that do all work, or all but what `gpu` is for; None for one a CPU of the cluster, without the
                nodes that have a GPU where there is `gpu`.
            address: of a running cluster, `auto` for the one of this machine, None for a new one.
            in_flight: number of workers → tasks that each holds at a time where they wait for models; of others two.
            n_cpus: of a new cluster; None for this machine's.
            gpu: workers that do what kernels of a GPU compute, and nothing else.

        Raises:
            BackendUnavailable: the cluster is out of reach, or Ray does not start, or there can be no GPU.
        """
        self._owns_ray = not ray.is_initialized()
        if self._owns_ray:
            start(address, max(n_cpus or os.cpu_count() or 1, workers or 1))
        on_gpu = gpu is not None and gpu.count > 0
        if on_gpu and self._owns_ray and address is None:
            try:
                check_gpus()
            except HiragError:
                stop()
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
        """Run tasks on the least busy workers, yield results as they come.

        Raises:
            HiragError: a task failed; the others in flight have finished and are stored.
            KeyboardInterrupt: requests that were sent have ended and are stored.
        """
        pending = iter(tasks)
        first = next(pending, None)
        if first is None:
            return
        on_gpu = _needs_gpu(first)
        ahead = [
            first,
            *islice(pending, self._pool.size(on_gpu) - 1 if on_gpu else 0),
        ]  # as many as workers can be used
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
            if (
                running
            ):  # the driver itself has failed: requests that were sent end and are stored before its error is raised
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
            stop()


def _needs_gpu(task: Task) -> bool:
    """Return whether a task computes on the kernels of a GPU; a task of a first pass does not."""
    return task.scatter is None and kernels_of(task.stage) != CPU
