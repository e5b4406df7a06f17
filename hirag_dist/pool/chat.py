"""The pool that stages ask: a reply from the ledger, or from an endpoint within its limits, stored before use."""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from hirag_dist.core.replies import Malformed
from hirag_dist.errors import ModelError, RateLimited, RequestRejected
from hirag_dist.pool.budget import Budget
from hirag_dist.pool.ledger import Ledger
from hirag_dist.pool.metering import Meter, current_meter
from hirag_dist.ports import ChatModel
from hirag_dist.types import ChatReply, ChatRequest, Message, Rejected

T = TypeVar("T")
_REPLY_TOKENS = 1000  # reserved for a reply until its usage is known
_LONGEST_WAIT_S = 60.0


@dataclass(frozen=True)
class PricedModel:
    """A model with what it costs and what decides its replies.

    Attributes:
        endpoint: the configured name, which the budget goes by.
        settings: whatever changes replies besides the request (temperature, extra body); part of ledger keys.
        price: US dollars a million tokens: input, cached input, output.
        paid: whether its replies go through ledger and budget; built-in models compute theirs again.
    """

    endpoint: str
    model: ChatModel
    settings: str = ""
    price: tuple[float, float, float] = (0.0, 0.0, 0.0)
    paid: bool = True

    def cost(self, reply: ChatReply) -> float:
        """Return US dollars."""
        fresh = reply.input_tokens - reply.cached_tokens
        return (fresh * self.price[0] + reply.cached_tokens * self.price[1] + reply.output_tokens * self.price[2]) / 1e6


@dataclass(frozen=True)
class Patience:
    """How often a refused reply is asked for again, and how long an endpoint out of reach is waited for."""

    attempts: int = 3
    outage_s: float = 600.0


