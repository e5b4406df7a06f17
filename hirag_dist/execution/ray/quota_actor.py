"""Quota actor: the cluster's one quota coordinator and its key locks, and the client with which workers call it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any

import ray

from hirag_dist.errors import HiragError, StageFailed
from hirag_dist.execution.ray.cluster import last_line
from hirag_dist.llm.key_locks import KeyLockTable, LockReply
from hirag_dist.llm.limits import protocol
from hirag_dist.llm.limits.coordinator import QuotaCoordinator
from hirag_dist.llm.limits.protocol import CallDemand, CallTotals, Grant, WorkerReport

ACTOR_PREFIX = "quota-coordinator-"  # of the names under which workers find the actor


class RemoteQuotaCoordinator:
    """The quota coordinator's actor, as a worker calls it. Implements `QuotaClient` and `KeyLockClient` of `llm`."""

    def __init__(self, actor: Any) -> None:
        self._actor = actor

    async def acquire(
        self, worker: str, endpoint: str, report: WorkerReport, demand: tuple[CallDemand, ...] = (), priority: int = 0
    ) -> Grant:
        """As `QuotaCoordinator.acquire`."""
        grant: Grant = await self._answer(self._actor.acquire.remote(worker, endpoint, report, demand, priority))
        return grant

    async def leave(self, worker: str) -> None:
        """As `QuotaCoordinator.leave`."""
        await self._answer(self._actor.leave.remote(worker))

    async def lock_keys(self, worker: str, n_refreshed: int, keys: Sequence[str], released: Sequence[str]) -> LockReply:
        """As `KeyLockTable.lock`, after `KeyLockTable.release`."""
        reply: LockReply = await self._answer(self._actor.lock_keys.remote(worker, n_refreshed, keys, released))
        return reply

    async def _answer(self, ref: Any) -> Any:
        try:
            answer = await ref
        except ray.exceptions.RayActorError as error:
            text = "the actor that holds the budget is gone; run again to go on from here"
            raise StageFailed(f"{text} ({last_line(error)})") from error
        if isinstance(answer, HiragError):
            raise answer
        return answer


class DeclaredDead(StageFailed):
    """This worker was declared dead, and its permits were returned."""


_DECLARED_DEAD = DeclaredDead("this worker was declared dead")


class _Warnings(logging.Handler):
    """Queues warnings until the driver asks for them."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: asyncio.Queue[str] = asyncio.Queue()

    def emit(self, record: logging.LogRecord) -> None:
        """Queue a message."""
        self.messages.put_nowait(record.getMessage())


class QuotaActor:
    """The actor of the quota coordinator. It knows each worker's present name, so that a dead one's permits return.

    A worker's name is `<number>/<id>`, with a new id after each restart.
    """

    def __init__(self, make_coordinator: Callable[[], QuotaCoordinator]) -> None:
        self._coordinator = make_coordinator()
        self._key_locks = KeyLockTable()
        self._warnings = _Warnings()
        logging.getLogger(protocol.__name__).addHandler(self._warnings)
        self._names: dict[str, str] = {}  # worker number → its present name
        self._dead: set[str] = set()

    async def acquire(
        self, worker: str, endpoint: str, report: WorkerReport, demand: tuple[CallDemand, ...] = (), priority: int = 0
    ) -> Grant | HiragError:
        """As `QuotaCoordinator.acquire`; an error is returned."""
        if await self._is_dead(worker):
            return _DECLARED_DEAD
        try:
            return await self._coordinator.acquire(worker, endpoint, report, demand, priority)
        except HiragError as error:
            return error
        except asyncio.CancelledError:
            if worker in self._dead:  # its demand was cancelled meanwhile, not this call
                return _DECLARED_DEAD
            raise

    async def leave(self, worker: str) -> None:
        """As `QuotaCoordinator.leave`; the worker's key locks are released too."""
        self._key_locks.leave(worker)
        await self._coordinator.leave(worker)

    async def lock_keys(
        self, worker: str, n_refreshed: int, keys: Sequence[str], released: Sequence[str]
    ) -> LockReply | HiragError:
        """As `RemoteQuotaCoordinator.lock_keys`; an error is returned."""
        if await self._is_dead(worker):
            return _DECLARED_DEAD
        self._key_locks.release(worker, released)
        return self._key_locks.lock(worker, n_refreshed, keys)

    async def totals(self) -> CallTotals:
        """As `QuotaCoordinator.totals`."""
        return self._coordinator.totals()

    async def warning(self) -> str:
        """Wait for the next warning of the coordinator: the log of an actor is not shown."""
        return await self._warnings.messages.get()

    async def forget(self, worker: int) -> None:
        """Take back the permits and key locks of a dead worker."""
        name = self._names.pop(str(worker), None)
        if name is not None:
            self._dead.add(name)
            await self.leave(name)

    async def _is_dead(self, worker: str) -> bool:
        """Return whether a worker was declared dead; remember its name otherwise."""
        if worker in self._dead:
            return True
        number = worker.partition("/")[0]
        before = self._names.get(number)
        if before != worker:
            if before is not None:
                self._dead.add(before)
                await self.leave(before)
            self._names[number] = worker
        return False
