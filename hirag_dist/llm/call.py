"""A call to an endpoint: what it takes, where it is sent, and the models of a role with their prices.

A role whose replies are all refused is stopped here: the cause is the model or the prompt, not the unit.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import time
from collections import defaultdict
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar, Final, Generic, Literal, Protocol, TypeVar, runtime_checkable

from hirag_dist.core.prompts.reply_validation import NOT_SENT
from hirag_dist.errors import RequestRejected
from hirag_dist.llm.usage import MAX_REPLY_TOKENS, UsageMeter
from hirag_dist.protocols import ChatModel
from hirag_dist.types import ChatReply, ChatRequest, RateLimits

MIN_UNITS = 8  # refused to their last attempt, with none accepted
MIN_SLOW_UNITS = 3  # where the refusals have taken SLOW_S: a slow model must not fail for an hour before it is stopped
SLOW_S = 60.0  # seconds since the first refused reply


class NotSent(RequestRejected):
    """The request was not sent, because those before it were all refused."""


@dataclass(slots=True)
class _Outcomes:
    """Outcomes of the units of a role."""

    accepted: bool = False  # whether a reply was usable
    suspect: set[str] = field(default_factory=set)  # the first units with a refused reply, at most `MIN_UNITS`
    refused: int = 0  # units refused to their last attempt
    first_at: float | None = None  # time of the first refused reply, in seconds
    stopped: bool = False  # whether enough units were refused, before any was accepted
    reason: str = ""
    decided: asyncio.Event = field(default_factory=asyncio.Event)  # by a usable reply, a stop or a divided unit


class SystematicRefusals:
    """Outcomes of units by role, as far as they come from new replies: stored ones cost nothing.

    After the first `MIN_UNITS` units with a refused reply and none with a usable one, calls for other units wait until
    these units have had all their attempts. If all are refused, no further request of the role is sent; where the
    refusals have taken `SLOW_S`, `MIN_SLOW_UNITS` units are enough. One usable reply is enough for the calls to go on.

    Args:
        clock: seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._roles: defaultdict[str, _Outcomes] = defaultdict(_Outcomes)

    def note_accepted(self, role: str) -> None:
        """Record that a reply of a role was usable."""
        outcomes = self._roles[role]
        outcomes.accepted = True
        outcomes.decided.set()

    def note_refused(self, role: str, unit: str, reason: str, *, final: bool = False) -> None:
        """Record that a reply of a role was refused.

        Args:
            unit: hash of what the request is about.
            final: whether it was the unit's last attempt.
        """
        outcomes, now = self._roles[role], self._clock()
        if outcomes.first_at is None:
            outcomes.first_at = now
        if len(outcomes.suspect) < MIN_UNITS:
            outcomes.suspect.add(unit)
        outcomes.reason = reason
        outcomes.refused += final
        enough = MIN_SLOW_UNITS if now - outcomes.first_at >= SLOW_S else MIN_UNITS
        if final and outcomes.refused >= enough:
            outcomes.stopped = True
            outcomes.decided.set()

    def note_divided(self, role: str) -> None:
        """Record that a unit was too long, and is asked about in parts: calls no longer wait for what becomes of it."""
        self._roles[role].decided.set()

    def check(self, role: str) -> None:
        """Raise NotSent where enough units of a role were refused and none was accepted."""
        outcomes = self._roles[role]
        if outcomes.stopped and not outcomes.accepted:
            raise NotSent(
                f"{NOT_SENT}the first {outcomes.refused} units of role {role} were all refused; the last "
                f"reason: {outcomes.reason}"
            )

    def undecided(self, role: str, unit: str) -> asyncio.Event | None:
        """Return the event that a call for a unit has to wait for; None if it need not wait."""
        outcomes = self._roles[role]
        waits = not outcomes.decided.is_set() and len(outcomes.suspect) == MIN_UNITS and unit not in outcomes.suspect
        return outcomes.decided if waits else None


