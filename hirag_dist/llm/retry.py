"""The layer that makes a call until it is answered: choice of the endpoint, retries, circuit breaker, outages."""

from __future__ import annotations

import asyncio
import logging
import math
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from copy import copy
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeVar

from hirag_dist.core.text.normalize import count_noun
from hirag_dist.errors import (
    EndpointUnreachable,
    ModelError,
    ModelUnavailable,
    RateLimited,
    RequestRejected,
    TimedOut,
    UnusableReply,
)
from hirag_dist.llm.call import Call, CallReply, CallTarget
from hirag_dist.llm.limits.rate_limiter import EndpointPaused, RateLimiter

_MAX_BACKOFF_S = 60.0


def backoff_s(failures: int) -> float:
    """Return the pause after so many failures, with jitter.

    >>> 0.25 <= backoff_s(0) <= 0.75 and backoff_s(100) <= 90.0
    True
    """
    return float(min(0.5 * 2.0 ** min(failures, 10), _MAX_BACKOFF_S) * (0.5 + random.random()))


MAX_FAILURES = 3  # in a row, after which an endpoint is left alone


@dataclass(slots=True)
class CircuitBreaker:
    """The failures of one endpoint.

    Attributes:
        down_since, down_until: the time during which no call is sent.
        answered_at: time of the last reply, or of tokens of one that did not end.
        max_pause_s: longest pause after a failure.
        rejection: the error with which the endpoint refused the key, the model or further credit; it is not asked
            again.
    """

    failures: int = 0
    down_since: float = -math.inf
    down_until: float = -math.inf
    answered_at: float = -math.inf
    max_pause_s: float = math.inf
    error: ModelError | None = None
    rejection: RequestRejected | None = None

    def failed(self, now: float, picked_at: float, error: ModelError) -> None:
        """Record a failure of a call that chose this endpoint at `picked_at`."""
        self.error = error
        if picked_at <= self.down_since:
            return  # all calls in flight fail together: that is one outage
        self.failures += 1
        if self.failures >= MAX_FAILURES:
            self.down_since = now
            self.down_until = now + min(backoff_s(self.failures - MAX_FAILURES), self.max_pause_s)


logger = logging.getLogger(__name__)
P = TypeVar("P")
R = TypeVar("R")
E_ = TypeVar("E_", bound=CallTarget[Any, Any])
_POLL_S = 0.5  # interval at which waiting calls check whether an endpoint is available again
_FORBIDDEN = 403  # the status of a wrong key, and of a text that moderation or a firewall stops
_CRASHED = 500  # the status of a server that fails, and of one that cannot do this text
_MAX_LONE_FAILURES = 10  # of one request at endpoints that answer others: the request itself is the cause


@dataclass(frozen=True)
class RetryPolicy:
    """Limits of retrying.

    Attributes:
        attempts: replies that a unit may have refused; also how often a request may time out, or have a reply that
            cannot be read, while others do not.
        outage_timeout_s: time without any answer after which the run fails.
        failover_s: outage of a model's endpoints after which another model of the role is asked.
        max_pause_s: longest pause after a failure, of a call and of an endpoint.
        trial_s: time that a single call has to try an endpoint that failed, before others are sent.
    """

    attempts: int = 3
    outage_timeout_s: float = 600.0
    failover_s: float = 60.0
    max_pause_s: float = math.inf
    trial_s: float = 10.0


