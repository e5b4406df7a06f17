"""The pool of chat models: a reply from the ledger, or from an endpoint within its limits, stored before use.

Replies to units that share calls are kept by unit: a pack of other units finds them again.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar
from weakref import WeakValueDictionary

from hirag_dist.core.prompts.reply_validation import (
    KEPT,
    CutOffReply,
    MalformedReply,
    fitted,
    is_incomplete,
    is_short_of_limit,
    kept_part,
    next_attempt,
)
from hirag_dist.errors import ContextLengthExceeded, ModelError, ModelUnavailable, RateLimited, RequestRejected
from hirag_dist.llm.call import (
    PART,
    Call,
    CallContext,
    CallReply,
    ChatCall,
    ModelGroup,
    NotSent,
    PricedModel,
    SystematicRefusals,
    finish_if_sent,
    group_models,
    in_order,
    ledger_key,
)
from hirag_dist.llm.key_locks import KeyLocks
from hirag_dist.llm.limits.rate_limiter import RateLimiter
from hirag_dist.llm.reply_store import Ledger
from hirag_dist.llm.reply_store.block_format import part_record_of, record_of, reply_from
from hirag_dist.llm.retry import RetriedCalls
from hirag_dist.llm.usage import TokenEstimate, TokenEstimates, UsageMeter, prompt_chars
from hirag_dist.protocols import ChatPool
from hirag_dist.types import ChatReply, ChatRequest, Rejected, StoredReply

_FIRST = 0  # attempt


class UnitReplyStore:
    """The ledger's replies to units that share calls, each found by the unit's own request.

    Built-in models keep none: `find` returns nothing for their requests, and nothing is stored.

    A part of a pack's reply is stored under a hash of the unit's own request and of the model that replied. The shares
    of all parts add up to the tokens of the pack, so a stage that finds the parts counts what the pack used.
    """

    def __init__(
        self, roles: Mapping[str, list[ModelGroup]], ledger: Ledger, meter: UsageMeter, limiter: RateLimiter
    ) -> None:
        self._roles = roles
        self._ledger = ledger
        self._meter = meter
        self._limiter = limiter

    async def find(self, requests: Sequence[ChatRequest]) -> list[StoredReply | None]:
        """Return the ledger's reply for each request, if there is one, in one lookup; nothing is counted.

        A part of a pack's reply comes before a reply to the first attempt of the request alone. Raises StoreError.
        """
        places: list[dict[str, int]] = []
        for request in requests:
            parts = {ledger_key(request, model, PART): number for number, model in self._models(request)}
            places.append(parts | self._places(request))
        keys = [key for each in places for key in each]
        if not keys:
            return [None] * len(requests)
        records = await self._ledger.get_many(keys)
        return [_first_stored(each, records, request) for each, request in zip(places, requests, strict=True)]

    def count(self, role: str, parts: Iterable[StoredReply]) -> None:
        """Count the parts that a caller uses as replies from the ledger: one for each pack."""
        by_pack: dict[tuple[str, int, str, float], dict[str, ChatReply]] = {}
        for part in parts:  # equal units have one record
            by_pack.setdefault((part.pack, part.model, part.endpoint, part.price), {})[part.key] = part.reply
        for (_, model, endpoint, price), replies in by_pack.items():
            payer = self._roles[role][model].member(endpoint)
            whole = replace(
                next(iter(replies.values())),
                input_tokens=sum(reply.input_tokens for reply in replies.values()),
                cached_tokens=sum(reply.cached_tokens for reply in replies.values()),
                output_tokens=sum(reply.output_tokens for reply in replies.values()),
            )
            payer.count(self._meter, role, whole, payer.cost(whole) * price, from_ledger=True)
            self._limiter.of(payer.endpoint).on_found()

    async def store(self, pack: ChatRequest, parts: Sequence[tuple[ChatRequest, str]]) -> None:
        """Store the parts of a pack's reply; return when they are durable. Raises StoreError.

        Args:
            pack: the request whose reply is in the ledger.
            parts: a unit's own request, and its part of the reply. The tokens of the reply are divided among them.
        """
        places = self._places(pack)
        if not parts or not places:
            return
        records = await self._ledger.get_many(list(places))
        key = next((key for key in places if key in records), None)
        whole = None if key is None else reply_from(records[key], prompt_chars(pack))
        if key is None or whole is None:
            return  # removed since it was read
        group = self._roles[pack.role][places[key]]
        texts: dict[str, str] = {}
        sizes: dict[str, int] = {}
        for request, text in parts:
            own = ledger_key(request, group.first, PART)
            texts.setdefault(own, text)
            sizes[own] = sizes.get(own, 0) + max(1, len(request.messages[-1].content))
        weights = list(sizes.values())
        n_fresh = whole.input_tokens - whole.cached_tokens
        totals = (n_fresh, whole.cached_tokens, whole.output_tokens)
        shares = zip(*(divide(total, weights) for total in totals), strict=True)
        await self._ledger.put_many(
            {
                own: part_record_of(records[key], key, text, [fresh + cached, cached, output])
                for (own, text), (fresh, cached, output) in zip(texts.items(), shares, strict=True)
            }
        )

    async def store_grouping(self, request: ChatRequest, grouping: str) -> None:
        """Store how units were grouped into calls, as the reply to a request that is never sent. Raises StoreError."""
        for key in list(self._places(request))[:1]:
            await self._ledger.put(key, record_of(ChatReply(grouping), ""))

    def _places(self, request: ChatRequest) -> dict[str, int]:
        """Return the ledger key of the first attempt → number of the model; nothing for built-in models."""
        return {ledger_key(request, model, _FIRST): number for number, model in self._models(request)}

    def _models(self, request: ChatRequest) -> list[tuple[int, PricedModel]]:
        """Return the models of a role with their numbers, in the order in which `EndpointPool` asks them."""
        groups = self._roles[request.role]
        ordered = in_order(groups, request)
        return [(groups.index(group), group.first) for group in ordered] if ordered[0].first.paid else []


def divide(total: int, weights: Sequence[int]) -> list[int]:
    """Return whole shares of a number in proportion to weights; the first has the remainder too.

    >>> divide(10, [1, 1, 2])
    [3, 2, 5]
    """
    shares = [total * weight // sum(weights) for weight in weights]
    shares[0] += total - sum(shares)
    return shares


def _first_stored(
    places: Mapping[str, int], records: Mapping[str, Mapping[str, Any]], request: ChatRequest
) -> StoredReply | None:
    n_chars = prompt_chars(request)
    for key, model in places.items():
        record = records.get(key)
        reply = None if record is None else reply_from(record, n_chars)
        if record is not None and reply is not None:
            endpoint, price = str(record.get("endpoint", "")), float(record.get("price", 1.0))
            return StoredReply(reply, key, str(record.get("pack", "")), model, endpoint, price)
    return None


class PackingPool(ChatPool, Protocol):
    """Pool whose callers ask about several units in one call."""

    @property
    def unit_replies(self) -> UnitReplyStore | None:
        """The replies to units that share calls; None where no reply is stored."""


T = TypeVar("T")
_LIMIT = re.compile(r"max_(?:completion_|new_)?tokens|maxOutputTokens", re.IGNORECASE)  # in a refusal


@dataclass(frozen=True, slots=True)
class _Answer:
    """A reply, the model that gave it, and whether this run asked for it."""

    reply: ChatReply
    model: PricedModel
    is_new: bool


class EndpointPool:
    """All chat models of a run, by role. Implements `PackingPool`.

    A request passes through: attempts until its reply parses → ledger → models of the role → `llm.retry.RetriedCalls`
    → `llm.limits.rate_limiter.RateLimiter.send` → `PricedModel.send`.

    Args:
        roles: role → its models. A request's hash chooses among models; the endpoints of one model share its requests
            by weight and load.
        ledger: store of replies; None stores none, for answering questions.
        locks: keep other workers from sending the requests that this one sends; None where there are none.
    """

    def __init__(
        self,
        roles: Mapping[str, Sequence[PricedModel]],
        ledger: Ledger | None,
        retried: RetriedCalls,
        count_tokens: Callable[[str], int],
        context: CallContext | None = None,
        locks: KeyLocks | None = None,
    ) -> None:
        self._roles = {role: group_models(models) for role, models in roles.items()}
        self._ledger = ledger
        self._retried = retried
        self._estimates = TokenEstimates(count_tokens, retried.limiter.spending)
        self._locks = locks
        self._in_flight: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()  # ledger key → its one sender
        self._unusable: set[str] = set()  # keys of stored replies that cannot be used
        self._unlimited: set[str] = set()  # models that think, or that refused a task's limit
        self._refusals = None if ledger is None else SystematicRefusals()  # a service outlives what refuses
        self._context = CallContext() if context is None else context

    def with_context(self, context: CallContext) -> EndpointPool:
        """Return a view of this pool whose calls carry another context."""
        view = copy(self)
        view._context = context
        return view

    @property
    def unit_replies(self) -> UnitReplyStore | None:
        """The replies to units that share calls; None without a ledger."""
        return (
            None
            if self._ledger is None
            else UnitReplyStore(self._roles, self._ledger, self._context.meter, self._retried.limiter)
        )

    async def ask(self, request: ChatRequest, accept: Callable[[ChatReply], T]) -> T | Rejected:
        """Return the result of `accept` for the reply, or a `Rejected` after the last attempt.

        Attempts whose refused reply is in the ledger count; in a retry of dead letters (`CallContext.is_retry`), as
        many new ones are made as for a new unit. Where all replies were refused, what is complete of one that was cut
        off is used; `ChatReply.kept_from` is then the dead letter of the rest. A prompt that is longer than the model's
        window is `Rejected` as `too_long`.

        Raises:
            ModelError: no endpoint answers for longer than the outage time-out, or each refuses access.
            BudgetReached: the call would pass a spending limit.
            StoreError: the reply could not be made durable.
        """
        groups = in_order(self._roles[request.role], request)
        max_attempts = self._retried.policy.attempts
        asked, reply, reason = request, ChatReply(""), ""
        incomplete: list[ChatReply] = []
        attempt = n_new = 0

        def rejected(why: str, n_attempts: int, *, too_long: bool = False) -> Rejected:
            if too_long and self._refusals is not None:
                self._refusals.note_divided(request.role)
            return Rejected(request.unit, why, n_attempts, request.text, reply.text, too_long)

        while True:
            may_send = (n_new if self._context.is_retry else attempt) < max_attempts
            try:
                answer = await self._cached(asked, groups, attempt, may_send)
            except NotSent as error:
                return rejected(reason or str(error), attempt)
            except ContextLengthExceeded as error:
                shorter = fitted(asked, error)
                if shorter is None:
                    return rejected(f"{error}{_sizes(error)}", attempt + 1, too_long=True)
                asked = shorter
                continue
            except RequestRejected as error:
                if error.fatal:
                    raise
                if asked.frequency_penalty is not None:  # not every endpoint has one
                    asked = replace(asked, frequency_penalty=None)
                    continue
                if asked.max_tokens and _LIMIT.search(str(error)) and groups[0].first.name not in self._unlimited:
                    self._unlimited.add(groups[0].first.name)
                    continue
                self._note_refused(request, str(error), final=True)
                return rejected(str(error), attempt + 1)
            if answer is None:
                cut = Rejected(request.unit, f"{KEPT}{reason}", attempt, request.text, reply.text)
                kept = _first_accepted(incomplete, accept, cut)
                if not isinstance(kept, MalformedReply):
                    if self._refusals is not None and n_new:
                        self._refusals.note_accepted(request.role)
                    return kept
                if n_new:
                    self._note_refused(request, reason, final=True)
                return rejected(reason, attempt)
            reply, model = answer.reply, answer.model
            if reply.reasoning_tokens:
                self._unlimited.add(model.name)
            try:
                accepted = accept(reply)
            except (MalformedReply, RecursionError) as refusal:
                nested = "the reply is nested too deeply"
                reason = nested if isinstance(refusal, RecursionError) else str(refusal)
                use = self._context.meter.use(request.role, reply.model or model.name, model.endpoint)
                use.rejected += 1
                use.sent_rejected += answer.is_new
                if answer.is_new:
                    self._note_refused(request, reason)
                    if model.paid:
                        self._retried.limiter.of(model.endpoint).on_refused()
                if request.divisible and isinstance(refusal, CutOffReply) and is_short_of_limit(asked, reply):
                    return rejected(f"{reason}, before the limit of {asked.max_tokens}", attempt + 1, too_long=True)
                if is_incomplete(refusal):
                    incomplete.append(reply)
                asked = next_attempt(request, asked, reply, refusal, attempt + 1)
            else:
                # A pack whose units were all refused tells nothing, although it could be read.
                is_empty = isinstance(accepted, list) and all(isinstance(part, MalformedReply) for part in accepted)
                if self._refusals is not None and answer.is_new and not is_empty:
                    self._refusals.note_accepted(request.role)
                return accepted
            attempt += 1
            n_new += answer.is_new

    async def stream(self, request: ChatRequest) -> AsyncGenerator[str | ChatReply]:
        """Yield the reply's text in pieces, then the reply; nothing is stored.

        An endpoint that fails before the first piece is replaced.
        """
        groups = in_order(self._roles[request.role], request)
        request = self._with_limit(request, groups[0])
        targets = [each for group in groups for each in group.members]
        last: ModelError | None = None
        for _ in range(max(len(targets), self._retried.policy.attempts)):
            target = self._retried.pick(targets) or targets[0]
            picked_at = self._retried.now()
            began = False
            try:
                async with aclosing(self._pieces(request, target)) as pieces:
                    async for piece in pieces:
                        began = True
                        if isinstance(piece, ChatReply):
                            self._retried.note_answered(target)
                            if piece.reasoning_tokens:
                                self._unlimited.add(target.name)
                        yield piece
                return
            except ModelError as error:
                if error.retryable and not isinstance(error, RateLimited):
                    self._retried.note_failed(target, picked_at, error)
                shorter = fitted(request, error) if isinstance(error, ContextLengthExceeded) else None
                if began or not (error.retryable or len(targets) > 1 or shorter):
                    raise
                last = error
                if shorter is not None:
                    request = shorter
                else:
                    targets = [each for each in targets if each is not target] or targets
        if last is not None:
            raise last

    def model_name(self, request: ChatRequest) -> str:
        """Return the name of the model that answers a request as long as it is available."""
        return in_order(self._roles[request.role], request)[0].first.name

    async def close(self) -> None:
        """Wait for requests in flight; close every model."""
        await self._retried.close()
        members = [each for groups in self._roles.values() for group in groups for each in group.members]
        for model in {id(each.model): each.model for each in members}.values():
            await model.close()

    def _note_refused(self, request: ChatRequest, reason: str, *, final: bool = False) -> None:
        if self._refusals is not None:
            self._refusals.note_refused(request.role, request.unit, reason, final=final)

    async def _cached(
        self, request: ChatRequest, groups: list[ModelGroup], attempt: int, may_send: bool
    ) -> _Answer | None:
        """Return the reply in the ledger, or a new one; None if none is stored and no request may be sent."""
        chosen = groups[0].first
        if not chosen.paid:
            if not may_send:
                return None
            reply = await chosen.model.complete(request)
            chosen.count(self._context.meter, request.role, reply, chosen.cost(reply))
            return _Answer(reply, chosen, is_new=True)
        if self._ledger is None:
            return await self._new_reply(request, groups, attempt, None) if may_send else None
        # The second of two equal requests waits; a lock is there as long as a request holds it or waits for it.
        key = ledger_key(request, chosen, attempt)
        turn = self._in_flight.setdefault(key, asyncio.Lock())
        async with turn:
            stored = await self._stored(request, groups, attempt, self._ledger)
            if stored is not None or not may_send:
                return stored
            if self._locks is None:
                return await self._new_reply(request, groups, attempt, self._ledger)
            while True:  # another worker may store a reply meanwhile
                async with self._locks.hold([key]) as held:
                    stored = await self._stored(request, groups, attempt, self._ledger)
                    if stored is not None:
                        return stored
                    if held:
                        return await self._new_reply(request, groups, attempt, self._ledger)

    async def _stored(
        self, request: ChatRequest, groups: list[ModelGroup], attempt: int, ledger: Ledger
    ) -> _Answer | None:
        """Return the ledger's reply of the first model that has a usable one, and count it."""
        for group in groups:
            key = ledger_key(request, group.first, attempt)
            record = await ledger.get(key)
            if record is None:
                continue
            reply = reply_from(record, prompt_chars(request))
            if reply is not None:
                payer = group.member(record.get("endpoint"))
                payer.count(self._context.meter, request.role, reply, payer.cost(reply), from_ledger=True)
                self._retried.limiter.of(payer.endpoint).on_found()
                return _Answer(reply, payer, is_new=False)
            self._unusable.add(key)
        return None

    async def _new_reply(
        self, request: ChatRequest, groups: list[ModelGroup], attempt: int, ledger: Ledger | None
    ) -> _Answer:
        """Return a reply of the first of a role's models that can be reached."""
        request = self._with_limit(request, groups[0])
        estimate = self._estimates.of(request)
        for number, group in enumerate(groups):
            call = self._call(request, group.members, attempt, estimate, fails_over=number < len(groups) - 1)
            try:
                if ledger is None:
                    answered = await self._retried(call)
                else:
                    key = ledger_key(request, group.first, attempt)
                    answered = await finish_if_sent(call, self._store_reply(call, key, ledger))
                self._estimates.learn(request, estimate, answered.value)
                return _Answer(answered.value, group.member(answered.endpoint), is_new=True)
            except ModelError as error:
                elsewhere = not isinstance(error, RequestRejected) or error.fatal
                if not (call.fails_over and elsewhere):
                    raise
        raise AssertionError("a role has at least one model")

    def _with_limit(self, request: ChatRequest, group: ModelGroup) -> ChatRequest:
        """Return a request without the limit of its task for a model that thinks: its thinking would count."""
        if group.first.name in self._unlimited and request.hashed_limit is None:
            return replace(request, max_tokens=None)
        return request

    async def _store_reply(self, call: ChatCall, key: str, ledger: Ledger) -> CallReply[ChatReply]:
        answered = await self._retried(call)
        record = record_of(answered.value, answered.endpoint)
        await ledger.put(key, record, self._unusable)
        call.context.stored[key] = record
        return answered

    def _call(
        self,
        request: ChatRequest,
        targets: Sequence[PricedModel],
        attempt: int,
        estimate: TokenEstimate,
        fails_over: bool = False,
    ) -> ChatCall:
        return Call(
            request,
            targets,
            request.role,
            tokens=estimate.expected,
            max_input_tokens=estimate.max_input,
            max_output_tokens=estimate.max_output or None,
            priority=-(attempt + request.round),  # units that were begun go first: their task waits for them
            fails_over=fails_over,
            context=self._context,
            unit=request.unit,
            refusals=self._refusals,
        )

    async def _pieces(self, request: ChatRequest, target: PricedModel) -> AsyncGenerator[str | ChatReply]:
        call = self._call(request, [target], 0, self._estimates.of(request))
        max_tokens, max_usd = target.max_use(call)
        limiter = self._retried.limiter
        permit = await limiter.acquire(target.endpoint, call.tokens, max_usd, max_tokens=max_tokens)
        began = False
        reply = ChatReply("")
        try:
            async with aclosing(target.model.stream(request)) as pieces:
                async for piece in pieces:
                    began = True
                    if isinstance(piece, ChatReply):
                        reply = piece
                    else:
                        yield piece
        except RateLimited as error:
            permit.limited(error.retry_after_s, error.kind)
            raise
        except BaseException as error:
            permit.failed(billed=began or (isinstance(error, ModelUnavailable) and error.was_sent))
            raise
        usd = target.cost(reply)
        target.count(self._context.meter, call.role, reply, usd)
        permit.answered(reply.input_tokens + reply.output_tokens, usd)
        yield reply


def _first_accepted(
    replies: Sequence[ChatReply], accept: Callable[[ChatReply], T], cut: Rejected
) -> T | MalformedReply:
    """Return the result for what is complete of the last reply that holds anything usable, or why none does."""
    refused = MalformedReply("no reply is complete in part")
    for reply in reversed(replies):
        try:
            return accept(kept_part(reply, cut))
        except MalformedReply as refusal:
            refused = refusal
    return refused


def _sizes(error: ContextLengthExceeded) -> str:
    """Return the sizes that an endpoint named, to be put behind its message."""
    sizes = {"window": error.window_tokens, "prompt": error.prompt_tokens}
    named = [f"{name} {tokens:,} tokens" for name, tokens in sizes.items() if tokens is not None]
    return f" ({', '.join(named)})" if named else ""
