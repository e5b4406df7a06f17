"""Embedding of questions: calls that arrive together share one batch, and equal questions one vector."""

from __future__ import annotations

import asyncio
import unicodedata
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from hirag_dist.core.text.normalize import one_line
from hirag_dist.errors import HiragError, RequestRejected
from hirag_dist.protocols import Closable, Embedder
from hirag_dist.types import FloatMatrix

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(slots=True, eq=False)
class _PendingItem(Generic[Item, Result]):
    item: Item
    result: asyncio.Future[Result]


class MicroBatcher(Generic[Item, Result]):
    """Batches items for a function whose call costs little more for many items than for one.

    If fewer than `max_calls` calls are in progress, an item is sent immediately; otherwise items are batched until one
    of the calls returns. Serves one event loop.

    Args:
        run: processes items of one kind; returns a result for each, in order.
        kind: items of one call must be of one kind; by default all are.
    """

    def __init__(
        self,
        run: Callable[[Sequence[Item]], Awaitable[Sequence[Result]]],
        max_items: int,
        max_calls: int = 1,
        kind: Callable[[Item], object] = lambda item: None,
    ) -> None:
        self._run = run
        self._max_items = max_items
        self._max_calls = max_calls
        self._kind = kind
        self._pending: list[_PendingItem[Item, Result]] = []
        self._calls: set[asyncio.Task[None]] = set()

    async def submit(self, item: Item) -> Result:
        """Return the item's result, or raise the exception of its call.

        The caller may be cancelled: an item that was not sent is dropped; the other items of its call are unaffected.
        """
        pending: _PendingItem[Item, Result] = _PendingItem(item, asyncio.get_running_loop().create_future())
        self._pending.append(pending)
        self._send()
        try:
            return await pending.result
        finally:
            if pending.result.cancelled() and pending in self._pending:
                self._pending.remove(pending)

    async def close(self, *, cancel: bool = False) -> None:
        """Wait for the calls in progress, or cancel them; cancel the items that were not sent."""
        for pending in self._pending:
            pending.result.cancel()
        self._pending.clear()
        while self._calls:
            for call in self._calls if cancel else ():
                call.cancel()
            await asyncio.gather(*self._calls, return_exceptions=True)

    def _send(self) -> None:
        while self._pending and len(self._calls) < self._max_calls:
            kind = self._kind(self._pending[0].item)
            batch = [pending for pending in self._pending if self._kind(pending.item) == kind][: self._max_items]
            self._pending = [pending for pending in self._pending if pending not in batch]
            task = asyncio.create_task(self._call(batch))
            self._calls.add(task)
            task.add_done_callback(self._on_call_done)

    def _on_call_done(self, task: asyncio.Task[None]) -> None:
        self._calls.discard(task)
        self._send()

    async def _call(self, batch: list[_PendingItem[Item, Result]]) -> None:
        try:
            results = await self._run([pending.item for pending in batch])
        except asyncio.CancelledError:  # the loop is ending
            for pending in batch:
                pending.result.cancel()
            raise
        except Exception as error:  # raised in the callers, of which none may be left
            for pending in batch:
                if not pending.result.done():
                    pending.result.set_exception(error)
            return
        for pending, result in zip(batch, results, strict=True):
            if not pending.result.done():
                pending.result.set_result(result)


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

    def __init__(self, embedder: Embedder, max_cached: int = 1024, *, keep: bool = False) -> None:
        """Wrap an embedder.

        Args:
            max_cached: vectors in the cache, least recently used ones removed; 4 bytes a dimension each.
            keep: whether others use the embedder too, so that it is not closed.
        """
        self.name, self.dim = embedder.name, embedder.dim
        self.hits = self.misses = 0
        self._embedder = embedder
        self._max_cached = max_cached
        self._keep = keep
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
            wanted = unicodedata.normalize("NFC", one_line(text))
            found: _Vector | HiragError | None = self._cached(wanted)
            if found is None:
                found = await self._batcher.submit(wanted)
            else:
                self.hits += 1
            if isinstance(found, HiragError):
                raise found
            rows[row] = found
        return rows

    async def close(self) -> None:
        """Cancel the calls in progress, whose callers are gone, and close the embedder unless it is kept."""
        await self._batcher.close(cancel=True)
        if not self._keep and isinstance(self._embedder, Closable):
            await self._embedder.close()

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
            self._vectors[text] = row.copy()  # the row alone, not the whole call's matrix
            self._vectors.move_to_end(text)
            while len(self._vectors) > self._max_cached:
                self._vectors.popitem(last=False)
        return list(rows)

    def _cached(self, text: str) -> _Vector | None:
        vector = self._vectors.get(text)
        if vector is not None:
            self._vectors.move_to_end(text)
        return vector
