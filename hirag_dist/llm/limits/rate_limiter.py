"""Rate limiter of one worker: its calls are sent with permits that the quota coordinator grants for each endpoint."""

from __future__ import annotations

import asyncio
import heapq
import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
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
        self._limiter.end(self, tokens, usd, tokens, is_answered=True)

    def failed(self, slow: bool = False, billed: bool = False) -> None:
        """End a call without a reply.

        Args:
            slow: it timed out: the endpoint is overloaded.
            billed: it may be on the bill, and counts as its largest use.
        """
        if slow:
            self._limiter.on_timeout()
        if billed:
            self._limiter.end(self, self.demand.max_tokens, self.demand.max_usd, self.demand.tokens)
        else:
            self._limiter.end(self, 0, 0.0, 0)

    def limited(self, retry_after_s: float | None, kind: LimitKind) -> None:
        """End a call that was refused with 429."""
        self._limiter.on_limited(retry_after_s, kind)
        self._limiter.end(self, 0, 0.0, 0)


@dataclass(order=True, slots=True)
class _WaitingCall:
    priority: int
    number: int
    demand: CallDemand = field(compare=False)
    permit: asyncio.Future[Permit] = field(compare=False)


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
        self._state = WorkerReport()
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
        if self._demanding is None and not self._is_closed:
            self._demanding = asyncio.get_running_loop().create_task(self._demand_permits())
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
        self._state.requests_per_minute, self._state.tokens_per_minute = requests_per_minute, tokens_per_minute

    def on_timeout(self) -> None:
        """Note a time-out, and report it at once."""
        self._state.timeouts += 1
        self._report_in(0.0)

    def on_refused(self) -> None:
        """Note a reply that its parser refused, for displays of progress."""
        self._state.refused += 1
        self._report_in(_IDLE_REPORT_S)

    def on_found(self) -> None:
        """Note a reply of the ledger, for displays of progress."""
        self._state.found += 1
        self._report_in(_IDLE_REPORT_S)

    def on_limited(self, retry_after_s: float | None, kind: LimitKind) -> None:
        """Note a 429, and report it at once."""
        self._state.n_limited += 1
        self._state.limited += ((retry_after_s, kind, self.in_flight),)
        if kind != "concurrency" and retry_after_s is not None:
            self._paused_until = max(self._paused_until, self._clock() + retry_after_s)
        self._report_in(0.0)

    def end(self, permit: Permit, tokens: int, usd: float, paced_tokens: int, is_answered: bool = False) -> None:
        """End a call that used so much; `paced_tokens` count for the rate."""
        state = self._state
        if is_answered:
            state.answered += 1
            state.answered_tokens += tokens
            state.latency_s += self._clock() - permit.begun
        self.in_flight -= 1
        state.used_tokens += tokens
        state.used_usd += usd
        state.token_error += paced_tokens - permit.demand.tokens
        state.release(1, permit.demand.max_tokens, permit.demand.max_usd)
        if self._policy.renews and self._waiting and self._paused_until <= self._clock():
            call = self._pop()  # it takes the place of the one that has just ended
            if call is not None:
                self._state.release(-1, -call.demand.max_tokens, -call.demand.max_usd)
                self._start(call)
        if self._policy.is_prompt or not (self._pending or self.in_flight):
            self._report_in(0.0 if self._policy.is_prompt else _IDLE_REPORT_S)
        else:
            self._report_in(self._policy.report_s)

    def _pop(self) -> _WaitingCall | None:
        while self._waiting:
            call = heapq.heappop(self._waiting)
            if not call.permit.done():  # else its caller was cancelled
                return call
        return None

    def _start(self, call: _WaitingCall) -> None:
        self._pending.discard(call.permit)
        self.in_flight += 1
        self._state.max_in_flight = max(self._state.max_in_flight, self.in_flight)
        call.permit.set_result(Permit(self, call.demand, self._clock()))

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
        self._state.release(left, max_tokens, max_usd)
        self._state.token_error -= tokens
        self._state.unused_requests += left
        self._report_in(0.0 if left else self._policy.report_s)

    def _follow(self, reply: Grant) -> None:
        self._policy = reply
        if reply.pause_s > 0:
            self._paused_until = max(self._paused_until, self._clock() + reply.pause_s)

    def _take_report(self) -> WorkerReport:
        """Return the report, and forget the events."""
        self._state.number += 1
        report = replace(self._state)
        self._state.max_in_flight, self._state.limited = self.in_flight, ()
        return report

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
    """Sends the calls of one worker within rate limits and spending limits. One instance serves one event loop.

    Args:
        worker: unique name; a worker that was restarted has another one.
        spending: whether the run has a spending limit, so that the largest use of calls has to be known exactly.
        observer: called with each request that was sent, its endpoint, when it was sent (nanoseconds since 1970), and
            its reply or error.
    """

    def __init__(
        self,
        client: QuotaClient,
        worker: str = "",
        spending: bool = False,
        clock: Callable[[], float] = time.monotonic,
        observer: CallObserver | None = None,
    ) -> None:
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
            call.in_flight = True
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
            self.of(target.endpoint).on_rate_limits(reply.rate_limits.requests, reply.rate_limits.tokens)
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
        limiter = self.of(endpoint)
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

    def close(self) -> None:
        """Send no further demands and reports; waiting calls are cancelled."""
        for each in self._endpoints.values():
            each.close()

    def of(self, endpoint: str) -> EndpointLimiter:
        """Return the calls of this worker to an endpoint."""
        if endpoint not in self._endpoints:
            self._endpoints[endpoint] = EndpointLimiter(self._client, self._worker, endpoint, self._clock)
        return self._endpoints[endpoint]