class RetriedCalls:
    """Makes calls until they are answered. One instance serves one event loop."""

    def __init__(
        self,
        limiter: RateLimiter,
        policy: RetryPolicy,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.policy = policy
        self.limiter = limiter
        self._clock, self._sleep = clock, sleep
        self._breakers: dict[str, CircuitBreaker] = {}

    async def close(self) -> None:
        """Stop the rate limiter's client."""
        self.limiter.close()

    def pick(self, targets: Sequence[E_]) -> E_ | None:
        """Return the available endpoint with the lowest load for its weight; None if none is available."""
        now = self._clock()
        available = [each for each in targets if self._is_available(each)]
        if not available:
            return None
        ready = [each for each in available if self.limiter.of(each.endpoint).pause_s() <= self.limiter.long_pause_s]
        if not ready:  # all ask for a long pause: the one whose pause ends first
            ready = [min(available, key=lambda each: self.limiter.of(each.endpoint).pause_s())]
        chosen = min(ready, key=lambda each: (self.limiter.of(each.endpoint).load() + 1) / each.weight)
        breaker = self._breaker(chosen)
        if breaker.failures >= MAX_FAILURES:  # one call tries the endpoint; the others wait for its outcome
            breaker.down_until = now + self.policy.trial_s
        return chosen

    def now(self) -> float:
        """Return the time of the clock that `note_failed` uses."""
        return self._clock()

    def note_answered(self, target: CallTarget[Any, Any]) -> None:
        """Record that an endpoint has answered."""
        breaker = self._breaker(target)
        if breaker.failures >= MAX_FAILURES:
            logger.warning("endpoint %s is back", target.endpoint)
        breaker.failures, breaker.down_until, breaker.answered_at = 0, -math.inf, self._clock()

    def note_failed(self, target: CallTarget[Any, Any], picked_at: float, error: ModelError) -> None:
        """Record that an endpoint, chosen at `picked_at`, has not answered.

        A call that failed while the endpoint answered others, or sent tokens of their replies, is no outage.
        """
        breaker = self._breaker(target)
        if isinstance(error, ModelUnavailable) and error.is_alive:
            breaker.answered_at = max(breaker.answered_at, self._clock())
            return
        had_failed, was_available = breaker.failures > 0, breaker.failures < MAX_FAILURES
        breaker.failed(self._clock(), picked_at, error)
        if isinstance(error, EndpointUnreachable) and not had_failed:
            until = datetime.now().astimezone() + timedelta(seconds=self.policy.outage_timeout_s)
            logger.warning("%s (trying until %s)", error, until.strftime("%H:%M:%S"))
        elif was_available and breaker.failures >= MAX_FAILURES:
            logger.warning(
                "endpoint %s does not answer; it is tried again with single calls: %s", target.endpoint, error
            )

    async def __call__(self, call: Call[P, R]) -> CallReply[R]:
        """Return the reply of one of the call's targets: the least busy one that is available.

        Raises:
            ModelError: no endpoint answered for the outage time-out, or each of them refuses access.
            RequestRejected: not fatal: this request cannot be answered, others can.
            BudgetReached: a spending limit.
        """
        begun = self._clock()
        failures = unanswered = n_limited = 0
        last: ModelError | None = None
        while True:
            target = await self._next_target(call, begun, last)
            picked_at = self._clock()
            try:
                reply = await self.limiter.send(call, target)
            except EndpointPaused as error:
                last = last or error
                continue
            except RequestRejected as error:
                if not error.fatal:
                    raise
                if error.status == _FORBIDDEN and await self._answers_others(call, target):
                    raise RequestRejected(f"{error}; other requests are answered, so it is this text") from error
                self._breaker(target).rejection = error
                logger.warning("endpoint %s is not asked again: %s", target.endpoint, error)
                last, wait_s = error, 0.0
            except RateLimited as error:
                call.context.meter.use(call.role, target.name, target.endpoint).rate_limited += 1
                n_limited += 1  # the rate limiter pauses the endpoint
                last, wait_s = error, min(0.01 * 2.0 ** min(n_limited, 10), 1.0) * (0.5 + random.random())
            except ModelError as error:
                if not error.retryable:
                    raise
                call.context.meter.use(call.role, target.name, target.endpoint).failed += 1
                timed_out, unusable = isinstance(error, TimedOut), isinstance(error, UnusableReply)
                unanswered, failures = unanswered + (timed_out or unusable), failures + (not timed_out)
                elsewhere = any(self._is_available(each) for each in call.targets if each is not target)
                pause_s = min(backoff_s(failures), self.policy.max_pause_s)
                last, wait_s = error, 0.0 if timed_out or elsewhere else pause_s
                if isinstance(error, ModelUnavailable) and error.status == _CRASHED and failures > 1:
                    error.is_alive = error.is_alive or await self._answers_others(call, target)
                    wait_s = min(wait_s, backoff_s(0)) if error.is_alive else wait_s
                await self._raise_if_alone(call, target, begun, unanswered, failures, error)
                self.note_failed(target, picked_at, error)
                call.priority -= 1  # before calls that were never made
            else:
                self.note_answered(target)
                return reply
            if call.abandoned:
                raise last
            if wait_s:
                await self._sleep(wait_s)

    async def _raise_if_alone(
        self,
        call: Call[P, R],
        target: CallTarget[P, R],
        begun: float,
        unanswered: int,
        failures: int,
        error: ModelError,
    ) -> None:
        """Raise RequestRejected if this call fails again and again while others are answered.

        Args:
            unanswered: requests that timed out or had an unusable reply, and so may have been paid.
            failures: those that failed before their time-out.
        """
        exhausted = unanswered >= self.policy.attempts or failures >= min(call.max_failures, _MAX_LONE_FAILURES)
        if not exhausted or isinstance(error, EndpointUnreachable):
            return
        answered_at = max(self._breaker(each).answered_at for each in call.targets)
        if answered_at > begun or (failures == call.max_failures and await self._answers_others(call, target)):
            tries = count_noun(max(unanswered, failures), "try", "tries")
            raise RequestRejected(f"no reply in {tries} while other requests had theirs: {error}") from error

    async def _answers_others(self, call: Call[P, R], target: CallTarget[P, R]) -> bool:
        """Return whether an endpoint answers the smallest request that there is; False where it cannot be asked."""
        try:
            answers = await target.ping(call)
        except RequestRejected as refusal:  # of a small request of its own kind: the endpoint is at work
            answers = not refusal.fatal
        except ModelError:
            return False
        if answers:
            self.note_answered(target)
        return answers

    async def _next_target(self, call: Call[P, R], begun: float, last: ModelError | None) -> CallTarget[P, R]:
        """Return the endpoint to ask once one is available. Raises the last failure if the outage lasts too long."""
        targets = call.targets
        timeout_s = self.policy.outage_timeout_s
        timeout_s = min(self.policy.failover_s, timeout_s) if call.fails_over else timeout_s
        while True:
            now = self._clock()
            since = max(begun, *(self._breaker(each).answered_at for each in targets))
            if last is not None and now - since > timeout_s:
                if call.fails_over or isinstance(last, RateLimited):
                    raise last
                ended = copy(last)
                ended.args = (f"{last}; no endpoint answered for {timeout_s:g} s",)
                raise ended from last
            target = self.pick(targets)
            if target is not None:
                if self._breaker(target).failures < MAX_FAILURES:
                    return target
                try:
                    answers = await target.ping(call)
                except (RequestRejected, RateLimited):  # it answers; the call itself will tell why
                    return target
                except ModelError as failure:
                    call.context.meter.use("probe", target.name, target.endpoint).failed += 1
                    last = failure
                    self.note_failed(target, now, failure)
                    continue
                if answers:
                    self.note_answered(target)
                return target
            usable = [breaker for each in targets if (breaker := self._breaker(each)).rejection is None]
            if not usable:
                raise next(error for each in targets if (error := self._breaker(each).rejection) is not None)
            if last is None and call.fails_over:
                raise ModelError("every endpoint of the model is out of reach")
            if last is None and now - since > max(timeout_s, self.policy.trial_s):
                names = ", ".join(each.endpoint for each in targets)
                said = next((f"; the last error: {each.error}" for each in usable if each.error is not None), "")
                raise ModelUnavailable(f"no endpoint of the model could be asked: {names}{said}")
            left_s = min(each.down_until for each in usable) - now
            await self._sleep(min(max(left_s, 0.01), _POLL_S))  # a trial call may be answered before that

    def _is_available(self, target: CallTarget[Any, Any]) -> bool:
        breaker = self._breaker(target)
        return breaker.down_until <= self._clock() and breaker.rejection is None

    def _breaker(self, target: CallTarget[Any, Any]) -> CircuitBreaker:
        return self._breakers.setdefault(target.endpoint, CircuitBreaker(max_pause_s=self.policy.max_pause_s))
