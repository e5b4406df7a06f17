"""Permission to call an endpoint, as one worker has it: out of what the treasury lent it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

from hirag_dist.errors import ModelUnavailable, RateLimited, TimedOut
from hirag_dist.llm.call import Call, CallReply, CallTarget
from hirag_dist.llm.limits.worker import EndpointLimiter, Permit, QuotaClient

__all__ = ["EndpointPaused", "Permit", "QuotaClient", "RateLimiter"]
_LONG_PAUSE_S = 5.0  # an endpoint that asks for a longer pause is passed over if another is available
P = TypeVar("P")
R = TypeVar("R")


class EndpointPaused(RateLimited):
    """The endpoint asked for a long pause while the call was waiting; the call was not sent."""


class RateLimiter:
    """Lends its calls what the treasury lent to it. One instance serves one event loop."""

    def __init__(
        self,
        lender: QuotaClient,
        holder: str = "",
        spending: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin with nothing.

        Args:
            holder: names this worker's life; a worker that was started again is another holder.
            spending: whether the run has a spending limit, so that what calls can cost has to be known well.
        """
        self._lender, self._holder, self._clock = lender, holder, clock
        self.spending = spending
        self.long_pause_s = _LONG_PAUSE_S
        self._loop: asyncio.AbstractEventLoop | None = None
        self._n_loops = 0
        self._leaving: asyncio.Task[None] | None = None
        self._desks: dict[str, EndpointLimiter] = {}

    async def send(self, call: Call[P, R], target: CallTarget[P, R]) -> CallReply[R]:
        """Send a call once it has a permit: the layer between retries and the endpoint.

        Raises:
            EndpointPaused: the endpoint asked for a long pause meanwhile; another one may be available.
            BudgetReached: the call could pass a spending limit of the run.
            ModelError: as the endpoint raises it.
        """
        permit = await self._permit(call, target)
        call.mark_sent(self._clock())
        try:
            reply = await target.send(call)
        except RateLimited as error:
            call.in_flight = False
            permit.limited(error.retry_after_s, error.kind)
            raise
        except BaseException as error:
            call.in_flight = False
            # The bill may include a call whose connection was lost: it counts as the most that it can cost.
            billed = isinstance(error, ModelUnavailable) and error.was_sent
            permit.failed(slow=isinstance(error, TimedOut), billed=billed)
            raise
        if reply.rate_limits is not None:
            self.on_rate_limits(target.endpoint, reply.rate_limits.requests, reply.rate_limits.tokens)
        permit.answered(reply.tokens, reply.usd)
        return reply

    async def _permit(self, call: Call[P, R], target: CallTarget[P, R]) -> Permit:
        max_tokens, max_usd = target.max_use(call)
        turn = self.queue(target.endpoint, call.tokens, max_usd, call.priority, max_tokens)
        try:
            while not turn.done():
                await asyncio.wait({turn}, timeout=self.long_pause_s)
                if not turn.done() and self.pause_s(target.endpoint) > self.long_pause_s:
                    pause_s = self.pause_s(target.endpoint)
                    raise EndpointPaused(f"endpoint {target.endpoint} asks to be left alone for {pause_s:.0f} s")
            return turn.result()
        except (asyncio.CancelledError, EndpointPaused):
            self.give_up(target.endpoint, turn)
            raise

    async def acquire(
        self, endpoint: str, tokens: int, usd: float, priority: int = 0, max_tokens: int | None = None
    ) -> Permit:
        """Wait for this call's turn; the lower `priority` goes first.

        Args:
            tokens: what it will use, as far as can be told; for the endpoint's pace.
            usd, max_tokens: what it can use, for spending limits; `tokens` where the second is not given.

        Raises:
            BudgetReached: it could pass a spending limit of the run.
        """
        turn = self.queue(endpoint, tokens, usd, priority, max_tokens)
        try:
            return await turn
        except asyncio.CancelledError:
            self.give_up(endpoint, turn)
            raise

    def queue(
        self, endpoint: str, tokens: int, usd: float, priority: int = 0, max_tokens: int | None = None
    ) -> asyncio.Future[Permit]:
        """Return what `acquire` waits for. Whoever does not wait for it to the end has to `give_up`."""
        most = tokens if max_tokens is None else max_tokens
        return self._desk(endpoint).queue(tokens, most, usd, priority)

    def give_up(self, endpoint: str, turn: asyncio.Future[Permit]) -> None:
        """Leave the queue, or end the permission that came meanwhile."""
        self._desk(endpoint).give_up(turn)

    def load(self, endpoint: str) -> int:
        """Return the calls in flight and waiting here."""
        desk = self._desk(endpoint)
        return desk.busy + desk.n_waiting

    def pause_s(self, endpoint: str) -> float:
        """Return for how long the endpoint asked to be left alone, as far as this worker knows."""
        return self._desk(endpoint).pause_s()

    def on_rate_limits(self, endpoint: str, requests_a_minute: float | None, tokens_a_minute: float | None) -> None:
        """The endpoint's headers named its limits."""
        self._desk(endpoint).on_rate_limits(requests_a_minute, tokens_a_minute)

    def close(self) -> None:
        """Stop reporting and asking; nobody waits any more."""
        for desk in self._desks.values():
            desk.close()

    @property
    def _name(self) -> str:
        return f"{self._holder}~{self._n_loops}" if self._n_loops else self._holder

    def _desk(self, endpoint: str) -> EndpointLimiter:
        loop = asyncio.get_running_loop()
        if self._loop is not loop:  # what was lent to calls of a loop that has ended is of no use here
            if self._loop is not None:
                self._leaving = loop.create_task(_left(self._lender, self._name))
                self._n_loops += 1
            self._loop, self._desks = loop, {}
        desk = self._desks.get(endpoint)
        if desk is None:
            desk = self._desks[endpoint] = EndpointLimiter(self._lender, self._name, endpoint, self._clock)
        return desk


async def _left(lender: QuotaClient, holder: str) -> None:
    await lender.leave(holder)
