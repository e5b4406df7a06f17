"""Quota coordinator: the one holder of a run's rate limits, concurrency and spending limits.

Workers (`llm.limits.rate_limiter.RateLimiter`) demand permits for calls that wait, in blocks, and report the calls that
ended. On a cluster the coordinator is one actor. Granted calls never exceed a limit; the permits of a worker that left
are returned.
"""

from __future__ import annotations

import asyncio
import math
import time
from bisect import insort
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from hirag_dist.errors import BudgetReached
from hirag_dist.llm.limits.adaptive import EndpointLimits
from hirag_dist.llm.limits.protocol import CallDemand, CallTotals, Grant, LimitLog, WorkerReport

RAISE_LIMIT = "raise it and run again to go on from here"  # advice of the error, for runs that store replies
_BLOCK_S = 0.02  # a grant waits for so much of the endpoint's rate, so that one message pays for several calls
_REPORT_S = 0.1
_MAX_REPORTS_PER_S = 200.0  # of all workers together: an actor handles some thousand messages per second


@dataclass(slots=True)
class _Worker:
    """The permits of one worker at one endpoint: what was granted since its start, and its latest report."""

    granted: int
    granted_tokens: int
    granted_usd: float
    report: WorkerReport
    waiting: int = 0  # demands

    @property
    def in_flight(self) -> int:
        """Calls in flight, as far as is known: granted and not released."""
        return self.granted - self.report.released

    def spent(self) -> tuple[int, float]:
        """Return the (tokens, US dollars) used, or reserved for calls in flight."""
        reserved_tokens = self.granted_tokens - self.report.released_tokens
        reserved_usd = max(self.granted_usd - self.report.released_usd, 0.0)
        return self.report.used_tokens + reserved_tokens, self.report.used_usd + reserved_usd


@dataclass(slots=True, eq=False)
class _Demand:
    """The demand of one worker, waiting for a grant."""

    worker: str
    rank: tuple[int, int]
    calls: tuple[CallDemand, ...]
    grant: asyncio.Future[Grant]

    @property
    def is_pending(self) -> bool:
        return not (self.grant.done() or self.grant.get_loop().is_closed())


