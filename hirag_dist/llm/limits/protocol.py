"""Messages between workers and the quota coordinator."""

from __future__ import annotations

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


@dataclass(frozen=True, slots=True)
class WorkerReport:
    """The permits that a worker has released at one endpoint, and the events since its last report.

    What is released and used is counted since the worker's start, so that a report that is lost, delayed or delivered
    twice does no harm.

    Attributes:
        released: granted calls that have ended or were not made.
        released_tokens, released_usd: what these could use at most.
        used_tokens, used_usd: what they used.
        answered, answered_tokens, latency_s: replies, their tokens, mean seconds per reply.
        max_in_flight: largest number of calls in flight.
        timeouts: calls that timed out.
        refused: replies that their parser refused.
        limited: (seconds to wait or None, limit, calls in flight) of each 429.
        requests_per_minute, tokens_per_minute: limits that headers named.
        unused_requests: granted calls that were not made, for the rate.
        token_error: tokens used above those granted; below zero if less was used.
    """

    released: int = 0
    released_tokens: int = 0
    released_usd: float = 0.0
    used_tokens: int = 0
    used_usd: float = 0.0
    answered: int = 0
    answered_tokens: int = 0
    latency_s: float = 0.0
    max_in_flight: int = 0
    timeouts: int = 0
    refused: int = 0
    limited: tuple[tuple[float | None, LimitKind, int], ...] = ()
    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None
    unused_requests: int = 0
    token_error: int = 0


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
        tokens, usd: used.
        limited: 429s.
        in_flight: calls at this moment.
        pause_s: seconds for which an endpoint asked to send nothing, the longest of all endpoints.
        timeouts: calls that timed out.
        refused: replies that their parser refused.
    """

    answered: int = 0
    tokens: int = 0
    usd: float = 0.0
    limited: int = 0
    in_flight: int = 0
    pause_s: float = 0.0
    timeouts: int = 0
    refused: int = 0

    def plus(self, more: CallTotals) -> CallTotals:
        """Return the sum with later totals, whose `in_flight` and `pause_s` it has."""
        return replace(
            more,
            answered=self.answered + more.answered,
            tokens=self.tokens + more.tokens,
            usd=self.usd + more.usd,
            limited=self.limited + more.limited,
            timeouts=self.timeouts + more.timeouts,
            refused=self.refused + more.refused,
        )

    def since(self, before: CallTotals) -> CallTotals:
        """Return the difference to earlier totals; `in_flight` and `pause_s` stay."""
        return replace(
            self,
            answered=self.answered - before.answered,
            tokens=self.tokens - before.tokens,
            usd=self.usd - before.usd,
            limited=self.limited - before.limited,
            timeouts=self.timeouts - before.timeouts,
            refused=self.refused - before.refused,
        )


class QuotaClient(Protocol):
    """The quota coordinator, in this process or remote."""

    async def acquire(
        self, worker: str, endpoint: str, report: WorkerReport, demand: tuple[CallDemand, ...] = (), priority: int = 0
    ) -> Grant:
        """As `QuotaCoordinator.acquire`."""
        ...

    async def leave(self, worker: str) -> None:
        """As `QuotaCoordinator.leave`."""
        ...
