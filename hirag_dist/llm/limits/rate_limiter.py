"""Rate limiter of one worker: its calls are sent with permits that the quota coordinator grants for each endpoint."""

from __future__ import annotations

import asyncio
import heapq
import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from hirag_dist.errors import ModelUnavailable, RateLimited, TimedOut
from hirag_dist.llm.call import Call, CallReply, CallTarget
from hirag_dist.llm.limits.adaptive import LimitKind
from hirag_dist.llm.limits.protocol import CallDemand, Grant, QuotaClient, WorkerReport

logger = logging.getLogger(__name__)
_MAX_DEMAND = 64  # calls
_IDLE_REPORT_S = 0.02  # after the last call: another one may follow


class Permit:
    """Permission for one call. End it once, with `answered`, `failed` or `limited`."""

    __slots__ = ("_limiter", "begun", "demand")

    def __init__(self, limiter: EndpointLimiter, demand: CallDemand, begun: float) -> None:
        self._limiter, self.demand, self.begun = limiter, demand, begun

    def answered(self, tokens: int, usd: float) -> None:
        """End a call that brought a reply which used so much."""
        self._limiter.on_answered(self, tokens)
        self._limiter.release(self, tokens, usd, tokens)

    def failed(self, slow: bool = False, billed: bool = False) -> None:
        """End a call without a reply.

        Args:
            slow: it timed out: the endpoint is overloaded.
            billed: it may be on the bill, and counts as its largest use.
        """
        if slow:
            self._limiter.on_timeout()
        if billed:
            self._limiter.release(self, self.demand.max_tokens, self.demand.max_usd, self.demand.tokens)
        else:
            self._limiter.release(self, 0, 0.0, 0)

    def limited(self, retry_after_s: float | None, kind: LimitKind) -> None:
        """End a call that was refused with 429."""
        self._limiter.on_limited(retry_after_s, kind)
        self._limiter.release(self, 0, 0.0, 0)


@dataclass(order=True, slots=True)
class _WaitingCall:
    priority: int
    number: int
    demand: CallDemand = field(compare=False)
    permit: asyncio.Future[Permit] = field(compare=False)


@dataclass(slots=True)
class _Events:
    """The events since the last report; fields as of `WorkerReport`."""

    answered: int = 0
    answered_tokens: int = 0
    latency_s: float = 0.0  # their sum
    max_in_flight: int = 0
    timeouts: int = 0
    refused: int = 0
    limited: list[tuple[float | None, LimitKind, int]] = field(default_factory=list)
    unused_requests: int = 0
    token_error: int = 0


