"""Micro-batching: items that arrive while a call is in progress are sent together in the next call."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

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
        max_items: of one call.
        max_calls: in progress at a time.
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
        """Wait for the calls in progress; cancel the items that were not sent.

        Args:
            cancel: whether calls in progress are cancelled first.
        """
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
