"""What workers and the treasury say to each other."""

from __future__ import annotations

from dataclasses import dataclass

from hirag_dist.llm.limits.adaptive import LimitKind


@dataclass(frozen=True, slots=True)
class WorkerUsage:
    """What a worker holds at one endpoint.

    Attributes:
        slot_loan, loan: numbers of the latest loans of slots and of permits that it knows of.
        slots: calls that it may have in flight; busy: those it has.
        used_tokens, used_usd: settled, since it lives.
        held_tokens, held_usd: reserved for calls in flight or not yet spent, of what money was lent.
    """

    slot_loan: int
    loan: int
    slots: int
    busy: int
    used_tokens: int
    used_usd: float
    held_tokens: int
    held_usd: float


@dataclass(frozen=True, slots=True)
class LeaseDemand:
    """What a worker lacks for the calls that wait: slots, or else permits (requests, tokens, money) for some of them.

    Attributes:
        priority: of the first of them; lower goes first.
        slots: above 0, this asks for slots and nothing else.
        requests, tokens: for as many calls as it could start soon; `first_…` for the first of them alone.
        spend_tokens, spend_usd: to be reserved under a spending limit, likewise.
    """

    priority: int
    slots: int = 0
    requests: int = 0
    tokens: int = 0
    spend_tokens: int = 0
    spend_usd: float = 0.0
    first_requests: int = 0
    first_tokens: int = 0
    first_spend_tokens: int = 0
    first_spend_usd: float = 0.0


@dataclass(frozen=True, slots=True)
class Lease:
    """What a worker gets on top of what it holds. `slots` is all that it may hold.

    Attributes:
        valid_s: requests and tokens not used by then go back.
    """

    number: int
    slots: int
    requests: int
    tokens: int
    spend_tokens: int
    spend_usd: float
    valid_s: float


@dataclass(frozen=True, slots=True)
class LeaseAdjustment:
    """What a worker is told in return for its report.

    Attributes:
        slots: that it should come down to.
        pause_s: for which nothing is to be sent.
        report_s: after which it should report again while nothing but that is to be said; the more workers there are,
            the longer.
    """

    slots: int
    pause_s: float
    report_s: float = 0.0


@dataclass(frozen=True, slots=True)
class UsageReport:
    """What happened at an endpoint since the last report.

    Attributes:
        limited: (seconds to wait or None, what was limited, calls in flight here) of each 429.
        requests_a_minute, tokens_a_minute: limits that headers named.
        unused_requests, unused_tokens: of loans that ran out.
        most_busy: calls in flight at a time, at most.
        token_error: tokens used above those reserved, of calls that ended (below zero: less was used).
    """

    answered: int = 0
    answered_tokens: int = 0
    latency_s: float = 0.0
    most_busy: int = 0
    slow: int = 0
    limited: tuple[tuple[float | None, LimitKind, int], ...] = ()
    requests_a_minute: float | None = None
    tokens_a_minute: float | None = None
    unused_requests: int = 0
    unused_tokens: int = 0
    token_error: int = 0
