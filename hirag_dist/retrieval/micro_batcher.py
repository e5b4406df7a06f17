"""Calls that come while others are under way, joined into one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(slots=True, eq=False)
class _Waiting(Generic[Item, Result]):
    item: Item
    result: asyncio.Future[Result]


class MicroBatcher(Generic[Item, Result]):
    """One door to something that does many items in one call for little more than the price of one.

    An item that finds the door free goes at once, alone: nobody waits for company. While as many calls as may be are
    under way, items gather, and leave together when one of those calls ends. Serves one event loop.

    Args:
        run: does some items of one kind; returns a result for each, in order.
        max_items: of one call.
        max_calls: under way at a time.
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
        self._most_items = max_items
        self._most_calls = max_calls
        self._kind = kind
        self._waiting: list[_Waiting[Item, Result]] = []
        self._calls: set[asyncio.Task[None]] = set()

    async def ask(self, item: Item) -> Result:
        """Return the item's result, or raise what the call raised that it went with.

        Whoever asks may be cancelled: an item that has not left is dropped, and the others of its call are not touched.
        """
        waiting: _Waiting[Item, Result] = _Waiting(item, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        self._send()
        try:
            return await waiting.result
        finally:
            if waiting.result.cancelled() and waiting in self._waiting:
                self._waiting.remove(waiting)

    async def close(self) -> None:
        """Wait for the calls under way; whoever still waits for one to begin is cancelled."""
        for waiting in self._waiting:
            waiting.result.cancel()
        self._waiting.clear()
        while self._calls:
            await asyncio.gather(*self._calls)

    def _send(self) -> None:
        while self._waiting and len(self._calls) < self._most_calls:
            kind = self._kind(self._waiting[0].item)
            batch = [each for each in self._waiting if self._kind(each.item) == kind][: self._most_items]
            self._waiting = [each for each in self._waiting if each not in batch]
            task = asyncio.create_task(self._call(batch))
            self._calls.add(task)
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._calls.discard(task)
        self._send()

    async def _call(self, batch: list[_Waiting[Item, Result]]) -> None:
        try:
            results = await self._run([each.item for each in batch])
        except asyncio.CancelledError:  # the loop is ending
            for each in batch:
                each.result.cancel()
            raise
        except Exception as error:  # it belongs to those who asked, and there may be none left
            for each in batch:
                if not each.result.done():
                    each.result.set_exception(error)
            return
        for each, result in zip(batch, results, strict=True):
            if not each.result.done():
                each.result.set_result(result)
