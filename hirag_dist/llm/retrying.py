"""One call, made until it is answered: which endpoint, its turn, retries, outages, stragglers."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from hirag_dist.core.text.normalize import count_noun
from hirag_dist.errors import ModelError, ModelUnavailable, RateLimited, RequestRejected, TimedOut
from hirag_dist.llm.circuit_breaker import DOWN_AFTER, CircuitBreaker, backoff_s
from hirag_dist.llm.limits.client import Permit, RateLimiter
from hirag_dist.llm.usage import UsageMeter, current_meter

log = logging.getLogger(__name__)
R = TypeVar("R")
_TRIAL_S = 10.0
_LONG_PAUSE_S = 5.0  # an endpoint that wants to be left alone for longer is passed over, where there is another
_LOOK_S = 0.5  # how soon those who wait for an endpoint see that it is back
_MOST_FAILURES = 10  # of one request at endpoints that answer others: it is to blame itself


@dataclass(frozen=True)
class RetryPolicy:
    """How long and how often.

    Attributes:
        attempts: replies that a unit may have refused; also how often a request may time out while others do not.
        outage_s: how long nobody at all may answer before the run fails.
        failover_s: how long a model's endpoints may be out before another model of the role is asked.
        deadline_s: how long one unit may take with all its retries, None without limit.
        hedge_s: after so long without a reply a second copy of the request is sent; None never.
    """

    attempts: int = 3
    outage_s: float = 600.0
    failover_s: float = 60.0
    deadline_s: float | None = None
    hedge_s: float | None = None


class EndpointHandle(Protocol):
    """An endpoint that can take the call."""

    @property
    def endpoint(self) -> str:
        """The configured name, which the budget goes by."""
        ...

    @property
    def name(self) -> str:
        """The model's name, for the bill."""
        ...

    @property
    def weight(self) -> float:
        """Its share of the calls, where all are well."""
        ...


T = TypeVar("T", bound=EndpointHandle)


@dataclass(frozen=True, slots=True)
class CallResult(Generic[R]):
    """A reply and what it used. `limits`: requests and tokens a minute, where the endpoint named them."""

    value: R
    tokens: int
    usd: float
    limits: tuple[float | None, float | None] = (None, None)


@dataclass(frozen=True, slots=True)
class CallCost:
    """What a call needs.

    Attributes:
        tokens: it will use, as far as can be told.
        most_tokens, most_usd: it can use, for spending limits.
        priority: lower goes first.
    """

    tokens: int
    most_tokens: int
    most_usd: float
    priority: int = 0


@dataclass(frozen=True, slots=True)
class _Work(Generic[T, R]):
    """A call to be made; as the arguments of `RetryingClient.call`. `sent` is set when it first leaves."""

    targets: Sequence[T]
    send: Callable[[T], Coroutine[Any, Any, CallResult[R]]]
    store: Callable[[T, R], Coroutine[Any, Any, None]]
    need: Callable[[T], CallCost]
    role: str
    last_resort: bool
    sent: asyncio.Event | None


