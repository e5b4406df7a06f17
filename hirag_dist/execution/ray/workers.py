"""The workers of a cluster: the actor that one is, and which of them are there."""

from __future__ import annotations

import logging
import uuid
from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import ray

from hirag_dist.errors import HiragError, StageFailed
from hirag_dist.execution.ray.cluster import last_line
from hirag_dist.execution.ray.treasury import RemoteTreasury, TakenForDead
from hirag_dist.execution.task import Task, TaskResult, one_thread, run_task
from hirag_dist.pool.budget import Lender
from hirag_dist.stages.base import Services

log = logging.getLogger(__name__)
_CLOSE_S = 30.0
_MOST_LOST_WORKERS = 100  # without one piece of work being done
_MOST_LOSSES = 5  # a piece of work that took so many workers with it is to blame itself
MakeServices = Callable[[Lender, str], Services]


@dataclass(frozen=True, slots=True)
class ShardStep:
    """A step on a shard (`ports.Held`), as a worker is asked for it.

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

    def __init__(self, make_services: MakeServices, treasury_name: str, number: int) -> None:
        self._make_services = make_services
        self._treasury_name = treasury_name
        self._number = number
        self._services: Services | None = None
        self._held: dict[tuple[str, int], Any] = {}

    async def ready(self) -> None:
        """Answer: this worker is there."""

    async def run(self, task: Task) -> TaskResult | HiragError:
        """Run a task; an error of ours is the answer."""
        services: Services | None = None
        try:
            services = self._made_services()
            return await run_task(task, services)
        except TakenForDead:  # by mistake: it begins a new life with nothing lent
            if self._services is services:
                self._services = None
            return await self.run(task)
        except HiragError as error:
            return error

    async def step(self, work: ShardStep, argument: Any) -> tuple[HiragError | None, Any]:
        """Do a step on a shard, which is loaded where it is not here; return (error of ours, result)."""
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
        """Let go of the shards of a hold, or of one of them."""
        for key in [key for key in self._held if key[0] == hold and number in (None, key[1])]:
            del self._held[key]

    async def close(self) -> None:
        """Let what is on its way arrive, and let go of connections."""
        if self._services is not None:
            await self._services.close()

    def _made_services(self) -> Services:
        if self._services is None:  # built here: clients and device handles do not pickle
            lender = RemoteTreasury(ray.get_actor(self._treasury_name))
            self._services = self._make_services(lender, f"{self._number}/{uuid.uuid4().hex}")
        return self._services


class Lost:
    """What became of work whose worker died: it is to be done again."""


LOST = Lost()


class Crew:
    """The workers of an executor, and which of them are there.

    A worker that dies is given no work until it is there again: its node may never be, and the others go on.
    """

    def __init__(
        self,
        make_services: MakeServices,
        treasury_name: str,
        count: int,
        forget: Callable[[int], object],
        listen: Callable[[], Any],
    ) -> None:
        """Start `count` workers.

        Args:
            forget: told the number of each that dies.
            listen: begins a call that ends with the next warning of what they share.
        """
        kind = actor(Worker).options(num_cpus=1)
        self.workers = [kind.remote(make_services, treasury_name, n) for n in range(count)]
        self._forget = forget
        self._listen = listen
        self._warning: list[Any] = [listen()]  # empty once there is nobody to warn
        self._n_lost = 0
        # A call that ends when the worker is there → the worker. A busy cluster may have no room for some yet.
        self._away: dict[Any, int] = {self._when_ready(n): n for n in range(count)}

    def there(self) -> list[int]:
        """Return the numbers of the workers that can be given work."""
        away = set(self._away.values())
        return [n for n in range(len(self.workers)) if n not in away]

    def least_busy(self, load: Mapping[int, int], room: int) -> int | None:
        """Return a worker that is there and has less than `room` to do, None where there is none."""
        free = [n for n in self.there() if load[n] < room]
        return min(free, key=lambda n: (load[n], n), default=None)

    def first_of(self, running: Mapping[Any, object]) -> list[Any]:
        """Wait until something happened; return those of the calls that ended, which may be none."""
        try:
            done, _ = ray.wait([*running, *self._away, *self._warning], num_returns=1)
        except KeyboardInterrupt:
            log.warning("interrupted: waiting for the replies in flight; Ctrl-C again drops them")
            raise
        for ref in done:
            if ref in self._away:
                self._come_back(ref)
            elif ref in self._warning:
                self._pass_on(ref)
        return [ref for ref in done if ref in running]

    def outcome(self, ref: Any, worker: int, unit: Hashable, losses: Counter[Hashable]) -> Any:
        """Return what a call gave: its value, an error of ours, or LOST where the worker died.

        Args:
            unit: of work, which is to blame itself where workers keep dying over it.
            losses: workers that died over each.
        """
        try:
            value = ray.get(ref)
        except ray.exceptions.RayActorError as error:
            self._go_away(worker, error)
            return _lost(unit, losses, error)
        except ray.exceptions.ObjectLostError as error:  # the worker gave it, and its node died before we had it
            return _lost(unit, losses, error)
        except ray.exceptions.RayError as error:
            return StageFailed(f"a worker failed: {last_line(error)}")
        self._n_lost = 0
        return value

    def close(self) -> None:
        """Stop the workers."""
        there = [self.workers[n].close.remote() for n in self.there()]
        if there:
            ray.wait(there, num_returns=len(there), timeout=_CLOSE_S)
        for worker in self.workers:
            ray.kill(worker)

    def _go_away(self, worker: int, error: Exception) -> None:
        if worker not in self._away.values():
            self._n_lost += 1
            if self._n_lost > _MOST_LOST_WORKERS:
                raise StageFailed(f"workers die as soon as they start: {last_line(error)}") from error
            log.warning("a worker was lost, what it had to do goes to the others: %s", last_line(error))
            self._forget(worker)
            self._away[self._when_ready(worker)] = worker

    def _come_back(self, ref: Any) -> None:
        worker = self._away.pop(ref)
        try:
            ray.get(ref)
        except ray.exceptions.RayActorError as error:
            self._go_away(worker, error)

    def _pass_on(self, ref: Any) -> None:
        """Log a warning where the run is watched."""
        try:
            log.warning("%s", ray.get(ref))
        except ray.exceptions.RayActorError:  # who needs what is gone will say so
            self._warning = []
        else:
            self._warning = [self._listen()]

    def _when_ready(self, worker: int) -> Any:
        return self.workers[worker].ready.options(max_task_retries=-1).remote()


def _lost(unit: Hashable, losses: Counter[Hashable], error: Exception) -> Lost | StageFailed:
    losses[unit] += 1
    if losses[unit] < _MOST_LOSSES:
        return LOST
    return StageFailed(f"{_MOST_LOSSES} workers died over the same task: {last_line(error)}")


def actor(kind: type, max_restarts: int = -1) -> Any:
    """Return a class as an actor, started again whenever it dies by default; Ray's types cannot say what it takes."""
    return ray.remote(max_restarts=max_restarts)(kind)
