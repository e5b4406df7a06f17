"""The pool that stages ask: a reply from the ledger, or from an endpoint within its limits, stored before use."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Protocol, TypeVar

from hirag_dist.core.prompts.reply_validation import MalformedReply
from hirag_dist.errors import Deferred, ModelError, RateLimited, RequestRejected
from hirag_dist.llm.batch_api import BATCH_PRICE, Batchable, BatchCall, Collector, collecting
from hirag_dist.llm.reply_store import Ledger
from hirag_dist.llm.reply_store.codec import record_of, reply_from
from hirag_dist.llm.retrying import CallCost, CallResult, RetryingClient
from hirag_dist.llm.token_estimate import MOST_REPLY_TOKENS, TokenEstimate, TokenEstimates
from hirag_dist.llm.usage import UsageMeter, current_meter, retrying
from hirag_dist.protocols import ChatModel
from hirag_dist.types import ChatReply, ChatRequest, Message, Rejected

T = TypeVar("T")


class _HasWeight(Protocol):
    @property
    def weight(self) -> float: ...


Weighted = TypeVar("Weighted", bound=_HasWeight)


@dataclass(frozen=True)
class PricedModel:
    """A model at an endpoint, with what it costs and what decides its replies.

    Attributes:
        endpoint: the configured name, which the budget goes by.
        settings: whatever changes replies besides the request (temperature, extra body); part of ledger keys.
        price: US dollars a million tokens: input, cached input, output.
        paid: whether its replies go through ledger and budget; built-in models compute theirs again.
        weight: its share of a role's requests, where several endpoints have the same model.
        max_reply_tokens: what its replies are limited to where the request does not say.
    """

    endpoint: str
    model: ChatModel
    settings: str = ""
    price: tuple[float, float, float] = (0.0, 0.0, 0.0)
    paid: bool = True
    weight: float = 1.0
    max_reply_tokens: int | None = None

    @property
    def name(self) -> str:
        """The model's name, for the bill."""
        return self.model.name

    def cost(self, reply: ChatReply) -> float:
        """Return US dollars."""
        fresh = reply.input_tokens - reply.cached_tokens
        return (fresh * self.price[0] + reply.cached_tokens * self.price[1] + reply.output_tokens * self.price[2]) / 1e6

    def batch_cost(self, reply: ChatReply) -> float:
        """Return US dollars, where the reply came in a batch."""
        return self.cost(reply) * BATCH_PRICE


@dataclass(frozen=True)
class _Group:
    """The endpoints of one model with the same settings: they give the same replies, and share ledger keys."""

    members: tuple[PricedModel, ...]

    @property
    def weight(self) -> float:
        return sum(each.weight for each in self.members)

    @property
    def one(self) -> PricedModel:
        return self.members[0]


@dataclass(frozen=True, slots=True)
class _StoredReply:
    """A reply.

    Attributes:
        is_new: whether it was asked for by this run.
    """

    reply: ChatReply
    answerer: PricedModel
    is_new: bool


