"""The cluster's one treasury: the actor that holds it, and how workers ask it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import ray

from hirag_dist.errors import HiragError, StageFailed
from hirag_dist.execution.ray.cluster import last_line
from hirag_dist.llm.limits.coordinator import QuotaCoordinator
from hirag_dist.llm.limits.protocol import Lease, LeaseAdjustment, LeaseDemand, UsageReport, WorkerUsage

ACTOR_PREFIX = "quota-coordinator-"  # of the names under which workers find the actor


class RemoteQuotaCoordinator:
    """The cluster's one treasury, asked from a worker. Implements `llm.limits.client.Lender`."""

    def __init__(self, actor: Any) -> None:
        self._actor = actor

    async def ask(
        self, holder: str, endpoint: str, state: WorkerUsage, want: LeaseDemand, events: UsageReport
    ) -> Lease:
        """As `QuotaCoordinator.ask`."""
        answer = await self._reached(self._actor.ask.remote(holder, endpoint, state, want, events))
        if isinstance(answer, HiragError):
            raise answer
        loan: Lease = answer
        return loan

    async def tell(self, holder: str, endpoint: str, state: WorkerUsage, events: UsageReport) -> LeaseAdjustment:
        """As `QuotaCoordinator.tell`."""
        answer = await self._reached(self._actor.tell.remote(holder, endpoint, state, events))
        if isinstance(answer, HiragError):
            raise answer
        order: LeaseAdjustment = answer
        return order

    async def leave(self, holder: str) -> None:
        """As `QuotaCoordinator.leave`."""
        await self._reached(self._actor.leave.remote(holder))

    async def _reached(self, ref: Any) -> Any:
        try:
            return await ref
        except ray.exceptions.RayActorError as error:
            said = "the actor that holds the budget is gone; run again to go on from here"
            raise StageFailed(f"{said} ({last_line(error)})") from error


class DeclaredDead(StageFailed):
    """This worker was taken for dead, and what it was lent has gone back."""


_TAKEN_FOR_DEAD = DeclaredDead("this worker was taken for dead")


class _Warnings(logging.Handler):
    """Keeps what is logged until it is asked for."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.said: asyncio.Queue[str] = asyncio.Queue()

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a message."""
        self.said.put_nowait(record.getMessage())


class QuotaActor:
    """Holds the treasury, and knows which worker lives under which name, so that the loans of a dead one return."""

    def __init__(self, make_treasury: Callable[[], QuotaCoordinator]) -> None:
        self._treasury = make_treasury()
        self._warnings = _Warnings()
        logging.getLogger(QuotaCoordinator.__module__).addHandler(self._warnings)
        self._lives: dict[str, str] = {}  # worker → its present name as a holder
        self._gone: set[str] = set()
        self._n_asks = self._n_tells = 0

    async def handled(self) -> tuple[int, int]:
        """Return how many questions and reports came so far."""
        return self._n_asks, self._n_tells

    async def ask(
        self, holder: str, endpoint: str, state: WorkerUsage, want: LeaseDemand, events: UsageReport
    ) -> Lease | HiragError:
        """As `QuotaCoordinator.ask`, an error as the answer."""
        self._n_asks += 1
        if await self._is_gone(holder):
            return _TAKEN_FOR_DEAD
        try:
            return await self._treasury.ask(holder, endpoint, state, want, events)
        except HiragError as error:
            return error
        except asyncio.CancelledError:
            if holder in self._gone:  # its question was turned away meanwhile; nobody ended this call
                return _TAKEN_FOR_DEAD
            raise

    async def tell(
        self, holder: str, endpoint: str, state: WorkerUsage, events: UsageReport
    ) -> LeaseAdjustment | HiragError:
        """As `QuotaCoordinator.tell`, an error as the answer."""
        self._n_tells += 1
        if await self._is_gone(holder):
            return _TAKEN_FOR_DEAD
        return await self._treasury.tell(holder, endpoint, state, events)

    async def leave(self, holder: str) -> None:
        """As `QuotaCoordinator.leave`."""
        await self._treasury.leave(holder)

    async def charge(self, tokens: int, usd: float) -> None:
        """As `QuotaCoordinator.charge`."""
        self._treasury.charge(tokens, usd)

    async def warning(self) -> str:
        """Return the next thing that the treasury warns of, once there is one: what is logged here nobody reads."""
        return await self._warnings.said.get()

    async def forget(self, worker: int) -> None:
        """Take back what a dead worker held."""
        holder = self._lives.pop(str(worker), None)
        if holder is not None:
            self._gone.add(holder)
            await self._treasury.leave(holder)

    async def _is_gone(self, holder: str) -> bool:
        """Whether a worker was taken for dead; it may not use what went back. Notes who lives."""
        if holder in self._gone:
            return True
        worker = holder.partition("/")[0]
        before = self._lives.get(worker)
        if before != holder:
            if before is not None:
                self._gone.add(before)
                await self._treasury.leave(before)
            self._lives[worker] = holder
        return False
