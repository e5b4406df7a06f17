"""Where the engine that answers the service's requests runs.

A retrieval computes for milliseconds. In the loop that accepts calls it would delay the calls that arrive meanwhile,
and load shedding would notice the queue too late. In a thread of its own it shares the interpreter, and new calls are
accepted within the interpreter's switch interval.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import aclosing
from typing import Any, TypeVar

from hirag_dist._loop_thread import LoopThread

T = TypeVar("T")

_SWITCH_S = 0.0005  # longest time for which the engine blocks the thread that accepts calls


class EngineRunner:
    """Runs the engine's coroutines, in the caller's event loop."""

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of `work`. A cancellation cancels the work and goes on when the work has ended."""
        return await work

    async def close(self) -> None:
        """Release threads; all work has ended."""

    async def stream(self, work: Callable[[], AsyncGenerator[T, None]]) -> AsyncGenerator[T, None]:
        """Yield the items of `work`, which does not wait for the reader. Closing this generator ends the work first."""
        items: asyncio.Queue[Any] = asyncio.Queue()
        done = object()
        here = asyncio.get_running_loop()

        async def produce() -> None:
            try:
                async with aclosing(work()) as made:
                    async for item in made:
                        here.call_soon_threadsafe(items.put_nowait, item)
            finally:
                here.call_soon_threadsafe(items.put_nowait, done)

        producing = asyncio.create_task(self.run(produce()))
        try:
            while (item := await items.get()) is not done:
                yield item
            await producing
        finally:
            producing.cancel()
            await asyncio.gather(producing, return_exceptions=True)


class ThreadEngineRunner(EngineRunner):
    """Runner in one thread with an event loop of its own; it shortens the interpreter's switch interval."""

    def __init__(self) -> None:
        self._thread = LoopThread("engine", lambda: RuntimeError("the engine is closed"))
        self._switch_s = sys.getswitchinterval()
        sys.setswitchinterval(_SWITCH_S)

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of `work`, which runs in the thread."""
        here = asyncio.get_running_loop()
        ended: asyncio.Future[asyncio.Task[T]] = here.create_future()
        started: list[asyncio.Task[T]] = []

        def start() -> None:
            started.append(self._thread.loop.create_task(work))
            started[0].add_done_callback(lambda task: here.call_soon_threadsafe(ended.set_result, task))

        self._thread.loop.call_soon_threadsafe(start)
        cancelled: asyncio.CancelledError | None = None
        while not ended.done():
            try:
                await asyncio.shield(ended)
            except asyncio.CancelledError as error:  # a second cancellation waits for the end of the work too
                if cancelled is None:
                    self._thread.loop.call_soon_threadsafe(lambda: started[0].cancel())
                cancelled = error
        task = ended.result()
        if cancelled is not None:
            if not task.cancelled():
                task.exception()  # marks the exception as retrieved
            raise cancelled
        return task.result()

    async def close(self) -> None:
        """End the thread."""
        if self._thread.running:
            await asyncio.to_thread(self._thread.close)
            sys.setswitchinterval(self._switch_s)
