"""What one worker holds at one endpoint, out of what the treasury lent it, and who waits for it there."""

from __future__ import annotations

import asyncio
import heapq
import logging
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from hirag_dist.llm.limits.adaptive import LimitKind
from hirag_dist.llm.limits.protocol import Lease, LeaseAdjustment, LeaseDemand, UsageReport, WorkerUsage

log = logging.getLogger(__name__)
_AHEAD = 64  # calls that one loan is asked for
_REPORT_S = 0.1
_GIVE_BACK_S = 0.02  # a slot is kept so long for a call that may come next


class QuotaClient(Protocol):
    """The treasury, here or at the end of a wire."""

    async def ask(
        self, holder: str, endpoint: str, state: WorkerUsage, want: LeaseDemand, events: UsageReport
    ) -> Lease:
        """As `QuotaCoordinator.ask`."""
        ...

    async def tell(self, holder: str, endpoint: str, state: WorkerUsage, events: UsageReport) -> LeaseAdjustment:
        """As `QuotaCoordinator.tell`."""
        ...

    async def leave(self, holder: str) -> None:
        """As `QuotaCoordinator.leave`."""
        ...


class Permit:
    """One call's permission. End it with `answered` or `failed`, once."""

    __slots__ = ("_desk", "begun", "max_tokens", "tokens", "usd")

    def __init__(self, desk: EndpointLimiter, tokens: int, max_tokens: int, usd: float, begun: float) -> None:
        self._desk = desk
        self.tokens, self.max_tokens, self.usd = tokens, max_tokens, usd
        self.begun = begun

    def answered(self, tokens: int, usd: float) -> None:
        """The call brought a reply that used so much."""
        self._desk.end(self, tokens, usd, answered=True)

    def failed(self, slow: bool = False, billed: bool = False) -> None:
        """The call brought nothing.

        Args:
            slow: it timed out: the endpoint has too much to do.
            billed: it may be on the bill all the same, and counts as the most that it can cost.
        """
        if billed:
            self._desk.end(self, self.max_tokens, self.usd, answered=False, slow=slow, paced=self.tokens)
        else:
            self._desk.end(self, 0, 0.0, answered=False, slow=slow)

    def limited(self, retry_after_s: float | None, kind: LimitKind) -> None:
        """The endpoint answered 429."""
        self._desk.limited(retry_after_s, kind)
        self._desk.end(self, 0, 0.0, answered=False)


@dataclass(order=True, slots=True)
class _Call:
    priority: int
    number: int
    tokens: int = field(compare=False)
    max_tokens: int = field(compare=False)
    usd: float = field(compare=False)
    turn: asyncio.Future[Permit] = field(compare=False)