class EndpointLimiter:
    """The calls of one worker to one endpoint.

    Attributes:
        in_flight: calls with a permit.
    """

    def __init__(self, client: QuotaClient, worker: str, endpoint: str, clock: Callable[[], float]) -> None:
        self._client, self._worker, self._endpoint, self._clock = client, worker, endpoint, clock
        self._waiting: list[_WaitingCall] = []
        self._n_calls = 0
        self._pending: set[asyncio.Future[Permit]] = set()  # permits that are waited for
        self.in_flight = 0
        self._released, self._released_tokens, self._released_usd = 0, 0, 0.0
        self._used_tokens, self._used_usd = 0, 0.0
        self._events = _Events()
        self._rate_limits: tuple[float | None, float | None] = (None, None)
        self._reported_limits: tuple[float | None, float | None] = (None, None)
        self._paused_until = 0.0
        self._policy = Grant()
        self._demanding: asyncio.Task[None] | None = None
        self._reporting: asyncio.Task[None] | None = None
        self._reports_again = False
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False

    def queue(self, demand: CallDemand, priority: int) -> asyncio.Future[Permit]:
        """Return the future permit of a call; the lower `priority` goes first."""
        permit: asyncio.Future[Permit] = asyncio.get_running_loop().create_future()
        self._n_calls += 1
        self._pending.add(permit)
        heapq.heappush(self._waiting, _WaitingCall(priority, self._n_calls, demand, permit))
        self._demand()
        return permit

    def give_up(self, permit: asyncio.Future[Permit]) -> None:
        """Leave the queue, or end the permit if it was granted meanwhile."""
        self._pending.discard(permit)
        if permit.cancel() or permit.cancelled():
            return
        if permit.exception() is None:
            permit.result().failed()

    def load(self) -> int:
        """Return the calls in flight and waiting."""
        return self.in_flight + len(self._pending)

    def pause_s(self) -> float:
        """Return the pause that the endpoint asked for, as far as this worker knows."""
        return max(self._paused_until - self._clock(), 0.0)

    def close(self) -> None:
        """Send no further demands and reports."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        for task in (self._demanding, self._reporting):
            if task is not None:
                task.cancel()

    def on_rate_limits(self, requests_per_minute: float | None, tokens_per_minute: float | None) -> None:
        """Note the limits that the endpoint's headers named."""
        self._rate_limits = requests_per_minute, tokens_per_minute

    def on_answered(self, permit: Permit, tokens: int) -> None:
        """Note a reply."""
        self._events.answered += 1
        self._events.answered_tokens += tokens
        self._events.latency_s += self._clock() - permit.begun

    def on_timeout(self) -> None:
        """Note a time-out, and report it at once."""
        self._events.timeouts += 1
        self._report_in(0.0)

    def on_refused(self) -> None:
        """Note a reply that its parser refused."""
        self._events.refused += 1
        self._report_in(_IDLE_REPORT_S)

    def on_limited(self, retry_after_s: float | None, kind: LimitKind) -> None:
        """Note a 429, and report it at once."""
        self._events.limited.append((retry_after_s, kind, self.in_flight))
        if kind != "concurrency" and retry_after_s is not None:
            self._paused_until = max(self._paused_until, self._clock() + retry_after_s)
        self._report_in(0.0)

    def release(self, permit: Permit, tokens: int, usd: float, paced_tokens: int) -> None:
        """End a call that used so much; `paced_tokens` count for the rate."""
        self.in_flight -= 1
        self._used_tokens += tokens
        self._used_usd += usd
        self._events.token_error += paced_tokens - permit.demand.tokens
        self._release(1, permit.demand.max_tokens, permit.demand.max_usd)
        if self._policy.renews and self._waiting and self._paused_until <= self._clock():
            self._renew()
        if self._policy.is_prompt or not (self._pending or self.in_flight):
            self._report_in(0.0 if self._policy.is_prompt else _IDLE_REPORT_S)
        else:
            self._report_in(self._policy.report_s)

    def _release(self, calls: int, max_tokens: int, max_usd: float) -> None:
        self._released += calls
        self._released_tokens += max_tokens
        self._released_usd += max_usd

    def _renew(self) -> None:
        """Start the next call in place of one that has just ended."""
        call = self._pop()
        if call is not None:
            self._release(-1, -call.demand.max_tokens, -call.demand.max_usd)
            self._start(call)

    def _pop(self) -> _WaitingCall | None:
        while self._waiting:
            call = heapq.heappop(self._waiting)
            if not call.permit.done():  # else its caller was cancelled
                return call
        return None

    def _start(self, call: _WaitingCall) -> None:
        self._pending.discard(call.permit)
        self.in_flight += 1
        self._events.max_in_flight = max(self._events.max_in_flight, self.in_flight)
        call.permit.set_result(Permit(self, call.demand, self._clock()))

    def _demand(self) -> None:
        if self._demanding is None and not self._is_closed:
            self._demanding = asyncio.get_running_loop().create_task(self._demand_permits())

    async def _demand_permits(self) -> None:
        """Demand permits as long as calls wait."""
        try:
            while calls := heapq.nsmallest(_MAX_DEMAND, (each for each in self._waiting if not each.permit.done())):
                demand = tuple(each.demand for each in calls)
                report, priority = self._take_report(), calls[0].priority
                self._report_in(self._policy.report_s)  # its reply tells of pauses while this demand waits
                grant = await self._client.acquire(self._worker, self._endpoint, report, demand, priority)
                self._use(grant, demand[: grant.calls])
            self._waiting.clear()
        except BaseException as error:  # the spending limit is reached, or the coordinator is gone: all calls end
            for call in self._waiting:
                if not call.permit.done():
                    call.permit.set_exception(
                        error if isinstance(error, Exception) else asyncio.CancelledError("the rate limiter is closed")
                    )
            self._waiting.clear()
            self._pending.clear()
            if not isinstance(error, Exception):
                raise
        finally:
            self._demanding = None

    def _use(self, grant: Grant, granted: tuple[CallDemand, ...]) -> None:
        """Start the calls that go first now; release the permits that none of them fits."""
        self._follow(grant)
        left = len(granted)
        tokens, max_tokens = sum(each.tokens for each in granted), sum(each.max_tokens for each in granted)
        max_usd = sum(each.max_usd for each in granted)
        while left and (call := self._pop()) is not None:
            demand = call.demand
            if grant.has_reservation and (demand.max_tokens > max_tokens or demand.max_usd > max_usd + 1e-12):
                heapq.heappush(self._waiting, call)
                break
            left -= 1
            tokens -= demand.tokens
            max_tokens -= demand.max_tokens
            max_usd -= demand.max_usd
            self._start(call)
        self._release(left, max_tokens, max_usd)
        self._events.token_error -= tokens
        self._events.unused_requests += left
        self._report_in(0.0 if left else self._policy.report_s)

    def _follow(self, reply: Grant) -> None:
        self._policy = reply
        if reply.pause_s > 0:
            self._paused_until = max(self._paused_until, self._clock() + reply.pause_s)

    def _take_report(self) -> WorkerReport:
        """Return the report of what happened, and forget the events."""
        events, self._events = self._events, _Events(max_in_flight=self.in_flight)
        rate_limits = self._rate_limits if self._rate_limits != self._reported_limits else (None, None)
        self._reported_limits = self._rate_limits
        return WorkerReport(
            released=self._released,
            released_tokens=self._released_tokens,
            released_usd=self._released_usd,
            used_tokens=self._used_tokens,
            used_usd=self._used_usd,
            answered=events.answered,
            answered_tokens=events.answered_tokens,
            latency_s=events.latency_s / max(events.answered, 1),
            max_in_flight=max(events.max_in_flight, self.in_flight),
            timeouts=events.timeouts,
            refused=events.refused,
            limited=tuple(events.limited),
            requests_per_minute=rate_limits[0],
            tokens_per_minute=rate_limits[1],
            unused_requests=events.unused_requests,
            token_error=events.token_error,
        )

    def _report_in(self, seconds: float) -> None:
        if self._is_closed:
            return
        loop = asyncio.get_running_loop()
        if self._timer is not None:
            if self._timer.when() <= loop.time() + seconds + 1e-3:
                return
            self._timer.cancel()
        self._timer = loop.call_later(seconds, self._report)

    def _report(self) -> None:
        self._timer = None
        if self._reporting is None:
            self._reporting = asyncio.get_running_loop().create_task(self._send_report())
        else:
            self._reports_again = True

    async def _send_report(self) -> None:
        try:
            self._follow(await self._client.acquire(self._worker, self._endpoint, self._take_report()))
        except Exception as error:  # the next demand meets the same error and raises it
            logger.debug("a report did not arrive: %s", error)
            self._reports_again = True
        finally:
            self._reporting = None
        if self._reports_again:
            self._reports_again = False
            self._report_in(_IDLE_REPORT_S)
        elif self.in_flight or self._demanding is not None:
            self._report_in(self._policy.report_s)


CallObserver = Callable[[Call[Any, Any], CallTarget[Any, Any], int, CallReply[Any] | BaseException], None]
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
        observer: CallObserver | None = None,
    ) -> None:
        """Begin without permits.

        Args:
            client: the quota coordinator, local or remote.
            worker: unique name; a worker that was restarted has another one.
            spending: whether the run has a spending limit, so that the largest use of calls has to be known exactly.
            observer: called with each request that was sent, its endpoint, when it was sent (nanoseconds since 1970),
                and its reply or error.
        """
        self._client, self._worker, self._clock = client, worker, clock
        self._observer = observer
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
            reply = await self._observed(call, target)
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

    async def _observed(self, call: Call[P, R], target: CallTarget[P, R]) -> CallReply[R]:
        """Send a call, and tell the observer how it ended."""
        if self._observer is None:
            return await target.send(call)
        began_ns = time.time_ns()
        try:
            reply = await target.send(call)
        except BaseException as error:
            self._observer(call, target, began_ns, error)
            raise
        self._observer(call, target, began_ns, reply)
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