@dataclass(slots=True)
class _Endpoint:
    """One endpoint: its limits, its workers, and the demands in the order of their rank."""

    limits: EndpointLimits
    log: LimitLog
    workers: dict[str, _Worker] = field(default_factory=dict)
    queue: list[_Demand] = field(default_factory=list)
    timer: asyncio.TimerHandle | None = None
    in_flight: int = 0  # of all workers
    active: set[str] = field(default_factory=set)  # workers with calls in flight or waiting

    def free_slots(self) -> int:
        """Return the calls that may be added to those in flight; below zero after the window became smaller."""
        return int(self.limits.window) - self.in_flight

    def share(self) -> int:
        """Return an active worker's equal share of the window."""
        return math.ceil(int(self.limits.window) / max(len(self.active), 1))

    def share_of_waiting(self) -> int:
        """Return a waiting worker's share: that of all, or of the slots that workers without demands leave free."""
        in_flight = sum(self.workers[each.worker].in_flight for each in self.queue)
        return max(self.share(), -(-(self.free_slots() + in_flight) // len(self.queue)))

    def count(self, name: str, *, in_flight: int = 0, waiting: int = 0) -> None:
        """Count changes of a worker's calls in flight and demands."""
        worker = self.workers[name]
        self.in_flight += in_flight
        worker.waiting += waiting
        (self.active.add if worker.in_flight > 0 or worker.waiting > 0 else self.active.discard)(name)

    def grant(self, name: str, calls: tuple[CallDemand, ...]) -> None:
        """Count calls as granted."""
        worker = self.workers[name]
        worker.granted += len(calls)
        worker.granted_tokens += sum(each.max_tokens for each in calls)
        worker.granted_usd += sum(each.max_usd for each in calls)
        self.count(name, in_flight=len(calls))


class QuotaCoordinator:
    """Grants calls within the limits of all endpoints and of the run. Serves one event loop.

    Args:
        max_usd, max_tokens: spending limits of the run; None is no limit.
        advice: advice of the error when a spending limit is reached.
    """

    def __init__(
        self,
        endpoints: Mapping[str, EndpointLimits],
        max_usd: float | None = None,
        max_tokens: int | None = None,
        clock: Callable[[], float] = time.monotonic,
        advice: str = RAISE_LIMIT,
    ) -> None:
        self._endpoints = {name: _Endpoint(limits, LimitLog(name)) for name, limits in endpoints.items()}
        self._max_usd = math.inf if max_usd is None else max_usd
        self._max_tokens = math.inf if max_tokens is None else max_tokens
        self._has_limit = max_usd is not None or max_tokens is not None
        self._advice = advice
        self._gone = CallTotals()  # calls of workers that left
        self._clock = clock
        self._n_demands = 0

    async def acquire(
        self, worker: str, endpoint: str, report: WorkerReport, demand: tuple[CallDemand, ...] = (), priority: int = 0
    ) -> Grant:
        """Take a worker's report, and wait for permission to make some of the calls of a demand, at least the first.

        Args:
            demand: calls that wait; without any the reply comes at once.
            priority: of the first call; lower goes first.

        Raises:
            BudgetReached: the first call could pass a spending limit, and no call in flight can leave room for it.
        """
        state = self._endpoints[endpoint]
        holder = self._note(state, worker, report)
        if not demand:
            self._serve_all()
            return self._reply(state, holder)
        self._n_demands += 1
        future: asyncio.Future[Grant] = asyncio.get_running_loop().create_future()
        waiting = _Demand(worker, (priority, self._n_demands), demand, future)
        insort(state.queue, waiting, key=lambda each: each.rank)
        state.count(worker, waiting=1)
        try:
            self._serve_all()
            return await future
        finally:
            if waiting in state.queue:
                state.queue.remove(waiting)
            if state.workers.get(worker) is holder:
                state.count(worker, waiting=-1)

    async def leave(self, worker: str) -> None:
        """Take back the permits of a worker that left; calls that it had in flight count as spent."""
        for state in self._endpoints.values():
            holder = state.workers.get(worker)
            for demand in [each for each in state.queue if each.worker == worker]:
                state.queue.remove(demand)
                if demand.is_pending:
                    demand.grant.cancel()
            if holder is not None:
                del state.workers[worker]
                state.in_flight -= holder.in_flight
                state.active.discard(worker)
                tokens, usd = holder.spent()
                self._gone = self._gone.plus(replace(holder.report.totals(), tokens=tokens, usd=usd))
        self._serve_all()

    def spent(self) -> tuple[int, float]:
        """Return (tokens, US dollars) spent or reserved."""
        spent = [each.spent() for state in self._endpoints.values() for each in state.workers.values()]
        return (
            self._gone.tokens + sum(tokens for tokens, _ in spent),
            self._gone.usd + math.fsum(usd for _, usd in spent),
        )

    def totals(self) -> CallTotals:
        """Return the calls so far, of workers that left too. Any thread may call it."""
        total, states = self._gone, list(self._endpoints.values())
        for worker in [worker for state in states for worker in list(state.workers.values())]:
            total = total.plus(worker.report.totals())
        pause_s = max((state.limits.pause_s(self._clock()) for state in states), default=0.0)
        return replace(total, in_flight=sum(state.in_flight for state in states), pause_s=pause_s)

    def _note(self, state: _Endpoint, name: str, report: WorkerReport) -> _Worker:
        """Take a report: what has changed since the worker's last one."""
        holder = state.workers.get(name)
        if holder is None:
            new = _Worker(
                report.released, report.released_tokens, report.released_usd, WorkerReport(released=report.released)
            )
            holder = state.workers[name] = new
        before = holder.report
        if report.number < before.number:
            return holder
        holder.report = report
        state.count(name, in_flight=before.released - report.released)
        now, limits = self._clock(), state.limits
        others = state.in_flight - holder.in_flight
        rates = limits.limits()
        named = report.requests_per_minute, report.tokens_per_minute
        if named != (before.requests_per_minute, before.tokens_per_minute):
            limits.on_rate_limits(now, *named)
            state.log.on_disbelieved(limits.disbelieved)
        unused, token_error = report.unused_requests - before.unused_requests, report.token_error - before.token_error
        if unused or token_error:
            limits.take(now, -unused, token_error)
        answered = report.answered - before.answered
        if answered:
            latency_s, tokens = report.latency_s - before.latency_s, report.answered_tokens - before.answered_tokens
            limits.answered(now, answered, tokens, latency_s / answered, others + report.max_in_flight)
        for retry_after_s, kind, in_flight in report.limited:
            limits.limited(now, retry_after_s, kind, in_flight + others)
        for _ in range(report.timeouts - before.timeouts):
            limits.slow(now)
        state.log.on_rates(rates, limits.limits())
        state.log.on_report(now, answered, len(report.limited), limits.pause_s(now))
        return holder

    def _reply(self, state: _Endpoint, holder: _Worker, calls: int = 0) -> Grant:
        free = state.free_slots()
        waits = bool(state.queue)
        report_s = max(_REPORT_S, len(state.active) / _MAX_REPORTS_PER_S)
        unlimited = state.limits.limits() == (None, None) and not self._has_limit
        renews = unlimited and (holder.in_flight <= state.share() or (free >= 0 and not waits))
        prompt = not renews and (free <= state.share() or self._has_limit)
        pause_s = state.limits.pause_s(self._clock())
        return Grant(calls, self._has_limit, pause_s, report_s, prompt, renews)

    def _serve_all(self) -> None:
        """Serve every endpoint: the spending limit is common to all."""
        for state in self._endpoints.values():
            self._serve(state)

    def _serve(self, state: _Endpoint) -> None:
        """Grant what can be granted: to each demand within its worker's share first, then the rest of the window."""
        if state.timer is not None:
            state.timer.cancel()
            state.timer = None
        waits: list[float] = []
        if state.free_slots() <= 0 or not state.queue:
            return
        for max_in_flight in (state.share_of_waiting(), int(state.limits.window)):
            for demand in list(state.queue):
                if state.free_slots() <= 0:
                    return  # the next call that ends is reported
                if not demand.is_pending:
                    continue
                holder = state.workers[demand.worker]
                slots = min(state.free_slots(), max_in_flight - holder.in_flight, len(demand.calls))
                calls = demand.calls[: self._affordable(demand, slots)] if slots > 0 else ()
                if not calls:
                    continue
                requests, tokens = self._block(state, calls)
                # A first call that is larger than a block begins it.
                wanted = tokens if tokens > calls[0].tokens else 1.0
                wait_s = state.limits.wait_s(self._clock(), wanted, requests)
                if wait_s > 0:
                    waits.append(wait_s)
                    if not self._has_limit:  # later demands wait for the same rate
                        break
                    continue
                self._grant(state, holder, demand, calls)
        if waits:
            now, wait_s = self._clock(), min(waits)
            if state.limits.pause_s(now) < wait_s:  # a pause that the endpoint asked for is logged as such
                state.log.on_wait(now, wait_s, state.limits.limits())
            loop = asyncio.get_running_loop()
            state.timer = loop.call_later(min(max(wait_s, 0.001), 60.0), self._serve, state)

    def _affordable(self, demand: _Demand, slots: int) -> int:
        """Return how many of a demand's first calls the spending limit allows: all that have a slot, or only one.

        If not even one fits and no call in flight can leave room, the demand fails.
        """
        if not self._has_limit:
            return slots
        tokens, usd = self.spent()
        calls, first = demand.calls[:slots], demand.calls[0]
        fit = sum(each.max_tokens for each in calls) <= self._max_tokens - tokens
        if fit and sum(each.max_usd for each in calls) <= self._max_usd - usd:
            return slots
        if usd + first.max_usd > self._max_usd:
            refusal = (
                f"stopped before the limit of ${self._max_usd:g} was passed (${usd:.4f} spent or set aside by this "
                f"run, the next call may cost ${first.max_usd:.4f}); {self._advice}"
            )
        elif tokens + first.max_tokens > self._max_tokens:
            refusal = (
                f"stopped before the limit of {self._max_tokens} tokens was passed ({tokens} used or set aside by this "
                f"run, the next call may use {first.max_tokens}); {self._advice}"
            )
        else:
            return 1
        if not any(state.in_flight for state in self._endpoints.values()):
            demand.grant.set_exception(BudgetReached(refusal))
        return 0

    @staticmethod
    def _block(state: _Endpoint, calls: tuple[CallDemand, ...]) -> tuple[int, int]:
        """Return the requests and tokens that a grant waits for: some milliseconds of the endpoint's rate."""
        requests_per_s, tokens_per_s = state.limits.limits()
        requests = len(calls) if requests_per_s is None else min(len(calls), int(requests_per_s * _BLOCK_S))
        wanted = sum(each.tokens for each in calls)
        tokens = wanted if tokens_per_s is None else min(wanted, int(tokens_per_s * _BLOCK_S))
        return max(requests, 1), max(tokens, calls[0].tokens)

    def _grant(self, state: _Endpoint, holder: _Worker, demand: _Demand, calls: tuple[CallDemand, ...]) -> None:
        """Grant a block of calls, or an equal share of what has accumulated since the last grants."""
        now = self._clock()
        block = self._block(state, calls)
        room = state.limits.room(now)
        max_requests, max_tokens = (max(b, r / len(state.queue)) for b, r in zip(block, room, strict=True))
        n, tokens = 1, calls[0].tokens
        while n < len(calls) and n + 1 <= max_requests and tokens + calls[n].tokens <= max_tokens:
            tokens += calls[n].tokens
            n += 1
        state.limits.take(now, n, tokens)
        state.grant(demand.worker, calls[:n])
        state.queue.remove(demand)
        demand.grant.set_result(self._reply(state, holder, n))
