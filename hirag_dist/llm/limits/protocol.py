"""Messages between workers and the quota coordinator."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

from hirag_dist.llm.limits.adaptive import LimitKind


class CallDemand(NamedTuple):
    """A waiting call.

    Attributes:
        tokens: the estimated use, for the rate.
        max_tokens, max_usd: the largest use, for the spending limit.
    """

    tokens: int
    max_tokens: int
    max_usd: float


@dataclass(slots=True)
class WorkerReport:
    """The permits that a worker has released at one endpoint, and the events there.

    All but the last four fields count from the worker's start, so that a report that is lost, late or delivered twice
    does no harm.

    Attributes:
        number: of the worker's reports to this endpoint; a report with a lower one was overtaken.
        released: granted calls that have ended or were not made.
        released_tokens, released_usd: what these could use at most.
        used_tokens, used_usd: what they used.
        answered, answered_tokens, latency_s: replies, their tokens, the sum of their seconds.
        refused: replies that their parser refused.
        found: replies of the ledger, for which no call was made.
        unused_requests: granted calls that were not made, for the rate.
        token_error: tokens used above those granted; below zero if less was used.
        n_limited: 429s.
        max_in_flight: largest number of calls in flight since the last report.
        limited: (seconds to wait or None, limit, calls in flight) of each 429 since the last report.
        requests_per_minute, tokens_per_minute: limits that headers named.
    """

    number: int = 0
    released: int = 0
    released_tokens: int = 0
    released_usd: float = 0.0
    used_tokens: int = 0
    used_usd: float = 0.0
    answered: int = 0
    answered_tokens: int = 0
    latency_s: float = 0.0
    timeouts: int = 0
    refused: int = 0
    found: int = 0
    unused_requests: int = 0
    token_error: int = 0
    n_limited: int = 0
    max_in_flight: int = 0
    limited: tuple[tuple[float | None, LimitKind, int], ...] = ()
    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None

    def release(self, calls: int, max_tokens: int, max_usd: float) -> None:
        """Count calls as released; below zero takes a release back."""
        self.released += calls
        self.released_tokens += max_tokens
        self.released_usd += max_usd

    def totals(self) -> CallTotals:
        """Return the calls so far; the tokens are those of replies."""
        counts = self.answered, self.answered_tokens, self.used_usd, self.n_limited
        return CallTotals(*counts, timeouts=self.timeouts, refused=self.refused, found=self.found)


@dataclass(frozen=True, slots=True)
class Grant:
    """Permission for some of the calls that were demanded, and the rules for the next report.

    Attributes:
        calls: number of calls: that many of the demand's first.
        has_reservation: whether the calls may not use more than the demand named, because of a spending limit.
        pause_s: time for which no call may be sent.
        report_s: time until the next report while calls are in flight; the more workers, the longer.
        is_prompt: whether the end of each call is to be reported at once, because others may wait for its slot.
        renews: whether a call that ends may be followed by another without a new grant.
    """

    calls: int = 0
    has_reservation: bool = False
    pause_s: float = 0.0
    report_s: float = 0.1
    is_prompt: bool = True
    renews: bool = False


@dataclass(frozen=True, slots=True)
class CallTotals:
    """Calls of all workers of a run.

    Attributes:
        answered: replies, those that were refused included.
        limited: 429s.
        in_flight: calls at this moment.
        pause_s: seconds for which an endpoint asked to send nothing, the longest of all endpoints.
        refused: replies that their parser refused.
        found: replies of the ledger, for which no call was made.
    """

    answered: int = 0
    tokens: int = 0
    usd: float = 0.0
    limited: int = 0
    in_flight: int = 0
    pause_s: float = 0.0
    timeouts: int = 0
    refused: int = 0
    found: int = 0

    def plus(self, more: CallTotals) -> CallTotals:
        """Return the sum with later totals, whose `in_flight` and `pause_s` it has."""
        return replace(more, **{name: getattr(self, name) + getattr(more, name) for name in _SUMS})

    def since(self, before: CallTotals) -> CallTotals:
        """Return the difference to earlier totals; `in_flight` and `pause_s` stay."""
        return replace(self, **{name: getattr(self, name) - getattr(before, name) for name in _SUMS})


_SUMS = ("answered", "tokens", "usd", "limited", "timeouts", "refused", "found")  # fields of `CallTotals` that add up


class QuotaClient(Protocol):
    """The quota coordinator, in this process or remote."""

    async def acquire(
        self, worker: str, endpoint: str, report: WorkerReport, demand: tuple[CallDemand, ...] = (), priority: int = 0
    ) -> Grant:
        """As `QuotaCoordinator.acquire`."""

    async def leave(self, worker: str) -> None:
        """As `QuotaCoordinator.leave`."""


logger = logging.getLogger(__name__)
_LONG_PAUSE_S = 10.0
_WARN_AFTER_S, _WARN_AGAIN_S = 15.0, 60.0
_LONG_WAIT_S = 30.0  # of the next call for the rate
_QUOTA = "check its quota, or name `rpm`, `tpm` or `max_concurrent` lower where others use it too"


class LimitLog:
    """Logs what is learned of one endpoint."""

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint
        self._paused_until = -math.inf
        self._refusals = 0  # 429s since the last reply
        self._refused_since = 0.0
        self._warn_at = math.inf
        self._wait_warn_at = -math.inf
        self._disbelieved: set[str] = set()

    def on_rates(self, before: tuple[float | None, float | None], after: tuple[float | None, float | None]) -> None:
        """Log rates (requests, tokens per second) that have changed by a fifth."""
        for unit, old, new in zip(("requests", "tokens"), before, after, strict=True):
            if new is not None and (old is None or abs(new - old) > 0.2 * old):
                logger.info("endpoint %s: at most %.0f %s a minute", self._endpoint, new * 60, unit)

    def on_disbelieved(self, limits: Mapping[str, float]) -> None:
        """Log limits a minute that headers named and that are too low to be true, each once."""
        for unit, named in limits.items():
            if unit not in self._disbelieved:
                self._disbelieved.add(unit)
                logger.warning(
                    "endpoint %s names a limit of %g %s a minute in its headers, which is too low to be true and is "
                    "not kept; name `%s` if it is",
                    self._endpoint,
                    named,
                    unit,
                    "rpm" if unit == "requests" else "tpm",
                )

    def on_wait(self, now: float, wait_s: float, limits: tuple[float | None, float | None]) -> None:
        """Log that the next call waits long for its turn within the rates (requests, tokens per second)."""
        if wait_s < _LONG_WAIT_S or now < self._wait_warn_at:
            return
        self._wait_warn_at = now + _WARN_AGAIN_S
        rates = [
            f"{rate * 60:,.4g} {unit} a minute"
            for unit, rate in zip(("requests", "tokens"), limits, strict=True)
            if rate is not None
        ]
        logger.warning(
            "endpoint %s: the next call waits %.0f s for %s; name `rpm` and `tpm` if the endpoint takes more",
            self._endpoint,
            wait_s,
            " and ".join(rates),
        )

    def on_report(self, now: float, answered: int, limited: int, pause_s: float) -> None:
        """Log a long pause, and an endpoint that answers nothing but 429."""
        if pause_s > _LONG_PAUSE_S and now > self._paused_until:
            self._paused_until = now + pause_s
            text = "endpoint %s asks to be left alone for %.0f s (429); waiting: %s"
            logger.warning(text, self._endpoint, pause_s, _QUOTA)
        if answered:
            if self._refusals and self._warn_at > self._refused_since + _WARN_AFTER_S:
                logger.warning("endpoint %s answers again", self._endpoint)
            self._refusals, self._warn_at = 0, math.inf
        elif limited:
            if not self._refusals:
                self._refused_since, self._warn_at = now, now + _WARN_AFTER_S
            self._refusals += limited
            if now >= self._warn_at:
                self._warn_at = now + _WARN_AGAIN_S
                logger.warning(
                    "endpoint %s has answered nothing but 429 for %.0f s (%d times); "
                    "going on until `llm.outage_timeout_s`: %s",
                    self._endpoint,
                    now - self._refused_since,
                    self._refusals,
                    _QUOTA,
                )
