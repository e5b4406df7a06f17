"""The page's client of the service, which is replaced when certificates are renewed, while requests are in progress."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Generic, Protocol, TypeVar


class ServiceClient(Protocol):
    """A client of the service."""

    async def close(self) -> None:
        """Close its connections."""
        ...


_Client = TypeVar("_Client", bound=ServiceClient)


class ClientPool(Generic[_Client]):
    """Lends the current client, and closes a replaced one when its last request has ended.

    An open client would reconnect for ever, with a certificate that the service no longer uses. For use inside a
    running event loop.
    """

    def __init__(self) -> None:
        self._uses: dict[_Client, int] = {}  # requests of every open client
        self._latest: _Client | None = None
        self._closing: set[asyncio.Task[None]] = set()

    def put(self, client: _Client) -> None:
        """Replace the client."""
        before, self._latest = self._latest, client
        self._uses[client] = 0
        if before is not None:
            self._close_unless_used(before)

    @contextmanager
    def lease(self) -> Iterator[_Client]:
        """Lend the latest client, which stays open until the block ends."""
        client = self._latest
        assert client is not None, "put() comes before the first lease()"
        self._uses[client] += 1
        try:
            yield client
        finally:
            self._uses[client] -= 1
            self._close_unless_used(client)

    async def close(self) -> None:
        """Close all clients; no request is in progress any more."""
        for client in list(self._uses):
            await client.close()
        await asyncio.gather(*self._closing)

    def _close_unless_used(self, client: _Client) -> None:
        if client is not self._latest and not self._uses[client]:
            del self._uses[client]
            task = asyncio.create_task(client.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)
