"""A worker of a cluster: the actor that runs tasks and holds shards."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ray

from hirag_dist.errors import HiragError
from hirag_dist.execution.process_memory import return_freed_memory
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
