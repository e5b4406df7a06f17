"""Embeddings through the same ledger and budget as chat."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import time
from collections.abc import Callable, Sequence

import numpy as np

from hirag_dist.errors import ModelError, RateLimited
from hirag_dist.pool.budget import Budget
from hirag_dist.pool.chat import Patience, to_the_end
from hirag_dist.pool.ledger import Ledger
from hirag_dist.pool.metering import Meter, current_meter
from hirag_dist.ports import Embedder
from hirag_dist.types import ChatReply, FloatMatrix


class LedgerEmbedder:
    """Asks a paid embedder for the texts whose vectors are not in the ledger. Implements `ports.Embedder`."""

    def __init__(
        self,
        inner: Embedder,
        endpoint: str,
        price: float,
        ledger: Ledger,
        budget: Budget,
        patience: Patience,
        count_tokens: Callable[[str], int],
        batch_size: int,
    ) -> None:
        self.name, self.dim = inner.name, inner.dim
        self._inner = inner
        self._endpoint = endpoint
        self._price = price
        self._ledger = ledger
        self._budget = budget
        self._patience = patience
        self._count_tokens = count_tokens
        self._batch_size = batch_size

    async def embed(self, texts: Sequence[str]) -> FloatMatrix:
        """Return (len(texts), dim) float32 rows of unit length."""
        vectors = np.zeros((len(texts), self.dim), np.float32)
        keys = [self._key(text) for text in texts]
        records = await self._ledger.get_many(keys)
        missing: dict[str, int] = {}
        hits = tokens = 0
        for at, key in enumerate(keys):
            record = records.get(key)
            if record is not None:
                vectors[at] = np.frombuffer(base64.b64decode(record["vector"]), "<f4")
                hits += 1
                tokens += int(record.get("tokens", 0))
            elif texts[at]:
                missing.setdefault(key, at)
        if hits:
            meter = current_meter.get() or Meter()
            use = meter.use("embed", self.name, self._endpoint)
            use.calls += -(-hits // self._batch_size)
            use.ledger_hits += -(-hits // self._batch_size)
            use.input_tokens += tokens
            use.cost_usd += tokens * self._price / 1e6
        places = list(missing.values())
        batches = [places[first : first + self._batch_size] for first in range(0, len(places), self._batch_size)]
        outcomes = await asyncio.gather(
            *(self._batch([texts[at] for at in batch]) for batch in batches), return_exceptions=True
        )
        found: list[FloatMatrix] = []
        for outcome in outcomes:  # all have ended and are stored before a failure rises
            if isinstance(outcome, BaseException):
                raise outcome
            found.append(outcome)
        new = {
            keys[at]: row
            for batch, rows in zip(batches, found, strict=True)
            for at, row in zip(batch, rows, strict=True)
        }
        for at, key in enumerate(keys):
            if key in new:
                vectors[at] = new[key]
        return vectors

    async def _batch(self, texts: list[str]) -> FloatMatrix:
        tokens = sum(self._count_tokens(text) for text in texts)
        cost = tokens * self._price / 1e6
        give_up_at = time.monotonic() + self._patience.outage_s
        failures = 0
        while True:
            await self._budget.acquire(self._endpoint, tokens, cost)
            wait = min(0.5 * 2 ** (failures + 1), 60.0)
            try:
                rows = await to_the_end(self._complete(texts, tokens, cost, wait))
                break
            except ModelError as error:
                failures += 1
                if isinstance(error, RateLimited) and error.retry_after_s is not None:
                    wait = error.retry_after_s
                if not error.retryable or time.monotonic() + wait > give_up_at:
                    raise
            await asyncio.sleep(wait)
        meter = current_meter.get() or Meter()
        reply = ChatReply("", input_tokens=tokens)
        meter.count("embed", self.name, self._endpoint, reply, cost, from_ledger=False)
        return rows

    async def _complete(self, texts: list[str], tokens: int, cost: float, pause_s: float) -> FloatMatrix:
        """Call once, and store the vectors. `pause_s` is for a 429 that does not say how long."""
        used, used_usd = 0, 0.0
        try:
            rows = await self._inner.embed(texts)
            used, used_usd = tokens, cost
            records = [
                {"vector": base64.b64encode(row.astype("<f4").tobytes()).decode(), "tokens": self._count_tokens(text)}
                for text, row in zip(texts, rows, strict=True)
            ]
            await self._ledger.put_many({self._key(text): record for text, record in zip(texts, records, strict=True)})
            return rows
        except RateLimited as error:
            await self._budget.pause(self._endpoint, pause_s if error.retry_after_s is None else error.retry_after_s)
            raise
        finally:
            await self._budget.settle(self._endpoint, tokens, used, cost, used_usd)

    async def close(self) -> None:
        """Let go of connections."""
        close = getattr(self._inner, "close", None)
        if close is not None:
            await close()

    def _key(self, text: str) -> str:
        return hashlib.sha256(f"embed|{self.name}|{self.dim}|{text}".encode("utf-8", "surrogatepass")).hexdigest()[:40]
