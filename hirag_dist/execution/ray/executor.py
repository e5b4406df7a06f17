"""The executor: tasks go to the least busy worker; shards are held where they were loaded."""

from __future__ import annotations

import os
import uuid
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from hirag_dist.errors import HiragError
from hirag_dist.execution.ray.cluster import start
from hirag_dist.execution.ray.held import RayHeld
from hirag_dist.execution.ray.treasury import TreasuryActor
from hirag_dist.execution.ray.workers import LOST, Crew, MakeServices, actor
from hirag_dist.execution.task import Task, TaskResult
from hirag_dist.pool.treasury import Treasury
from hirag_dist.stages.base import asks_models

_COMPUTING = 2  # tasks of a worker that compute: one runs, one is ready


class RayExecutor:
    """Implements `ports.Executor`. Starts a Ray of its own unless it is given an address or one is running here.

    The tasks of a worker or node that dies go to the other workers, and it takes part again once it is replaced: a
    task writes its marker last, and replies are in the ledger, so nothing is paid or counted twice.
    """

    name = "ray"

    def __init__(
        self,
        make_services: MakeServices,
        make_treasury: Callable[[], Treasury],
        *,
        workers: int | None = None,
        address: str | None = None,
        in_flight: Callable[[int], int] = lambda n_workers: 4,
        n_cpus: int | None = None,
    ) -> None:
        """Connect, and start the workers.

        Args:
            workers: None for one a CPU of the cluster.
            address: of a running cluster, `auto` for the one of this machine, None for a new one.
            in_flight: number of workers → tasks that each holds at a time where they wait for models; of others two.
            n_cpus: of a new cluster; None for this machine's.

        Raises:
            BackendUnavailable: the cluster is out of reach, or Ray does not start.
        """
        self._owns_ray = not ray.is_initialized()
        if self._owns_ray:
            start(address, max(n_cpus or os.cpu_count() or 1, workers or 1))
        count = workers or max(1, int(ray.cluster_resources().get("CPU", 1)))
        self._in_flight = in_flight(count)
        name = f"treasury-{uuid.uuid4().hex}"  # workers look it up by name: a handle would tie their restart to us
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        self._treasury = (  # lives as we do, and is not started again: what was spent would be forgotten
            actor(TreasuryActor, max_restarts=0)
            .options(name=name, scheduling_strategy=here, num_cpus=0, max_concurrency=10_000)
            .remote(make_treasury)
        )
        self._crew = Crew(make_services, name, count, self._treasury.forget.remote, self._treasury.warning.remote)

    def map(self, tasks: Iterable[Task]) -> Iterator[TaskResult]:
        """Run tasks on the least busy workers, yield results as they come.

        Raises:
            HiragError: a task failed; the others in flight have finished and are stored.
            KeyboardInterrupt: requests that were sent have ended and are stored.
        """
        waiting = iter(tasks)
        lost: list[Task] = []  # with the worker that had them
        losses: Counter[Hashable] = Counter()
        running: dict[Any, tuple[int, Task]] = {}
        load: Counter[int] = Counter()
        failure: HiragError | None = None
        following: Task | None = None
        try:
            while True:
                while failure is None:
                    following = following or (lost.pop() if lost else next(waiting, None))
                    if following is None:
                        break
                    room = self._in_flight if asks_models(following.stage) else _COMPUTING
                    chosen = self._crew.least_busy(load, room)
                    if chosen is None:
                        break
                    running[self._crew.workers[chosen].run.remote(following)] = chosen, following
                    load[chosen] += 1
                    following = None
                if not running and (following is None or failure is not None):
                    break
                for ref in self._crew.first_of(running):
                    chosen, task = running.pop(ref)
                    load[chosen] -= 1
                    outcome = self._crew.outcome(ref, chosen, task.number, losses)
                    if outcome is LOST:
                        lost.append(task)
                    elif isinstance(outcome, HiragError):
                        failure = failure or outcome
                    elif failure is None:
                        yield outcome
        finally:
            if running:  # the driver itself has failed: what was sent ends and is stored before that rises
                for ref in running:
                    ray.cancel(ref)
                ray.wait(list(running), num_returns=len(running))
        if failure is not None:
            raise failure

    @contextmanager
    def hold(self, load: Callable[[Any, Any], Any], shards: Sequence[Any], keep: bool = True) -> Iterator[RayHeld]:
        """Lend shards that stay in the workers, spread evenly over those that are there."""
        held = RayHeld(self._crew, load, shards, keep)
        try:
            yield held
        finally:
            held.drop()

    def charge(self, tokens: int, usd: float) -> None:
        """Count what was spent outside of tasks."""
        ray.get(self._treasury.charge.remote(tokens, usd))

    def close(self) -> None:
        """Stop the workers, and the Ray that this executor started."""
        self._crew.close()
        ray.kill(self._treasury)
        if self._owns_ray:
            ray.shutdown()
