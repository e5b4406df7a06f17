"""Calls that are answered from the ledger alone, with the keys that they ask for on record."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from hirag_dist.errors import RequestRejected
from hirag_dist.llm.embedding import stored_vector, vector_key
from hirag_dist.llm.reply_store import Ledger
from hirag_dist.llm.reply_store.block_format import key_bytes
from hirag_dist.storage.store import Store
from hirag_dist.types import ChatReply, ChatRequest, FloatMatrix, RateLimits


class ReadOnlyLedger(Ledger):
    """A ledger that is left as it is: nothing is stored."""

    async def put_many(self, records: Mapping[str, Mapping[str, Any]], superseded: Collection[str] = ()) -> None:
        """Do nothing."""


class RecordingLedger(ReadOnlyLedger):
    """A ledger that notes which records were found.

    Attributes:
        found: keys, 20 bytes each.
    """

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.found: set[bytes] = set()

    async def get_many(self, keys: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Return the records of those keys that there are."""
        records = await super().get_many(keys)
        self.found.update(map(key_bytes, records))
        return records


class UnavailableModel:
    """A chat model without an endpoint: it refuses every request, so that only stored replies count."""

    rate_limits: RateLimits | None = None

    def __init__(self, name: str) -> None:
        self.name = name

    async def complete(self, request: ChatRequest) -> ChatReply:
        """Raise RequestRejected."""
        raise RequestRejected("no reply to it is stored")

    async def stream(self, request: ChatRequest) -> AsyncGenerator[str | ChatReply]:
        """Raise RequestRejected."""
        yield await self.complete(request)

    async def close(self) -> None:
        """Nothing is held."""


class StoredVectors:
    """An embedder with the vectors that a ledger has; other texts get zeros. Implements `protocols.Embedder`.

    Args:
        identity: of the embedder whose vectors are looked up, as in `llm.embedding.PaidEmbedder`.
        ledger: None where no vector decides anything: all texts get zeros.
    """

    def __init__(self, identity: str, dim: int, ledger: Ledger | None) -> None:
        self.name, self.dim = identity, dim
        self._ledger = ledger

    async def embed(self, texts: Sequence[str]) -> FloatMatrix:
        """Return (len(texts), dim) float32 rows."""
        keys = [vector_key(self.name, self.dim, text) for text in texts]
        records = {} if self._ledger is None else await self._ledger.get_many(list(dict.fromkeys(keys)))
        vectors = np.zeros((len(texts), self.dim), np.float32)
        for row, key in enumerate(keys):
            vector = stored_vector(records[key], self.dim) if key in records else None
            if vector is not None:
                vectors[row] = vector.row
        return vectors
