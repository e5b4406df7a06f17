"""Question embedding: micro-batched calls and a cache of vectors."""

from __future__ import annotations

import unicodedata
from collections import OrderedDict
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hirag_dist.core.text.normalize import one_line
from hirag_dist.errors import HiragError, RequestRejected
from hirag_dist.protocols import Closable, Embedder
from hirag_dist.retrieval.micro_batcher import MicroBatcher
from hirag_dist.types import FloatMatrix

_MAX_BATCH = 64  # questions in one call
_MAX_CALLS = 2  # in progress: with one, a question would wait for half a call on average
_Vector = NDArray[np.float32]


class QuestionEmbedder:
    """Implements `protocols.Embedder` over another one, for short texts that many callers send one by one.

    Questions that differ in white space or Unicode normalisation only are equal. Failures are not cached. Serves one
    event loop.

    Attributes:
        hits: texts whose vector was cached.
        misses: texts that were embedded.
    """

    def __init__(self, embedder: Embedder, max_cached: int = 1024) -> None:
        """Wrap an embedder.

        Args:
            max_cached: vectors in the cache, least recently used ones removed; 4 bytes a dimension each.
        """
        self.name, self.dim = embedder.name, embedder.dim
        self.hits = self.misses = 0
        self._embedder = embedder
        self._max_cached = max_cached
        self._vectors: OrderedDict[str, _Vector] = OrderedDict()
        self._batcher: MicroBatcher[str, _Vector | HiragError] = MicroBatcher(self._embed, _MAX_BATCH, _MAX_CALLS)

    async def embed(self, texts: Sequence[str]) -> FloatMatrix:
        """Return (len(texts), dim) float32 rows of unit length; an empty text gives a row of zeros.

        A caller may be cancelled; the other callers of its batch still get their vectors. A text that the embedder
        refuses fails for its own caller only.

        Raises:
            ModelError: the embedder refuses the text, or does not answer.
        """
        rows = np.zeros((len(texts), self.dim), np.float32)
        for row, text in enumerate(texts):
            rows[row] = await self._vector(unicodedata.normalize("NFC", one_line(text)))
        return rows

    async def close(self) -> None:
        """Cancel the calls in progress, whose callers are gone, and close the embedder."""
        await self._batcher.close(cancel=True)
        if isinstance(self._embedder, Closable):
            await self._embedder.close()

    async def _vector(self, text: str) -> _Vector:
        vector = self._cached(text)
        if vector is not None:
            self.hits += 1
            return vector
        found = await self._batcher.submit(text)
        if isinstance(found, HiragError):
            raise found
        return found

    async def _embed(self, texts: Sequence[str]) -> list[_Vector | HiragError]:
        found: dict[str, _Vector | HiragError] = {}
        for text in texts:
            vector = self._cached(text)  # the previous call may have cached it
            if vector is not None:
                found[text] = vector
        self.hits += sum(text in found for text in texts)
        wanted = [text for text in dict.fromkeys(texts) if text not in found]
        self.misses += len(wanted)
        if wanted:
            found.update(zip(wanted, await self._call(wanted), strict=True))
        return [found[text] for text in texts]

    async def _call(self, texts: Sequence[str]) -> list[_Vector | HiragError]:
        try:
            rows = await self._embedder.embed(texts)
        except RequestRejected as error:
            if error.fatal or len(texts) == 1:
                return [error] * len(texts)
            return [result for text in texts for result in await self._call([text])]
        for text, row in zip(texts, rows, strict=True):
            self._store(text, row)
        return list(rows)

    def _cached(self, text: str) -> _Vector | None:
        vector = self._vectors.get(text)
        if vector is not None:
            self._vectors.move_to_end(text)
        return vector

    def _store(self, text: str, vector: _Vector) -> None:
        self._vectors[text] = vector.copy()  # the row alone, not the whole call's matrix
        self._vectors.move_to_end(text)
        while len(self._vectors) > self._max_cached:
            self._vectors.popitem(last=False)
