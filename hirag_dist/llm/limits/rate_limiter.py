"""Rate limiter of one worker: its calls are sent with permits that the quota coordinator grants."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from typing import TypeVar

from hirag_dist.errors import ModelUnavailable, RateLimited, TimedOut
from hirag_dist.llm.call import Call, CallReply, CallTarget
from hirag_dist.llm.limits.endpoint_limiter import EndpointLimiter, Permit
from hirag_dist.llm.limits.protocol import CallDemand, QuotaClient

_LONG_PAUSE_S = 5.0  # an endpoint that asks for a longer pause is passed over if another is available
P = TypeVar("P")
R = TypeVar("R")


class EndpointPaused(RateLimited):
    """The endpoint asked for a long pause while the call was waiting; the call was not sent."""


class RateLimiter:
    """Sends the calls of one worker within rate limits and spending limits. One instance serves one event loop."""

    def __init__(
        self,
        client: QuotaClient,
        worker: str = "",
        spending: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin without permits.

        Args:
            client: the quota coordinator, local or remote.
            worker: unique name; a worker that was restarted has another one.
            spending: whether the run has a spending limit, so that the largest use of calls has to be known exactly.
        """
        self._client, self._worker, self._clock = client, worker, clock
        self.spending = spending
        self.long_pause_s = _LONG_PAUSE_S
        self._endpoints: dict[str, EndpointLimiter] = {}

    async def send(self, call: Call[P, R], target: CallTarget[P, R]) -> CallReply[R]:
        """Send a call once it has a permit: the layer between retries and the endpoint.

        Raises:
            EndpointPaused: the endpoint asked for a long pause meanwhile; another one may be available.
            BudgetReached: the call could pass a spending limit of the run.
            NotSent: the replies of its role are all refused.
            ModelError: as the endpoint raises it.
        """
        max_tokens, max_usd = target.max_use(call)
        while True:
            permit = await self.acquire(
                target.endpoint, call.tokens, max_usd, call.priority, max_tokens, max_pause_s=self.long_pause_s
            )
            undecided = None if call.refusals is None else call.refusals.undecided(call.role, call.unit)
            if undecided is None:
                break
            permit.failed()  # the calls that decide need permits
            await undecided.wait()
        try:
            if call.refusals is not None:
                call.refusals.check(call.role)
            call.mark_sent()
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

    async def acquire(
        self,
        endpoint: str,
        tokens: int,
        usd: float,
        priority: int = 0,
        max_tokens: int | None = None,
        max_pause_s: float = math.inf,
    ) -> Permit:
        """Wait for the permit of a call; the lower `priority` goes first.

        Args:
            tokens: the estimated use, for the rate.
            usd, max_tokens: the largest use, for spending limits; `tokens` if the second is not given.
            max_pause_s: longest pause of the endpoint that is waited for.

        Raises:
            BudgetReached: the call could pass a spending limit of the run.
            EndpointPaused: the endpoint asked for a longer pause.
        """
        limiter = self._of(endpoint)
        permit = limiter.queue(CallDemand(tokens, tokens if max_tokens is None else max_tokens, usd), priority)
        try:
            while math.isfinite(max_pause_s) and not permit.done():
                await asyncio.wait({permit}, timeout=max_pause_s)
                if not permit.done() and (pause_s := limiter.pause_s()) > max_pause_s:
                    raise EndpointPaused(f"endpoint {endpoint} asks to be left alone for {pause_s:.0f} s")
            return await permit
        except (asyncio.CancelledError, EndpointPaused):
            limiter.give_up(permit)
            raise

    def load(self, endpoint: str) -> int:
        """Return the calls of this worker in flight and waiting."""
        return self._of(endpoint).load()

    def pause_s(self, endpoint: str) -> float:
        """Return the pause that the endpoint asked for, as far as this worker knows."""
        return self._of(endpoint).pause_s()

    def on_rate_limits(self, endpoint: str, requests_per_minute: float | None, tokens_per_minute: float | None) -> None:
        """Note the limits that the endpoint's headers named."""
        self._of(endpoint).on_rate_limits(requests_per_minute, tokens_per_minute)

    def on_refused(self, endpoint: str) -> None:
        """Note a reply that its parser refused, for displays of progress."""
        self._of(endpoint).on_refused()

    def close(self) -> None:
        """Send no further demands and reports; waiting calls are cancelled."""
        for each in self._endpoints.values():
            each.close()

    def _of(self, endpoint: str) -> EndpointLimiter:
        limiter = self._endpoints.get(endpoint)
        if limiter is None:
            limiter = self._endpoints[endpoint] = EndpointLimiter(self._client, self._worker, endpoint, self._clock)
        return limiter