class EndpointLimiter:
    """One endpoint's desk of one worker: slots, requests, tokens and money, and a queue by priority."""

    def __init__(self, lender: QuotaClient, holder: str, endpoint: str, clock: Callable[[], float]) -> None:
        self._lender, self._holder, self._endpoint, self._clock = lender, holder, endpoint, clock
        self._waiting: list[_Call] = []
        self._n_calls = 0
        self.n_waiting = 0
        self.busy = 0
        self._slot_loan = self._loan = 0
        self._slots = 0
        self._most_slots = 1 << 30
        self._requests = self._tokens = 0
        self._valid_until = 0.0
        self._paused_until = 0.0
        self._spend_tokens, self._spend_usd = 0, 0.0  # lent and not reserved yet
        self._reserved_tokens, self._reserved_usd = 0, 0.0
        self._used_tokens, self._used_usd = 0, 0.0
        self._answered = self._answered_tokens = self._slow = 0
        self._latency_s = 0.0
        self._most_busy = 0
        self._limited: list[tuple[float | None, LimitKind, int]] = []
        self._named: tuple[float | None, float | None] = (None, None)
        self._named_told: tuple[float | None, float | None] = (None, None)
        self._unused_requests = self._unused_tokens = self._token_error = 0
        self._asking: set[bool] = set()  # whether slots are asked for (True), whether permits are (False)
        self._tasks: set[asyncio.Task[None]] = set()
        self._telling: asyncio.Task[None] | None = None
        self._tell_again = False
        self._closed = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._report_s = _REPORT_S  # the treasury says how often it wants to hear of calls that go on

    def queue(self, tokens: int, max_tokens: int, usd: float, priority: int) -> asyncio.Future[Permit]:
        """Join the queue; the permission comes as the result."""
        turn: asyncio.Future[Permit] = asyncio.get_running_loop().create_future()
        self._n_calls += 1
        heapq.heappush(self._waiting, _Call(priority, self._n_calls, tokens, max_tokens, usd, turn))
        self.n_waiting += 1
        self._serve()
        return turn

    def give_up(self, turn: asyncio.Future[Permit]) -> None:
        """Leave the queue, or end the permission that came meanwhile."""
        if not turn.done():
            turn.cancel()
        elif not turn.cancelled() and turn.exception() is None:
            turn.result().failed()  # given at the moment when its caller gave up
        self._serve()

    def end(
        self,
        permit: Permit,
        tokens: int,
        usd: float,
        answered: bool,
        slow: bool = False,
        paced: int | None = None,
    ) -> None:
        """End a call that used so much; `paced`: tokens that count for the pace, where they are others."""
        self.busy -= 1
        self._reserved_tokens -= permit.max_tokens
        self._reserved_usd -= permit.usd
        self._used_tokens += tokens
        self._used_usd += usd
        self._token_error += (tokens if paced is None else paced) - permit.tokens
        if answered:
            self._answered += 1
            self._answered_tokens += tokens
            self._latency_s += self._clock() - permit.begun
        self._slow += slow
        if self._slots > self._most_slots:
            self._slots = max(self._most_slots, self.busy)
        self._serve()
        self._report_in(_GIVE_BACK_S if not self._waiting or slow else self._report_s)

    def limited(self, retry_after_s: float | None, kind: LimitKind) -> None:
        """The endpoint answered 429."""
        self._limited.append((retry_after_s, kind, self.busy))
        if kind != "concurrency":  # what was lent before is not to be used now
            pause_s = _REPORT_S if retry_after_s is None else retry_after_s
            self._paused_until = max(self._paused_until, self._clock() + pause_s)
            self._valid_until = -math.inf
        self._report_in(0.0)

    def pause_s(self) -> float:
        """Return for how long the endpoint asked to be left alone."""
        return max(self._paused_until - self._clock(), 0.0)

    def close(self) -> None:
        """Stop asking and reporting."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for task in (*self._tasks, *([self._telling] if self._telling else [])):
            task.cancel()

    def on_rate_limits(self, requests_a_minute: float | None, tokens_a_minute: float | None) -> None:
        """The endpoint's headers named its limits."""
        self._named = requests_a_minute, tokens_a_minute

    def _serve(self) -> None:
        """Start what can start; ask for more where something has to wait."""
        now = self._clock()
        if now >= self._valid_until and (self._requests or self._tokens):
            self._unused_requests += self._requests
            self._unused_tokens += self._tokens
            self._requests = self._tokens = 0
        while self._waiting:
            call = self._waiting[0]
            if call.turn.done():  # its caller gave up
                heapq.heappop(self._waiting)
                self.n_waiting -= 1
                continue
            if now < self._paused_until or not self._affords(call):
                break
            heapq.heappop(self._waiting)
            self.n_waiting -= 1
            call.turn.set_result(self._start(call, now))
        if not self._waiting:  # what is not needed may be what another waits for
            self._spend_tokens, self._spend_usd = 0, 0.0
        elif now < self._paused_until:
            self._report_in(self._paused_until - now)
        else:
            if self.busy >= self._slots and True not in self._asking:
                self._begin_asking(slots=True)
            if not self._may_pay(self._waiting[0]) and False not in self._asking:
                self._begin_asking(slots=False)

    def _affords(self, call: _Call) -> bool:
        return self.busy < self._slots and self._may_pay(call)

    def _may_pay(self, call: _Call) -> bool:
        return (
            self._requests >= 1
            and self._tokens >= call.tokens
            and self._spend_tokens >= call.max_tokens
            and self._spend_usd >= call.usd - 1e-12
        )

    def _start(self, call: _Call, now: float) -> Permit:
        self.busy += 1
        self._most_busy = max(self._most_busy, self.busy)
        self._requests -= 1
        self._tokens -= call.tokens
        self._spend_tokens -= call.max_tokens
        self._spend_usd = max(self._spend_usd - call.usd, 0.0)
        self._reserved_tokens += call.max_tokens
        self._reserved_usd += call.usd
        return Permit(self, call.tokens, call.max_tokens, call.usd, now)

    def _begin_asking(self, slots: bool) -> None:
        self._asking.add(slots)
        task = asyncio.get_running_loop().create_task(self._ask(slots))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _ask(self, slots: bool) -> None:
        try:
            want = self._want_slots() if slots else self._want_permits()
            loan = await self._lender.ask(self._holder, self._endpoint, self._state(), want, self._events())
        except BaseException as error:  # no money left, or the lender is gone: nobody may wait for ever
            self._asking.discard(slots)
            self._turn_away(error if isinstance(error, Exception) else asyncio.CancelledError())
            if not isinstance(error, Exception):
                raise
            return
        self._asking.discard(slots)
        if slots:
            self._slot_loan = loan.number
            self._slots = loan.slots
            self._most_slots = max(self._most_slots, loan.slots)
        else:
            self._loan = loan.number
            self._requests += loan.requests
            self._tokens += loan.tokens
            self._valid_until = self._clock() + loan.valid_s
            self._spend_tokens += loan.spend_tokens
            self._spend_usd += loan.spend_usd
        self._serve()
        self._report_in(self._report_s if self._waiting else _REPORT_S if self.busy else _GIVE_BACK_S)

    def _turn_away(self, error: BaseException) -> None:
        for call in self._waiting:
            if not call.turn.done():
                call.turn.set_exception(error)
        self._waiting.clear()
        self.n_waiting = 0

    def _want_slots(self) -> LeaseDemand:
        return LeaseDemand(priority=self._waiting[0].priority, slots=min(len(self._waiting), _AHEAD))

    def _want_permits(self) -> LeaseDemand:
        """Return what is missing for the calls that have a slot now, or may have one soon.

        What does not reach for the first of them goes back and is asked for with the rest: it could run out before the
        answer comes, and the next question would again be short of something.
        """
        first = self._waiting[0]
        if self._requests < 1 or self._tokens < first.tokens:
            self._unused_requests += self._requests
            self._unused_tokens += self._tokens
            self._requests = self._tokens = 0
        soon = min(max(self._slots, 1), len(self._waiting), _AHEAD)
        ahead = heapq.nsmallest(soon, self._waiting)
        tokens = sum(call.tokens for call in ahead)
        most = sum(call.max_tokens for call in ahead)
        usd = sum(call.usd for call in ahead)
        return LeaseDemand(
            priority=first.priority,
            requests=max(soon - self._requests, 0),
            tokens=max(tokens - self._tokens, 0),
            spend_tokens=max(most - self._spend_tokens, 0),
            spend_usd=max(usd - self._spend_usd, 0.0),
            first_requests=max(1 - self._requests, 0),
            first_tokens=max(first.tokens - self._tokens, 0),
            first_spend_tokens=max(first.max_tokens - self._spend_tokens, 0),
            first_spend_usd=max(first.usd - self._spend_usd, 0.0),
        )

    def _state(self) -> WorkerUsage:
        return WorkerUsage(
            slot_loan=self._slot_loan,
            loan=self._loan,
            slots=self._slots,
            busy=self.busy,
            used_tokens=self._used_tokens,
            used_usd=self._used_usd,
            held_tokens=self._reserved_tokens + self._spend_tokens,
            held_usd=self._reserved_usd + self._spend_usd,
        )

    def _events(self) -> UsageReport:
        """Return what happened, and forget it."""
        n = self._answered
        named = self._named if self._named != self._named_told else (None, None)
        self._named_told = self._named
        events = UsageReport(
            answered=n,
            answered_tokens=self._answered_tokens,
            latency_s=self._latency_s / n if n else 0.0,
            most_busy=max(self._most_busy, self.busy),
            slow=self._slow,
            limited=tuple(self._limited),
            requests_a_minute=named[0],
            tokens_a_minute=named[1],
            unused_requests=self._unused_requests,
            unused_tokens=self._unused_tokens,
            token_error=self._token_error,
        )
        self._answered = self._answered_tokens = self._slow = 0
        self._latency_s = 0.0
        self._most_busy = self.busy
        self._limited = []
        self._unused_requests = self._unused_tokens = self._token_error = 0
        return events

    def _report_in(self, seconds: float) -> None:
        if self._closed:  # a call that ends after that would leave a report behind in a loop that ends too
            return
        at = self._clock() + seconds
        if self._timer is not None:
            if at >= self._timer_at - 1e-3:
                return
            self._timer.cancel()
        self._timer_at = at
        self._timer = asyncio.get_running_loop().call_later(seconds, self._due)

    def _due(self) -> None:
        self._timer = None
        if self._telling is None:
            self._telling = asyncio.get_running_loop().create_task(self._tell())
        else:
            self._tell_again = True  # what ended meanwhile is news to the treasury, and perhaps the last
        self._serve()

    async def _tell(self) -> None:
        if not self._waiting:  # idle slots go back
            self._slots = self.busy
        try:
            order = await self._lender.tell(self._holder, self._endpoint, self._state(), self._events())
        except Exception as error:  # whoever asks next meets the same, and is told
            log.debug("a report did not arrive: %s", error)
            self._tell_again = True
            return
        finally:
            self._telling = None
            if self._tell_again:
                self._tell_again = False
                self._report_in(_GIVE_BACK_S)
        self._most_slots = order.slots
        if self._slots > order.slots:
            self._slots = max(order.slots, self.busy)
        if order.pause_s > 0:
            self._paused_until = max(self._paused_until, self._clock() + order.pause_s)
            self._valid_until = -math.inf  # what was lent before is not to be used then
        self._serve()
        self._report_s = max(_REPORT_S, order.report_s)
        if self.busy:
            self._report_in(self._report_s)
        elif self._requests or self._tokens:  # they go back when their time is over
            self._report_in(max(self._valid_until - self._clock(), _GIVE_BACK_S))