P = TypeVar("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class CallContext:
    """The settings that all calls of one task share.

    Attributes:
        is_retry: whether a refused unit gets as many new attempts as a new one, in addition to those in the ledger.
        stored: ledger key → record of each reply that the calls have stored.
        stage: folder of the stage that makes the calls; empty outside a stage.
    """

    meter: UsageMeter = field(default_factory=UsageMeter)
    is_retry: bool = False
    stored: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    stage: str = ""


@dataclass(frozen=True, slots=True)
class CallReply(Generic[R]):
    """A reply and what it used.

    Attributes:
        endpoint: the configured name of the endpoint that replied.
        rate_limits: those that the endpoint's headers named.
    """

    value: R
    endpoint: str
    tokens: int
    usd: float
    rate_limits: RateLimits | None = None


class CallTarget(Protocol[P, R]):
    """An endpoint that can take the call: the innermost layer.

    Attributes:
        operation: `chat`, `embeddings` or `rerank`, for traces.
    """

    operation: ClassVar[str]

    @property
    def endpoint(self) -> str:
        """The configured name, which rate limits go by."""

    @property
    def name(self) -> str:
        """The model's name, for the bill."""

    @property
    def weight(self) -> float:
        """Its share of the calls, where all endpoints are available."""

    def max_use(self, call: Call[P, R]) -> tuple[int, float]:
        """Return the (tokens, US dollars) that the call can use at most, for spending limits."""

    async def send(self, call: Call[P, R]) -> CallReply[R]:
        """Send the call once and count what it cost. Raises ModelError."""

    async def ping(self, call: Call[P, R]) -> bool:
        """Return True if the endpoint answers the smallest request; False if there is no such request to send.

        Raises ModelError.
        """


@dataclass(slots=True, eq=False)
class Call(Generic[P, R]):
    """One request with everything that the layers need to know of it.

    Attributes:
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


async def finish_if_sent(call: Call[P, R], work: Coroutine[Any, Any, CallReply[R]]) -> CallReply[R]:
    """Return the result of `work`, which sends a call and stores its reply.

    When the caller is cancelled, a request in flight is finished and its reply stored before the cancellation rises.
    """
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        call.abandoned = True  # a request in flight is finished, and none is sent after it
        if not call.in_flight:
            task.cancel()
        await asyncio.wait([task])
        if not task.cancelled():
            task.exception()  # irrelevant to a caller that was cancelled
        raise


@dataclass(frozen=True, slots=True)
class PaidReply(Generic[R]):
    """The reply to one request of a model that is paid by its input tokens.

    Attributes:
        input_tokens: input tokens that the endpoint reports; None if it reports none.
    """

    value: R
    input_tokens: int | None = None
    rate_limits: RateLimits | None = None


class RequestModel(Protocol):
    """A model that is paid by its input tokens; a call of `request` is one request, with the payload of a `Call`."""

    name: str

    async def request(self, payload: Any, /) -> PaidReply[Any]:
        """Return the reply. Raises as `ChatModel.complete`."""


M = TypeVar("M", bound=RequestModel)


@dataclass(frozen=True)
class PricedByToken(Generic[M]):
    """A model at an endpoint that is paid by its input tokens. Implements `CallTarget`.

    Attributes:
        price: US dollars a million tokens; None: not known.
    """

    operation: ClassVar[str]
    endpoint: str
    model: M
    price: float | None = 0.0
    weight: float = 1.0

    @property
    def name(self) -> str:
        """The model's name, for the bill."""
        return self.model.name

    def cost(self, tokens: int) -> float:
        """Return US dollars; 0.0 where the price is not known: then no limit in dollars is set."""
        return tokens * (self.price or 0.0) / 1e6

    def billed(self, tokens: int) -> float:
        """Return US dollars for the bill; NaN where the price is not known."""
        return math.nan if self.price is None else self.cost(tokens)

    def max_use(self, call: Call[Any, Any]) -> tuple[int, float]:
        """Return the (tokens, US dollars) that the call can use at most."""
        return call.max_input_tokens, self.cost(call.max_input_tokens)

    async def send(self, call: Call[Any, Any]) -> CallReply[Any]:
        """Send one request and count its cost: it is paid even if the caller is cancelled."""
        reply = await self.model.request(call.payload)
        tokens = call.tokens if reply.input_tokens is None else reply.input_tokens
        used, usd = ChatReply("", input_tokens=tokens), self.billed(tokens)
        call.context.meter.count(call.role, self.name, self.endpoint, used, usd, from_ledger=False)
        return CallReply(reply.value, self.endpoint, tokens, self.cost(tokens), reply.rate_limits)

    async def ping(self, call: Call[Any, Any]) -> bool:
        """Return False: the smallest request is as good as any."""
        return False


@runtime_checkable
class Pingable(Protocol):
    """A model that can be asked for one token."""

    async def ping(self) -> ChatReply:
        """Return the reply. Raises as `ChatModel.complete`."""


@dataclass(frozen=True)
class PricedModel:
    """A model at an endpoint with its price and settings. Implements `llm.call.CallTarget`.

    Attributes:
        settings: those that change replies (temperature, extra body); part of ledger keys.
        price: US dollars per million tokens: input, cached input, output; None: not known.
        paid: whether its replies go through ledger and rate limits; built-in models compute theirs again.
        weight: its share of a role's requests, if several endpoints have the same model.
        max_reply_tokens: Maximum tokens of any reply; requests may have a lower limit of their own.
    """

    operation: ClassVar[str] = "chat"
    endpoint: str
    model: ChatModel
    settings: str = ""
    price: tuple[float, float, float] | None = (0.0, 0.0, 0.0)
    paid: bool = True
    weight: float = 1.0
    max_reply_tokens: int | None = None

    @property
    def name(self) -> str:
        """The model's name, for the bill."""
        return self.model.name

    def cost(self, reply: ChatReply) -> float:
        """Return US dollars; 0.0 where the price is not known: then no limit in dollars is set."""
        if self.price is None:
            return 0.0
        fresh = reply.input_tokens - reply.cached_tokens
        return (fresh * self.price[0] + reply.cached_tokens * self.price[1] + reply.output_tokens * self.price[2]) / 1e6

    def max_use(self, call: Call[Any, Any]) -> tuple[int, float]:
        """Return the (tokens, US dollars) that the call can use at most."""
        limits = [limit for limit in (call.max_output_tokens, self.max_reply_tokens) if limit]
        n_output = min(limits, default=MAX_REPLY_TOKENS)
        largest = ChatReply("", input_tokens=call.max_input_tokens, output_tokens=n_output)
        return call.max_input_tokens + n_output, self.cost(largest)

    async def send(self, call: ChatCall) -> CallReply[ChatReply]:
        """Send the request once and count its cost: it is paid even if the caller is cancelled."""
        reply = await self.model.complete(call.payload)
        usd = self.cost(reply)
        self.count(call.context.meter, call.role, reply, usd)
        tokens = reply.input_tokens + reply.output_tokens
        return CallReply(reply, self.endpoint, tokens, usd, self.model.rate_limits)

    async def ping(self, call: Call[Any, Any]) -> bool:
        """Ask for one token and count its cost; return False if the model cannot be asked for so little."""
        if not isinstance(self.model, Pingable):
            return False
        reply = await self.model.ping()
        self.count(call.context.meter, "probe", reply, self.cost(reply))
        return True

    def count(self, meter: UsageMeter, role: str, reply: ChatReply, usd: float, from_ledger: bool = False) -> None:
        """Count a reply's tokens and cost."""
        known = math.nan if self.price is None else usd
        meter.count(role, reply.model or self.name, self.endpoint, reply, known, from_ledger)


ChatCall = Call[ChatRequest, ChatReply]


@dataclass(frozen=True)
class ModelGroup:
    """The endpoints of one model with the same settings: they give the same replies and share ledger keys."""

    members: tuple[PricedModel, ...]

    @property
    def weight(self) -> float:
        """The sum of its members' weights."""
        return sum(each.weight for each in self.members)

    @property
    def first(self) -> PricedModel:
        """The first member."""
        return self.members[0]

    def member(self, endpoint: object) -> PricedModel:
        """Return the member at an endpoint; the first if the configuration does not have that endpoint any more."""
        return next((each for each in self.members if each.endpoint == endpoint), self.first)


def group_models(models: Sequence[PricedModel]) -> list[ModelGroup]:
    """Return the models grouped by name and settings."""
    by_model: dict[tuple[str, str, bool], list[PricedModel]] = {}
    for each in models:
        by_model.setdefault((each.model.name, each.settings, each.paid), []).append(each)
    return [ModelGroup(tuple(members)) for members in by_model.values()]


@lru_cache(maxsize=256)  # used several times during a request
def request_hash(request: ChatRequest) -> str:
    """Return the SHA-256 (hex) of everything that the model sees, and of the replicate number."""
    seen: list[Any] = [
        [(message.role, message.content) for message in request.messages],
        request.form,
        request.hashed_limit,
    ]
    if request.replicate:  # the first replicate keeps the hash of requests without replicates
        seen.append(request.replicate)
    return hashlib.sha256(json.dumps(seen).encode()).hexdigest()


PART: Final = "part"


def ledger_key(request: ChatRequest, chosen: PricedModel, attempt: int | Literal["part"]) -> str:
    """Return the ledger key of a reply: a hash of request, model, settings and attempt.

    Args:
        attempt: its number; `PART` for the part of a pack's reply that is about the unit of the request. The model saw
            the texts of other units then too, which may have other access labels.
    """
    parts = f"chat|{chosen.model.name}|{chosen.settings}|{request_hash(request)}|{attempt}"
    return hashlib.sha256(parts.encode()).hexdigest()[:40]


def in_order(groups: list[ModelGroup], request: ChatRequest) -> list[ModelGroup]:
    """Return the groups of a role: first the one that the request's hash chooses by weight, then its fallbacks."""
    place = int(request_hash(request)[:12], 16) / 16**12 * sum(each.weight for each in groups)
    for at, group in enumerate(groups):
        place -= group.weight
        if place < 0:
            return groups[at:] + groups[:at]
    return groups[-1:] + groups[:-1]