class RetryingClient:
    """Makes calls. One instance serves one event loop."""

    def __init__(
        self,
        budget: RateLimiter,
        patience: RetryPolicy,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        keeps: bool = True,
    ) -> None:
        """Prepare.

        Args:
            keeps: replies are kept, so a call that was sent goes on when its caller gives up.
        """
        self.patience = patience
        self.budget = budget
        self._keeps = keeps
        self._clock, self._sleep = clock, sleep
        self._health: dict[str, CircuitBreaker] = {}
        self._late: set[asyncio.Task[Any]] = set()

    async def call(
        self,
        targets: Sequence[T],
        send: Callable[[T], Coroutine[Any, Any, CallResult[R]]],
        store: Callable[[T, R], Coroutine[Any, Any, None]],
        need: Callable[[T], CallCost],
        role: str,
        last_resort: bool = True,
    ) -> tuple[T, R]:
        """Return who answered, and what, once it is stored.

        Args:
            targets: endpoints that give the same replies; the least busy that is well is asked.
            send: makes the call once.
            store: makes a reply durable; the endpoint's slot is free by then.
            last_resort: False where another model can be asked, so that an outage is not waited out here.

        Raises:
            ModelError: nobody answered for as long as the patience lasts, or nobody lets us in.
            RequestRejected: not fatal: this request cannot be answered, others can.
            BudgetReached: a spending limit.
        """

        def attempt(sent: asyncio.Event | None = None) -> Coroutine[Any, Any, tuple[T, R]]:
            return self._until_answered(_Work(targets, send, store, need, role, last_resort, sent))

        return await attempt() if self.patience.hedge_s is None else await self._hedged(attempt, self.patience.hedge_s)

    async def _hedged(self, attempt: Callable[[asyncio.Event | None], Coroutine[Any, Any, R]], hedge_s: float) -> R:
        """Make a call, and a second copy of it where it was sent and had no reply for so long."""
        sent = asyncio.Event()
        first = self._start(attempt(sent))
        copies = {first}
        sending = asyncio.ensure_future(sent.wait())
        try:
            await asyncio.wait({first, sending}, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait({first}, timeout=hedge_s)
            if not first.done():
                copies.add(self._start(attempt(None)))
            waiting = set(copies)
            while True:
                done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for each in done:
                    if each.exception() is None:
                        return each.result()
                if not waiting:
                    return first.result()
        except asyncio.CancelledError:
            for each in copies:
                each.cancel()
            await asyncio.wait(copies)  # what was sent ends and is stored
            raise
        finally:
            sending.cancel()
            for each in copies:
                each.cancel()  # a copy that still waits for its turn is not sent; one that was sent ends all the same

    def _is_well(self, target: EndpointHandle) -> bool:
        return self._of(target).down_until <= self._clock() and not self._is_useless(target)

    def _is_useless(self, target: EndpointHandle) -> bool:
        """Whether an endpoint has turned us away for good."""
        return self._of(target).useless is not None

    def pick(self, targets: Sequence[T]) -> T | None:
        """Return the endpoint to ask: the least busy for its weight of those that are well, None if none is."""
        now = self._clock()
        well = [each for each in targets if self._is_well(each)]
        if not well:
            return None
        ready = [each for each in well if self.budget.pause_s(each.endpoint) <= _LONG_PAUSE_S]
        if not ready:  # all were told to wait for long: whoever may be asked first
            ready = [min(well, key=lambda each: self.budget.pause_s(each.endpoint))]
        chosen = min(ready, key=lambda each: (self.budget.load(each.endpoint) + 1) / each.weight)
        health = self._of(chosen)
        if health.failures >= DOWN_AFTER:  # one call tries whether it is back; the others wait for what that brings
            health.down_until = now + _TRIAL_S
        return chosen

    async def close(self) -> None:
        """Wait for the copies of stragglers that still run: they are paid, and are stored. Then ask for no more."""
        if self._late:
            await asyncio.wait(self._late)
        self.budget.close()

    def _start(self, call: Coroutine[Any, Any, R]) -> asyncio.Task[R]:
        task = asyncio.ensure_future(call)
        self._late.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._late.discard(task)
        if not task.cancelled():
            task.exception()  # the other copy may have answered

    async def _until_answered(self, work: _Work[T, R]) -> tuple[T, R]:
        begun = self._clock()
        sent_at: float | None = None
        failures = timeouts = n_limited = 0
        last: ModelError | None = None
        while True:
            target, picked_at, permit = await self._permitted(work, begun, last, failures + timeouts)
            sent_at = self._clock() if sent_at is None else sent_at
            if work.sent is not None:
                work.sent.set()
            try:
                once = self._once(work, target, permit, picked_at)
                return target, await (to_the_end(once) if self._keeps else once)
            except RequestRejected as error:
                if not error.fatal:
                    raise
                self._of(target).useless = error
                log.warning("endpoint %s is not asked again: %s", target.endpoint, error)
                last = error
                continue
            except RateLimited as error:
                _meter(work.role, target).rate_limited += 1
                last = error
                n_limited += 1  # the endpoint's budget is what pauses, once it is told
                wait = min(0.01 * 2.0 ** min(n_limited, 10), 1.0) * (0.5 + random.random())
            except ModelError as error:
                if not error.retryable:
                    raise
                _meter(work.role, target).failed += 1
                timed_out = isinstance(error, TimedOut)
                timeouts, failures = timeouts + timed_out, failures + (not timed_out)
                last = error
                elsewhere = any(self._is_well(each) for each in work.targets if each is not target)
                wait = 0.0 if timed_out or elsewhere else backoff_s(failures)
                alone = timeouts >= self.patience.attempts or failures >= _MOST_FAILURES
                if alone and max(self._of(each).answered_at for each in work.targets) > begun:
                    tries = count_noun(timeouts + failures, "try", "tries")
                    said = f"no reply in {tries} while other requests had theirs: {error}"
                    raise RequestRejected(said) from error
            deadline_s = self.patience.deadline_s
            if deadline_s is not None and self._clock() - sent_at + wait > deadline_s:
                raise RequestRejected(f"no reply within the deadline of {deadline_s:g} s: {last}") from last
            if wait:
                await self._sleep(wait)

    async def _permitted(
        self, work: _Work[T, R], begun: float, last: ModelError | None, n_failed: int
    ) -> tuple[T, float, Permit]:
        """Return an endpoint, when it was chosen, and its permission; where it wants to be left alone, another's.

        Raises:
            ModelError: nobody has answered for too long.
        """
        while True:
            target = await self._next(work, begun, last)
            picked_at = self._clock()
            need = work.need(target)
            priority = need.priority - n_failed  # what has waited long goes first
            turn = self.budget.queue(target.endpoint, need.tokens, need.most_usd, priority, need.most_tokens)
            try:
                while not turn.done():
                    await asyncio.wait({turn}, timeout=_LONG_PAUSE_S)
                    if not turn.done() and self.budget.pause_s(target.endpoint) > _LONG_PAUSE_S:
                        break
            except asyncio.CancelledError:
                self.budget.give_up(target.endpoint, turn)
                raise
            if turn.done():
                return target, picked_at, turn.result()
            self.budget.give_up(target.endpoint, turn)
            said = f"endpoint {target.endpoint} asks to be left alone for {self.budget.pause_s(target.endpoint):.0f} s"
            last = last or RateLimited(said)

    async def _next(self, work: _Work[T, R], begun: float, last: ModelError | None) -> T:
        """Return the endpoint to ask, waiting for one to be well.

        Raises:
            ModelError: the last failure, where it has been going on for too long.
        """
        targets, last_resort = work.targets, work.last_resort
        while True:
            now = self._clock()
            since = max(begun, *(self._of(each).answered_at for each in targets))
            patience = self.patience.outage_s if last_resort else min(self.patience.failover_s, self.patience.outage_s)
            if last is not None and now - since > patience:
                raise last
            target = self.pick(targets)
            if target is not None:
                return target
            usable = [self._of(each) for each in targets if not self._is_useless(each)]
            if not usable:
                raise next(error for each in targets if (error := self._of(each).useless) is not None)
            if last is None and not last_resort:
                raise ModelError("every endpoint of the model is out of reach")
            if last is None and now - since > max(patience, _TRIAL_S):
                raise ModelUnavailable(f"no endpoint of the model could be asked: {', '.join(_names(targets))}")
            left = min(each.down_until for each in usable) - now
            await self._sleep(min(max(left, 0.01), _LOOK_S))  # a call that tries it may be answered before that

    async def _once(self, work: _Work[T, R], target: T, permit: Permit, picked_at: float) -> R:
        try:
            reply = await work.send(target)
        except RateLimited as error:
            permit.limited(error.retry_after_s, error.kind)
            raise
        except BaseException as error:
            if isinstance(error, ModelError) and error.retryable:
                self.note_failed(target, picked_at)
            # An endpoint that lost us on the way may bill the call all the same: it counts as the most it can cost.
            billed = isinstance(error, ModelUnavailable) and error.was_sent
            permit.failed(slow=isinstance(error, TimedOut), billed=billed)
            raise
        self.note_answered(target)
        self.budget.heard(target.endpoint, *reply.limits)
        permit.answered(reply.tokens, reply.usd)
        await work.store(target, reply.value)
        return reply.value

    def now(self) -> float:
        """Return the time that `note_failed` goes by."""
        return self._clock()

    def note_answered(self, target: EndpointHandle) -> None:
        """An endpoint has answered."""
        health = self._of(target)
        if health.failures >= DOWN_AFTER:
            log.warning("endpoint %s is back", target.endpoint)
        health.answered(self._clock())

    def note_failed(self, target: EndpointHandle, picked_at: float) -> None:
        """An endpoint that was chosen at `picked_at` has not answered."""
        health = self._of(target)
        was_well = health.failures < DOWN_AFTER
        health.failed(self._clock(), picked_at)
        if was_well and health.failures >= DOWN_AFTER:
            log.warning("endpoint %s does not answer; one call in a while tries whether it is back", target.endpoint)

    def _of(self, target: EndpointHandle) -> CircuitBreaker:
        return self._health.setdefault(target.endpoint, CircuitBreaker())


def _meter(role: str, target: EndpointHandle) -> Any:
    meter = current_meter.get() or UsageMeter()
    return meter.use(role, target.name, target.endpoint)


def _names(targets: Sequence[EndpointHandle]) -> list[str]:
    return [each.endpoint for each in targets]


async def to_the_end(call: Coroutine[Any, Any, R]) -> R:
    """Return what a call gives. It is never cancelled: a caller that gives up waits for its end first.

    So a request that was sent ends and is stored.
    """
    running = asyncio.ensure_future(call)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        if not running.cancelled():
            running.exception()  # of no account to a caller that gave up
        raise
