"""Questions to vectors: those that come together are embedded together, those asked before are remembered."""

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

_MAX_JOINED = 64  # questions in one call
_AT_A_TIME = 2  # calls: with one, a question would wait for half a call on average
_Vector = NDArray[np.float32]


class QuestionEmbedder:
    """Implements `ports.Embedder` over another one, for short texts that many callers ask one by one.

    Spaces and forms of characters do not tell two questions apart. What failed is not remembered. Serves one event
    loop.

    Attributes:
        hits: texts whose vector was remembered.
        misses: texts that were embedded.
    """

    def __init__(self, embedder: Embedder, remembered: int = 1024) -> None:
        """Stand before an embedder.

        Args:
            remembered: vectors kept, those asked for last; 4 bytes a dimension each.
        """
        self.name, self.dim = embedder.name, embedder.dim
        self.hits = self.misses = 0
        self._embedder = embedder
        self._remembered = remembered
        self._vectors: OrderedDict[str, _Vector] = OrderedDict()  # one embedder's: its name need not be in the key
        self._joined: MicroBatcher[str, _Vector | HiragError] = MicroBatcher(self._embed, _MAX_JOINED, _AT_A_TIME)

    async def embed(self, texts: Sequence[str]) -> FloatMatrix:
        """Return (len(texts), dim) float32 rows of unit length; an empty text gives a row of zeros.

        Whoever asks may be cancelled, and the others of its call still get their vectors. A text that the embedder
        refuses is a failure of whoever asked for it alone.

        Raises:
            ModelError: the embedder refuses the text, or does not answer.
        """
        rows = np.zeros((len(texts), self.dim), np.float32)
        for place, text in enumerate(texts):
            rows[place] = await self._vector(unicodedata.normalize("NFC", one_line(text)))
        return rows

    async def close(self) -> None:
        """Wait for the calls under way, and let go of the embedder."""
        await self._joined.close()
        if isinstance(self._embedder, Closable):
            await self._embedder.close()

    async def _vector(self, text: str) -> _Vector:
        vector = self._recall(text)
        if vector is not None:
            self.hits += 1
            return vector
        found = await self._joined.ask(text)
        if isinstance(found, HiragError):
            raise found
        return found

    async def _embed(self, texts: Sequence[str]) -> list[_Vector | HiragError]:
        found: dict[str, _Vector | HiragError] = {}
        for text in texts:
            vector = self._recall(text)  # the call before this one may have brought it
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
            return [one for text in texts for one in await self._call([text])]
        for text, row in zip(texts, rows, strict=True):
            self._remember(text, row)
        return list(rows)

    def _recall(self, text: str) -> _Vector | None:
        vector = self._vectors.get(text)
        if vector is not None:
            self._vectors.move_to_end(text)
        return vector

    def _remember(self, text: str, vector: _Vector) -> None:
        self._vectors[text] = vector.copy()  # the row alone, not the whole call's matrix
        self._vectors.move_to_end(text)
        while len(self._vectors) > self._remembered:
            self._vectors.popitem(last=False)
