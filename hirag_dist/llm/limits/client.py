"""Permission to call an endpoint, as one worker has it: out of what the treasury lent it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from hirag_dist.llm.limits.worker import EndpointLimiter, Permit, QuotaClient

__all__ = ["Permit", "QuotaClient", "RateLimiter"]


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
        self._loop: asyncio.AbstractEventLoop | None = None
        self._n_loops = 0
        self._leaving: asyncio.Task[None] | None = None
        self._desks: dict[str, EndpointLimiter] = {}

    async def acquire(
        self, endpoint: str, tokens: int, usd: float, priority: int = 0, most_tokens: int | None = None
    ) -> Permit:
        """Wait for this call's turn; the lower `priority` goes first.

        Args:
            tokens: what it will use, as far as can be told; for the endpoint's pace.
            usd, most_tokens: what it can use, for spending limits; `tokens` where the second is not given.

        Raises:
            BudgetReached: it could pass a spending limit of the run.
        """
        turn = self.queue(endpoint, tokens, usd, priority, most_tokens)
        try:
            return await turn
        except asyncio.CancelledError:
            self.give_up(endpoint, turn)
            raise

    def queue(
        self, endpoint: str, tokens: int, usd: float, priority: int = 0, most_tokens: int | None = None
    ) -> asyncio.Future[Permit]:
        """Return what `acquire` waits for. Whoever does not wait for it to the end has to `give_up`."""
        most = tokens if most_tokens is None else most_tokens
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

    def heard(self, endpoint: str, requests_a_minute: float | None, tokens_a_minute: float | None) -> None:
        """The endpoint's headers named its limits."""
        self._desk(endpoint).heard(requests_a_minute, tokens_a_minute)

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
