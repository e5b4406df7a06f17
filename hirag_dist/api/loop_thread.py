"""An event loop in a background thread, for synchronous callers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Coroutine, Generator
from contextlib import aclosing
from queue import SimpleQueue
from typing import Any, TypeVar

from hirag_dist.errors import HiragError

T = TypeVar("T")


class LoopThread:
    """An event loop in a daemon thread, for synchronous callers."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="hirag-dist-index", daemon=True)
        self._thread.start()

    @property
    def running(self) -> bool:
        """True while coroutines can be run."""
        return self._thread.is_alive()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of a coroutine; an interrupt of the caller cancels it."""
        if not self.running:
            work.close()
            raise HiragError("this index is closed; open it again")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def iterate(self, items: AsyncGenerator[T]) -> Generator[T]:
        """Yield the items of an asynchronous generator, which runs in one task; closing this cancels it."""
        done = object()
        queue: SimpleQueue[Any] = SimpleQueue()

        async def produce() -> None:
            try:
                async with aclosing(items):
                    async for item in items:
                        queue.put(item)
            finally:
                queue.put(done)

        if not self.running:
            raise HiragError("this index is closed; open it again")
        future = asyncio.run_coroutine_threadsafe(produce(), self._loop)
        try:
            while (item := queue.get()) is not done:
                yield item
            future.result()
        finally:
            if future.cancel():
                while queue.get() is not done:  # the generator has released its connections then
                    pass

    def close(self) -> None:
        """Stop the loop and wait for its thread."""
        if self.running:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
        finally:
            self._loop.close()