class Pool:
    """Implements `ports.ChatPool`."""

    def __init__(
        self,
        roles: Mapping[str, Sequence[tuple[PricedModel, float]]],
        ledger: Ledger | None,
        budget: Budget,
        patience: Patience,
        count_tokens: Callable[[str], int],
    ) -> None:
        """Compose the pool.

        Args:
            roles: role → (model, weight) pairs; a request's hash chooses among several.
            ledger: where replies are kept; None keeps none, for answering questions.
        """
        self._roles = roles
        self._ledger = ledger
        self._budget = budget
        self._patience = patience
        self._count_tokens = count_tokens
        self._turns: dict[str, asyncio.Lock] = {}

    async def ask(self, request: ChatRequest, accept: Callable[[ChatReply], T]) -> T | Rejected:
        """Return what `accept` makes of the reply, or a `Rejected` after the last attempt.

        Raises:
            ModelError: the endpoint is out of reach for longer than the run's patience, or refuses our access.
            BudgetReached: the call would pass a spending limit.
            StoreError: the reply could not be made durable.
        """
        digest = request_hash(request)
        chosen = self._choose(request.role, digest)
        meter = current_meter.get() or Meter()
        asked = request
        reason = ""
        reply = ChatReply("")
        for attempt in range(self._patience.attempts):
            try:
                reply, stored = await self._reply(asked, chosen, attempt)
            except RequestRejected as error:
                if error.fatal:
                    raise
                return Rejected(request.unit, str(error), attempt + 1, _as_text(request), "")
            name = reply.model or chosen.model.name
            meter.count(request.role, name, chosen.endpoint, reply, chosen.cost(reply), stored)
            try:
                return accept(reply)
            except Malformed as refusal:
                reason = str(refusal)
                meter.use(request.role, name, chosen.endpoint).rejected += 1
                asked = _again(request, reply, reason)
        return Rejected(request.unit, reason, self._patience.attempts, _as_text(request), reply.text)

    async def stream(self, request: ChatRequest) -> AsyncIterator[str]:
        """Yield the reply's text in pieces; nothing is stored."""
        chosen = self._choose(request.role, request_hash(request))
        async for piece in chosen.model.stream(request):
            yield piece

    def model_name(self, request: ChatRequest) -> str:
        """Return the name of the model that answers a request."""
        return self._choose(request.role, request_hash(request)).model.name

    async def close(self) -> None:
        """Close every model, and the ledger."""
        models = {id(priced.model): priced.model for pairs in self._roles.values() for priced, _ in pairs}
        for model in models.values():
            await model.close()
        if self._ledger is not None:
            await self._ledger.close()

    def _choose(self, role: str, digest: str) -> PricedModel:
        pairs = self._roles[role]
        if len(pairs) == 1:
            return pairs[0][0]
        place = int(digest[:12], 16) / 16**12 * sum(weight for _, weight in pairs)
        for priced, weight in pairs:
            place -= weight
            if place < 0:
                return priced
        return pairs[-1][0]

    async def _reply(self, request: ChatRequest, chosen: PricedModel, attempt: int) -> tuple[ChatReply, bool]:
        if not chosen.paid:
            return await chosen.model.complete(request), False
        key = ledger_key(request, chosen, attempt)
        if self._ledger is None:
            return await self._send(request, chosen, key), False
        async with self._turn(key):  # of two equal requests the second finds the first one's reply
            record = await self._ledger.get(key)
            if record is not None:
                return _reply_from(record), True
            return await self._send(request, chosen, key), False

    @asynccontextmanager
    async def _turn(self, key: str) -> AsyncIterator[None]:
        lock = self._turns.setdefault(key, asyncio.Lock())
        try:
            async with lock:
                yield
        finally:
            if not lock.locked():
                self._turns.pop(key, None)

    async def _send(self, request: ChatRequest, chosen: PricedModel, key: str) -> ChatReply:
        tokens = sum(self._count_tokens(message.content) for message in request.messages)
        reserved = tokens + (request.max_tokens or _REPLY_TOKENS)
        reserved_usd = chosen.cost(ChatReply("", input_tokens=tokens, output_tokens=reserved - tokens))
        give_up_at = time.monotonic() + self._patience.outage_s
        failures = 0
        while True:
            await self._budget.acquire(chosen.endpoint, reserved, reserved_usd)
            wait = min(0.5 * 2 ** (failures + 1), _LONGEST_WAIT_S) * (0.5 + random.random())
            try:
                return await to_the_end(self._complete(request, chosen, key, reserved, reserved_usd, wait))
            except ModelError as error:
                failures += 1
                if isinstance(error, RateLimited) and error.retry_after_s is not None:
                    wait = error.retry_after_s
                if not error.retryable or time.monotonic() + wait > give_up_at:
                    raise
            await asyncio.sleep(wait)

    async def _complete(
        self, request: ChatRequest, chosen: PricedModel, key: str, reserved: int, reserved_usd: float, pause_s: float
    ) -> ChatReply:
        """Call once, and store the reply. `pause_s` is for a 429 that does not say how long."""
        used, used_usd = 0, 0.0
        try:
            reply = await chosen.model.complete(request)
            used, used_usd = reply.input_tokens + reply.output_tokens, chosen.cost(reply)
            if self._ledger is not None:
                await self._ledger.put(key, _record_of(reply))
            return reply
        except RateLimited as error:
            await self._budget.pause(chosen.endpoint, pause_s if error.retry_after_s is None else error.retry_after_s)
            raise
        finally:
            await self._budget.settle(chosen.endpoint, reserved, used, reserved_usd, used_usd)


async def to_the_end(call: Coroutine[Any, Any, T]) -> T:
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


def request_hash(request: ChatRequest) -> str:
    """Return the SHA-256 (hex) of all that the model sees."""
    seen = [
        [(message.role, message.content) for message in request.messages],
        request.form,
        request.max_tokens,
    ]
    return hashlib.sha256(json.dumps(seen).encode()).hexdigest()


def ledger_key(request: ChatRequest, chosen: PricedModel, attempt: int) -> str:
    """Return what a reply is stored under: the request, the model and its settings, and the attempt."""
    parts = f"chat|{chosen.model.name}|{chosen.settings}|{request_hash(request)}|{attempt}"
    return hashlib.sha256(parts.encode()).hexdigest()[:40]


def _again(request: ChatRequest, reply: ChatReply, reason: str) -> ChatRequest:
    said = (Message("assistant", reply.text),) if reply.text.strip() else ()
    ask = Message("user", f"That reply cannot be used: {reason}. Reply again, in the requested form and complete.")
    return replace(request, messages=(*request.messages, *said, ask))


def _as_text(request: ChatRequest) -> str:
    return "\n\n".join(f"{message.role}: {message.content}" for message in request.messages)


def _record_of(reply: ChatReply) -> dict[str, Any]:
    return {
        "text": reply.text,
        "finish_reason": reply.finish_reason,
        "model": reply.model,
        "usage": [reply.input_tokens, reply.cached_tokens, reply.output_tokens],
    }


def _reply_from(record: Mapping[str, Any]) -> ChatReply:
    tokens = record["usage"]
    return ChatReply(record["text"], record["finish_reason"], record["model"], tokens[0], tokens[1], tokens[2])
