"""Locks of request keys: of equal requests in a cluster one is sent, and the others wait for its reply.

A worker that finds no reply in its view of the ledger locks the request's key, looks again, and only then sends the
request. The table of the locks is with the quota coordinator. It also knows which keys were released lately: a worker
that has not refreshed its view since then is refused the lock, and finds the reply in the ledger instead.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

_MAX_RELEASED = 100_000  # keys that the table remembers: about 20 MB
_PAUSE_S = 0.02  # between two messages of a worker, so that one is about several calls
_MAX_MESSAGES_PER_S = 500.0  # of all workers together
_MIN_WAIT_S, _MAX_WAIT_S = 0.05, 1.0  # of a caller that waits for another worker, from one try to the next


class LockReply(NamedTuple):
    """Outcome for a worker for the keys that it asked for.

    Attributes:
        granted: positions of the keys that it holds now.
        held: positions of the keys that are held already; the rest was released since the worker's last refresh.
        n_released: keys released so far.
        pause_s: time until the worker's next message.
    """

    granted: tuple[int, ...]
    held: tuple[int, ...]
    n_released: int
    pause_s: float


@runtime_checkable
class KeyLockClient(Protocol):
    """The table of locks, as a worker calls it."""

    async def lock_keys(self, worker: str, n_refreshed: int, keys: Sequence[str], released: Sequence[str]) -> LockReply:
        """As `KeyLockTable.lock`, after `KeyLockTable.release`."""


class KeyLockTable:
    """The locks of all workers; it remembers the last `max_released` keys that were released. Serves one event loop."""

    def __init__(self, max_released: int = _MAX_RELEASED) -> None:
        self._max_released = max_released
        self._locks: dict[str, str] = {}  # key → worker
        self._released: dict[str, int] = {}  # key → number of its release, in this order
        self._n_released = 0
        self._n_forgotten = 0  # number of the last release that is not remembered
        self._workers: set[str] = set()

    def lock(self, worker: str, n_refreshed: int, keys: Sequence[str]) -> LockReply:
        """Grant the keys that are free and whose last reply the worker can see.

        Args:
            n_refreshed: keys that had been released when the worker last refreshed its view of the ledger.
        """
        self._workers.add(worker)
        granted, held = [], []
        for at, key in enumerate(keys):
            if key in self._locks:
                held.append(at)
            elif max(self._released.get(key, 0), self._n_forgotten) <= n_refreshed:
                self._locks[key] = worker
                granted.append(at)
        pause_s = max(_PAUSE_S, len(self._workers) / _MAX_MESSAGES_PER_S)
        return LockReply(tuple(granted), tuple(held), self._n_released, pause_s)

    def release(self, worker: str, keys: Collection[str]) -> None:
        """Release locks that a worker holds: the replies are durable, or there are none."""
        for key in keys:
            if self._locks.get(key) != worker:
                continue  # its locks were released when it was declared dead
            del self._locks[key]
            self._n_released += 1
            self._released.pop(key, None)
            self._released[key] = self._n_released
        while len(self._released) > self._max_released:
            self._n_forgotten = self._released.pop(next(iter(self._released)))

    def leave(self, worker: str) -> None:
        """Release all locks of a worker that died; it may have stored some of the replies."""
        self._workers.discard(worker)
        self.release(worker, [key for key, holder in self._locks.items() if holder == worker])


@dataclass(slots=True, eq=False)
class _Request:
    keys: tuple[str, ...]
    reply: asyncio.Future[tuple[frozenset[str], bool]]  # granted keys; whether others are held


class KeyLocks:
    """The locks of one worker. Serves one event loop.

    Args:
        worker: unique name, as of `RateLimiter`.
        refresh: makes every reply visible that any worker had stored when it was called.
    """

    def __init__(self, client: KeyLockClient, worker: str, refresh: Callable[[], Awaitable[None]]) -> None:
        self._client, self._worker, self._refresh_view = client, worker, refresh
        self._n_released = 0  # as far as is known here
        self._n_refreshed = 0  # as of the last refresh
        self._refreshing = asyncio.Lock()
        self._requests: list[_Request] = []
        self._to_release: list[str] = []
        self._sender: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def hold(self, keys: Collection[str]) -> AsyncIterator[frozenset[str]]:
        """Hold the locks of those keys that are to be requested here. Look into the ledger again while holding them.

        The others are requested by other workers, or were. If that is true of all, this waits until their locks are
        released and refreshes the view of the ledger; a key without a reply there can then be locked again. A waiting
        caller asks again from time to time: a message that waited in the actor would take one of its places.

        Raises:
            StageFailed: the table is gone.
            StoreError: the ledger cannot be read.
        """
        granted, is_held = await self._lock(keys)
        wait_s = _MIN_WAIT_S
        while is_held and not granted:
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, _MAX_WAIT_S)
            granted, is_held = await self._lock(keys)
        try:
            if keys and not granted:
                n_released = self._n_released
                async with self._refreshing:  # callers at the same time share a refresh
                    if self._n_refreshed < n_released:
                        await self.refresh()
            yield granted
        finally:
            self._release(granted)

    async def refresh(self) -> None:
        """See every reply that any worker had stored when this was called."""
        n_released = self._n_released
        await self._refresh_view()
        self._n_refreshed = max(self._n_refreshed, n_released)

    def close(self) -> None:
        """Send no further messages."""
        if self._sender is not None:
            self._sender.cancel()

    async def _lock(self, keys: Collection[str]) -> tuple[frozenset[str], bool]:
        request = _Request(tuple(keys), asyncio.get_running_loop().create_future())
        self._requests.append(request)
        self._send()
        try:
            return await request.reply
        except asyncio.CancelledError:
            if request.reply.done() and not request.reply.cancelled() and request.reply.exception() is None:
                self._release(request.reply.result()[0])  # granted before the caller saw it
            raise

    def _release(self, keys: Collection[str]) -> None:
        if keys:
            self._to_release.extend(keys)
            self._send()

    def _send(self) -> None:
        if self._sender is None or self._sender.done():
            self._sender = asyncio.get_running_loop().create_task(self._send_all())

    async def _send_all(self) -> None:
        """Send what waits, in one message at a time."""
        while self._requests or self._to_release:
            requests, self._requests = self._requests, []
            released, self._to_release = self._to_release, []
            keys = [key for request in requests for key in request.keys]
            try:
                reply = await self._client.lock_keys(self._worker, self._n_refreshed, keys, released)
            except BaseException as error:
                failure = error if isinstance(error, Exception) else asyncio.CancelledError("the worker is closed")
                for request in requests:
                    if not request.reply.done():
                        request.reply.set_exception(failure)
                if isinstance(error, Exception) and not requests:
                    return  # the next request meets the same error and raises it
                if not isinstance(error, Exception):
                    raise
                continue
            self._n_released = reply.n_released
            granted, held = {keys[at] for at in reply.granted}, {keys[at] for at in reply.held}
            for request in requests:
                own = frozenset(request.keys) & granted
                granted -= own
                if request.reply.done():  # its caller was cancelled
                    self._to_release.extend(own)
                else:
                    request.reply.set_result((own, not held.isdisjoint(request.keys)))
            await asyncio.sleep(reply.pause_s)
