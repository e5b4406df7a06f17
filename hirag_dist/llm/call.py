"""The call that passes through the layers cached → retried → limited → endpoint, and the reply that comes back."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from hirag_dist.llm.refusals import SystematicRefusals
from hirag_dist.llm.usage import UsageMeter
from hirag_dist.types import RateLimits

P = TypeVar("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class CallContext:
    """The settings that all calls of one task share.

    Attributes:
        meter: counts what the calls cost.
        is_retry: whether a refused unit gets as many new attempts as a new one, in addition to those in the ledger.
        stored: ledger key → record of each reply that the calls have stored.
    """

    meter: UsageMeter = field(default_factory=UsageMeter)
    is_retry: bool = False
    stored: dict[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CallReply(Generic[R]):
    """A reply and what it used.

    Attributes:
        endpoint: the configured name of the endpoint that replied.
        tokens, usd: what the call used.
        rate_limits: the limits that the endpoint's headers named.
    """

    value: R
    endpoint: str
    tokens: int
    usd: float
    rate_limits: RateLimits | None = None


class CallTarget(Protocol[P, R]):
    """An endpoint that can take the call: the innermost layer."""

    @property
    def endpoint(self) -> str:
        """The configured name, which rate limits go by."""
        ...

    @property
    def name(self) -> str:
        """The model's name, for the bill."""
        ...

    @property
    def weight(self) -> float:
        """Its share of the calls, where all endpoints are available."""
        ...

    def max_use(self, call: Call[P, R]) -> tuple[int, float]:
        """Return the (tokens, US dollars) that the call can use at most, for spending limits."""
        ...

    async def send(self, call: Call[P, R]) -> CallReply[R]:
        """Send the call once and count what it cost. Raises ModelError."""
        ...

    async def ping(self, call: Call[P, R]) -> bool:
        """Return True if the endpoint answers the smallest request; False if there is no such request to send.

        Raises ModelError.
        """
        ...


@dataclass(slots=True, eq=False)
class Call(Generic[P, R]):
    """One request with everything that the layers need to know of it.

    Attributes:
        payload: the content that the endpoint is sent.
        targets: endpoints that give the same reply.
        tokens: the estimated use, for rate limits.
        max_input_tokens: the largest prompt, for spending limits.
        max_output_tokens: the largest reply; None for the endpoint's own limit.
        priority: lower goes first.
        max_failures: failures after which the endpoint is asked whether it answers others, which ends the call.
        fails_over: whether another model can be asked, so that an outage is not waited out here.
        unit: hash of what the call is about; empty where nothing depends on it.
        refusals: stops the call before it is sent, if the replies of its role are all refused; None never does.
        in_flight: whether a request was sent whose reply is neither refused nor stored.
        abandoned: whether the caller was cancelled: no further request is sent.
    """

    payload: P
    targets: Sequence[CallTarget[P, R]]
    role: str
    tokens: int
    max_input_tokens: int
    max_output_tokens: int | None = None
    priority: int = 0
    max_failures: int = 10
    fails_over: bool = False
    context: CallContext = field(default_factory=CallContext)
    unit: str = ""
    refusals: SystematicRefusals | None = None
    in_flight: bool = False
    abandoned: bool = False

    def mark_sent(self) -> None:
        """Record that a request is sent."""
        self.in_flight = True

    def abandon(self, task: asyncio.Task[Any]) -> None:
        """Cancel the task of this call, unless a request is in flight: that is finished, and none is sent after it."""
        self.abandoned = True
        if not self.in_flight:
            task.cancel()


async def finish_if_sent(call: Call[P, R], work: Coroutine[Any, Any, CallReply[R]]) -> CallReply[R]:
    """Return the result of `work`, which sends a call and stores its reply.

    When the caller is cancelled, a request in flight is finished and its reply stored before the cancellation rises.
    """
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        call.abandon(task)
        await asyncio.wait([task])
        if not task.cancelled():
            task.exception()  # irrelevant to a caller that was cancelled
        raise