@dataclass(slots=True)
class _SingleFlight:
    """Equal requests, one at a time; n_present hold the lock or wait for it."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    n_present: int = 0


class EndpointPool:
    """Implements `ports.ChatPool`."""

    def __init__(
        self,
        roles: Mapping[str, Sequence[PricedModel]],
        ledger: Ledger | None,
        caller: RetryingClient,
        count_tokens: Callable[[str], int],
    ) -> None:
        """Compose the pool.

        Args:
            roles: role → its models. A request's hash chooses among models; the endpoints of one model share its
                requests by weight and load.
            ledger: where replies are kept; None keeps none, for answering questions.
        """
        self._roles = {role: _groups(models) for role, models in roles.items()}
        self._ledger = ledger
        self._caller = caller
        self._count_tokens = count_tokens
        self._estimates = TokenEstimates(count_tokens, caller.budget.spending)
        self._turns: dict[str, _SingleFlight] = {}

    async def ask(self, request: ChatRequest, accept: Callable[[ChatReply], T]) -> T | Rejected:
        """Return what `accept` makes of the reply, or a `Rejected` after the last attempt.

        Attempts whose refused reply is in the ledger count; where dead letters are tried again
        (`metering.retrying`), as many new ones are made as a unit has to begin with.

        Raises:
            Deferred: the call was noted for a batch (`batching.collecting`).
            ModelError: no endpoint answers for longer than the run's patience, or none lets us in.
            BudgetReached: the call would pass a spending limit.
            StoreError: the reply could not be made durable.
        """
        groups = self._in_order(request)
        meter = current_meter.get() or UsageMeter()
        most = self._caller.patience.attempts
        asked, reply, reason = request, ChatReply(""), ""
        attempt = n_new = 0
        while True:
            try:
                found = await self._reply(asked, groups, attempt, (n_new if retrying.get() else attempt) < most)
            except RequestRejected as error:
                if error.fatal:
                    raise
                return Rejected(request.unit, str(error), attempt + 1, request.text, reply.text)
            if found is None:
                return Rejected(request.unit, reason, attempt, request.text, reply.text)
            reply, answerer = found.reply, found.answerer
            try:
                return accept(reply)
            except MalformedReply as refusal:
                reason = str(refusal)
                meter.use(request.role, reply.model or answerer.name, answerer.endpoint).rejected += 1
                asked = _again(request, reply, reason)
            attempt += 1
            n_new += found.is_new

    async def stream(self, request: ChatRequest) -> AsyncGenerator[str]:
        """Yield the reply's text in pieces; nothing is stored. An endpoint that fails before the first is replaced."""
        groups = self._in_order(request)
        targets = [each for group in groups for each in group.members]
        last: ModelError | None = None
        for _ in range(max(len(targets), self._caller.patience.attempts)):
            target = self._caller.pick(targets) or targets[0]
            picked_at = self._caller.now()
            began = False
            try:
                async with aclosing(self._pieces(request, target)) as pieces:
                    async for piece in pieces:
                        began = True
                        yield piece
                self._caller.note_answered(target)
                return
            except ModelError as error:
                if error.retryable and not isinstance(error, RateLimited):
                    self._caller.note_failed(target, picked_at)
                if began or not (error.retryable or len(targets) > 1):
                    raise
                last = error
                targets = [each for each in targets if each is not target] or targets
        if last is not None:
            raise last

    def model_name(self, request: ChatRequest) -> str:
        """Return the name of the model that answers a request, if it is well."""
        return self._in_order(request)[0].one.name

    async def close(self) -> None:
        """Wait for what is still in flight; close every model."""
        await self._caller.close()
        every = [each for groups in self._roles.values() for group in groups for each in group.members]
        for model in {id(each.model): each.model for each in every}.values():
            await model.close()

    def _in_order(self, request: ChatRequest) -> list[_Group]:
        """Return the groups of a role: first the one that the request's hash chooses, then those it falls back on."""
        groups = self._roles[request.role]
        if len(groups) == 1:
            return groups
        first = groups.index(_by_weight(groups, request_hash(request)))
        return groups[first:] + groups[:first]

    async def _reply(
        self, request: ChatRequest, groups: list[_Group], attempt: int, may_send: bool
    ) -> _StoredReply | None:
        """Return a reply, and who gave it; None where none is stored and none may be sent for."""
        chosen = groups[0].one
        if not chosen.paid:
            if not may_send:
                return None
            reply = await chosen.model.complete(request)
            _count(request, reply, chosen, stored=False)
            return _StoredReply(reply, chosen, is_new=True)
        if self._ledger is None:
            return await self._send(request, groups, attempt) if may_send else None
        collector = collecting.get()
        async with self._turn(ledger_key(request, chosen, attempt)):  # of two equal requests the second finds a reply
            for group in groups:
                record = await self._ledger.get(ledger_key(request, group.one, attempt))
                if record is not None:
                    reply, payer = reply_from(record), _payer(group, record)
                    _count(request, reply, payer, stored=True, price=float(record.get("price", 1.0)))
                    return _StoredReply(reply, payer, collector is not None and record.get("run") == collector.run)
            if not may_send:
                return None
            if collector is not None:
                self._defer(request, groups[0], attempt, collector)
            return await self._send(request, groups, attempt)

    def _defer(self, request: ChatRequest, group: _Group, attempt: int, collector: Collector) -> None:
        """Note a call for a batch of an endpoint that its hash chooses; return where none of them takes batches.

        Raises:
            Deferred: it was noted.
        """
        key = ledger_key(request, group.one, attempt)
        able = [each for each in group.members if isinstance(each.model, Batchable)]
        if not able:
            return
        target = _by_weight(able, key)
        assert isinstance(target.model, Batchable)
        estimate = self._estimates.of(request)
        need = _need(request, target, attempt, estimate)
        call = BatchCall(key, target.endpoint, request.role, need.most_tokens, need.most_usd * BATCH_PRICE)
        collector.add(call, target.model.batch_body(request), estimate.most_input)
        raise Deferred(f"a call of role {request.role} waits for a batch")

    @asynccontextmanager
    async def _turn(self, key: str) -> AsyncIterator[None]:
        turn = self._turns.setdefault(key, _SingleFlight())
        turn.n_present += 1
        try:
            async with turn.lock:
                yield
        finally:
            turn.n_present -= 1
            if not turn.n_present:
                self._turns.pop(key, None)

    async def _send(self, request: ChatRequest, groups: list[_Group], attempt: int) -> _StoredReply:
        estimate = self._estimates.of(request)
        for number, group in enumerate(groups):
            last_resort = number == len(groups) - 1
            try:
                target, reply = await self._caller.call(
                    group.members,
                    send=lambda target: self._complete(request, target, estimate),
                    store=lambda target, reply: self._store(request, target, attempt, reply),
                    need=lambda target: _need(request, target, attempt, estimate),
                    role=request.role,
                    last_resort=last_resort,
                )
                if self._caller.patience.hedge_s is not None and self._ledger is not None:
                    # Two copies may have come: the one that was stored first counts, now as in every later run.
                    record = await self._ledger.get(ledger_key(request, target, attempt))
                    reply = reply if record is None else reply_from(record)
                return _StoredReply(reply, target, is_new=True)
            except ModelError as error:
                elsewhere = not isinstance(error, RequestRejected) or error.fatal
                if last_resort or not elsewhere:
                    raise
        raise AssertionError("a role has at least one model")

    async def _complete(
        self, request: ChatRequest, target: PricedModel, estimate: TokenEstimate
    ) -> CallResult[ChatReply]:
        reply = await target.model.complete(request)
        self._estimates.learn(request, estimate, reply)
        _count(request, reply, target, stored=False)  # here: it is paid, whatever becomes of whoever asked
        limits = getattr(target.model, "rate_limits", None)
        named = (None, None) if limits is None else (limits.requests, limits.tokens)
        return CallResult(reply, reply.input_tokens + reply.output_tokens, target.cost(reply), named)

    async def _store(self, request: ChatRequest, target: PricedModel, attempt: int, reply: ChatReply) -> None:
        if self._ledger is not None:
            await self._ledger.put(ledger_key(request, target, attempt), record_of(reply, target.endpoint))

    async def _pieces(self, request: ChatRequest, target: PricedModel) -> AsyncGenerator[str]:
        need = _need(request, target, 0, self._estimates.of(request))
        permit = await self._caller.budget.acquire(
            target.endpoint, need.tokens, need.most_usd, most_tokens=need.most_tokens
        )
        written: list[str] = []
        try:
            async with aclosing(target.model.stream(request)) as pieces:
                async for piece in pieces:
                    written.append(piece)
                    yield piece
        except RateLimited as error:
            permit.limited(error.retry_after_s, error.kind)
            raise
        except BaseException:
            permit.failed()
            raise
        permit.answered(*self._streamed(request, target, need, "".join(written)))

    def _streamed(self, request: ChatRequest, target: PricedModel, need: CallCost, text: str) -> tuple[int, float]:
        """Put a streamed reply on the bill, by our own count; return (tokens, US dollars), as expected for no bill."""
        if current_meter.get() is None and not self._caller.budget.spending:
            return need.tokens, 0.0  # nobody asks, and counting takes its time
        read = sum(self._count_tokens(message.content) for message in request.messages)
        reply = ChatReply("", "stop", target.name, input_tokens=read, output_tokens=self._count_tokens(text))
        _count(request, reply, target, stored=False)
        return reply.input_tokens + reply.output_tokens, target.cost(reply)


