"""Embeddings through the same ledger and budget as chat."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hirag_dist.pool.calling import Answered, Caller, Need
from hirag_dist.pool.ledger import Ledger
from hirag_dist.pool.metering import Meter, current_meter
from hirag_dist.ports import Embedder
from hirag_dist.types import ChatReply, FloatMatrix


@dataclass(frozen=True)
class PricedEmbedder:
    """An embedder at an endpoint. Implements `calling.Target`.

    Attributes:
        price: US dollars a million tokens.
        batch_size: texts in one request.
    """

    endpoint: str
    embedder: Embedder
    price: float = 0.0
    batch_size: int = 128
    weight: float = 1.0

    @property
    def name(self) -> str:
        """The model's name, for the bill."""
        return self.embedder.name


class LedgerEmbedder:
    """Asks a paid embedder for the texts whose vectors are not in the ledger. Implements `ports.Embedder`.

    Args:
        ledger: where vectors are kept; None keeps none, for questions.
    """

    def __init__(
        self, target: PricedEmbedder, ledger: Ledger | None, caller: Caller, count_tokens: Callable[[str], int]
    ) -> None:
        self.name, self.dim = target.embedder.name, target.embedder.dim
        self._target = target
        self._ledger = ledger
        self._caller = caller
        self._count_tokens = count_tokens
        self._turns: dict[str, asyncio.Future[None]] = {}

    async def embed(self, texts: Sequence[str]) -> FloatMatrix:
        """Return (len(texts), dim) float32 rows of unit length. Equal texts are sent once, also of calls at a time."""
        vectors = np.zeros((len(texts), self.dim), np.float32)
        keys = [self._key(text) for text in texts]
        known = await self._stored(keys)
        missing: dict[str, int] = {}
        for at, key in enumerate(keys):
            if key in known:
                vectors[at] = known[key]
            elif texts[at].strip():
                missing.setdefault(key, at)
        others = {key: turn for key in missing if (turn := self._turns.get(key)) is not None}
        own = {key: at for key, at in missing.items() if key not in others}
        new = await self._ask([(key, texts[at]) for key, at in own.items()])
        if others:
            await asyncio.wait(others.values())
            places = {key: at for key, at in missing.items() if key in others}
            again = await self.embed([texts[at] for at in places.values()])
            new |= dict(zip(places, again, strict=True))
        for at, key in enumerate(keys):
            if key in new:
                vectors[at] = new[key]
        return vectors

    async def close(self) -> None:
        """Let go of connections."""
        close = getattr(self._target.embedder, "close", None)
        if close is not None:
            await close()

    async def _stored(self, keys: Sequence[str]) -> dict[str, FloatMatrix]:
        if self._ledger is None:
            return {}
        records = await self._ledger.get_many(list(dict.fromkeys(keys)))
        if records:
            tokens = sum(int(record.get("tokens", 0)) for record in records.values())
            n_calls = -(-len(records) // self._target.batch_size)
            use = (current_meter.get() or Meter()).use("embed", self.name, self._target.endpoint)
            use.calls += n_calls
            use.ledger_hits += n_calls
            use.input_tokens += tokens
            use.cost_usd += self._cost(tokens)
        return {key: _vector(record["vector"]) for key, record in records.items()}

    async def _ask(self, wanted: list[tuple[str, str]]) -> dict[str, FloatMatrix]:
        """Send what is wanted in batches; all have ended and are stored before a failure rises."""
        size = self._target.batch_size
        batches = [wanted[first : first + size] for first in range(0, len(wanted), size)]
        loop = asyncio.get_running_loop()
        turns = {key: loop.create_future() for key, _ in wanted}
        self._turns |= turns
        try:
            outcomes = await asyncio.gather(*(self._batch(batch) for batch in batches), return_exceptions=True)
        finally:
            for key, turn in turns.items():
                self._turns.pop(key, None)
                turn.set_result(None)
        new: dict[str, FloatMatrix] = {}
        for batch, outcome in zip(batches, outcomes, strict=True):
            if isinstance(outcome, BaseException):
                raise outcome
            new |= {key: row for (key, _), row in zip(batch, outcome, strict=True)}
        return new

    async def _batch(self, batch: list[tuple[str, str]]) -> FloatMatrix:
        counts = [self._count_tokens(text) for _, text in batch]
        tokens = sum(counts)
        cost = self._cost(tokens)

        async def send(target: PricedEmbedder) -> Answered[FloatMatrix]:
            return Answered(await target.embedder.embed([text for _, text in batch]), tokens, cost, _limits(target))

        async def store(target: PricedEmbedder, rows: FloatMatrix) -> None:
            if self._ledger is not None:
                entries = zip(batch, counts, rows, strict=True)
                await self._ledger.put_many(
                    {key: {"vector": row.astype("<f4").tobytes(), "tokens": n} for (key, _), n, row in entries}
                )

        _, rows = await self._caller.call(
            [self._target], send=send, store=store, need=lambda target: Need(tokens, tokens, cost), role="embed"
        )
        meter = current_meter.get() or Meter()
        reply = ChatReply("", input_tokens=tokens)
        meter.count("embed", self.name, self._target.endpoint, reply, cost, from_ledger=False)
        return rows

    def _cost(self, tokens: int) -> float:
        return tokens * self._target.price / 1e6

    def _key(self, text: str) -> str:
        return hashlib.sha256(f"embed|{self.name}|{self.dim}|{text}".encode("utf-8", "surrogatepass")).hexdigest()[:40]


def _vector(stored: Any) -> FloatMatrix:
    data = base64.b64decode(stored) if isinstance(stored, str) else bytes(stored)  # text in ledgers of earlier versions
    return np.frombuffer(data, "<f4")


def _limits(target: PricedEmbedder) -> tuple[float | None, float | None]:
    limits = getattr(target.embedder, "rate_limits", None)
    return (None, None) if limits is None else (limits.requests, limits.tokens)
