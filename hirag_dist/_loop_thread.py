"""An event loop in a background thread, for synchronous callers."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextlib import aclosing
from functools import wraps
from queue import SimpleQueue
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_END_S = 5.0


class LoopThread:
    """An event loop in a daemon thread, for synchronous callers.

    Args:
        closed: returns the error of a call after `close`.
    """

    def __init__(self, name: str, closed: Callable[[], Exception]) -> None:
        self._closed = closed
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    @property
    def running(self) -> bool:
        """True while coroutines can be run."""
        return self._thread.is_alive()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of a coroutine; an interrupt of the caller cancels it."""
        if not self.running:
            work.close()
            raise self._closed()
        future = asyncio.run_coroutine_threadsafe(work, self.loop)
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
            raise self._closed()
        future = asyncio.run_coroutine_threadsafe(produce(), self.loop)
        try:
            while (item := queue.get()) is not done:
                yield item
            future.result()
        finally:
            if future.cancel():
                while queue.get() is not done:  # the generator has released its connections then
                    pass

    def close(self) -> None:
        """Stop the loop when its coroutines have ended, or after some seconds, and wait for its thread."""
        if self.running and threading.current_thread() is not self._thread:
            asyncio.run_coroutine_threadsafe(_others_ended(), self.loop).result()
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join()

    def _serve(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
            self.loop.run_until_complete(self.loop.shutdown_default_executor())
        finally:
            self.loop.close()


async def _others_ended() -> None:
    """Wait for the other tasks of the loop, at most for some seconds."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    if others:
        await asyncio.wait(others, timeout=_END_S)


class Synchronous:
    """An object whose methods are those of an asynchronous one, made with `call` and `stream`; a context manager."""

    _loop: LoopThread
    _inner: Any

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release files, connections and the background thread. Closing twice is harmless."""
        if self._loop.running:
            self._loop.run(self._inner.close())
            self._loop.close()


def call(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Any, P], T]:
    """Return a method of a `Synchronous` object that waits for the result of an asynchronous method."""

    @wraps(method)
    def waiting(self: Synchronous, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._loop.run(method(self._inner, *args, **kwargs))

    return waiting


def stream(
    method: Callable[Concatenate[Any, P], AsyncGenerator[T, None]],
) -> Callable[Concatenate[Any, P], Generator[T, None, None]]:
    """Return a method of a `Synchronous` object that yields what an asynchronous method yields."""

    @wraps(method)
    def yielding(self: Synchronous, /, *args: P.args, **kwargs: P.kwargs) -> Generator[T, None, None]:
        return self._loop.iterate(method(self._inner, *args, **kwargs))

    shown = inspect.signature(method)
    returned = str(shown.return_annotation).replace("AsyncGenerator[", "Generator[").removesuffix("]") + ", None]"
    yielding.__signature__ = shown.replace(return_annotation=returned)  # type: ignore[attr-defined]
    return yielding