@lru_cache(maxsize=256)  # asked for several times while a request is under way
def request_hash(request: ChatRequest) -> str:
    """Return the SHA-256 (hex) of all that the model sees, and of which time it is asked that."""
    seen: list[Any] = [
        [(message.role, message.content) for message in request.messages],
        request.form,
        request.max_tokens,
    ]
    if request.replicate:  # a first asking keeps the hash that it always had
        seen.append(request.replicate)
    return hashlib.sha256(json.dumps(seen).encode()).hexdigest()


def ledger_key(request: ChatRequest, chosen: PricedModel, attempt: int) -> str:
    """Return what a reply is stored under: the request, the model and its settings, and the attempt."""
    parts = f"chat|{chosen.model.name}|{chosen.settings}|{request_hash(request)}|{attempt}"
    return hashlib.sha256(parts.encode()).hexdigest()[:40]


def _count(request: ChatRequest, reply: ChatReply, answerer: PricedModel, stored: bool, price: float = 1.0) -> None:
    """Put a reply on the bill; `price` is what share of the model's it cost."""
    meter = current_meter.get()
    if meter is not None:
        name = reply.model or answerer.name
        meter.count(request.role, name, answerer.endpoint, reply, answerer.cost(reply) * price, stored)


def _need(request: ChatRequest, target: PricedModel, attempt: int, estimate: TokenEstimate) -> CallCost:
    n_output = estimate.most_output or target.max_reply_tokens or MOST_REPLY_TOKENS
    most = ChatReply("", input_tokens=estimate.most_input, output_tokens=n_output)
    begun_first = -(attempt + request.round)  # what is begun ends first: its task waits for it
    return CallCost(estimate.expected, estimate.most_input + n_output, target.cost(most), begun_first)


def _groups(models: Sequence[PricedModel]) -> list[_Group]:
    by_model: dict[tuple[str, str, bool], list[PricedModel]] = {}
    for each in models:
        by_model.setdefault((each.model.name, each.settings, each.paid), []).append(each)
    return [_Group(tuple(members)) for members in by_model.values()]


def _payer(group: _Group, record: Mapping[str, Any]) -> PricedModel:
    """Return the endpoint that a stored reply came from; where the configuration has it no more, the group's first."""
    return next((each for each in group.members if each.endpoint == record.get("endpoint")), group.one)


def _by_weight(choices: Sequence[Weighted], hashed: str) -> Weighted:
    """Return the choice that a hash (hex) falls on."""
    place = int(hashed[:12], 16) / 16**12 * sum(each.weight for each in choices)
    for each in choices:
        place -= each.weight
        if place < 0:
            return each
    return choices[-1]


def _again(request: ChatRequest, reply: ChatReply, reason: str) -> ChatRequest:
    said = (Message("assistant", reply.text),) if reply.text.strip() else ()
    ask = Message("user", f"That reply cannot be used: {reason}. Reply again, in the requested form and complete.")
    return replace(request, messages=(*request.messages, *said, ask))
