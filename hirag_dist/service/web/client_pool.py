"""The client that the page asks with, which a renewed certificate replaces while questions are under way."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from hirag_dist.client import AsyncHiragClient


class ClientPool:
    """Gives out the client that is in use, and closes one that was replaced when the last question through it ends.

    Left open it would try to connect again for ever, trusting a certificate that the service no longer shows. To be
    used inside a running loop.
    """

    def __init__(self) -> None:
        self._uses: dict[AsyncHiragClient, int] = {}  # of every client that is open
        self._latest: AsyncHiragClient | None = None
        self._closing: set[asyncio.Task[None]] = set()

    def put(self, client: AsyncHiragClient) -> None:
        """Use another client from now on."""
        before, self._latest = self._latest, client
        self._uses[client] = 0
        if before is not None:
            self._close_unless_used(before)

    @contextmanager
    def lease(self) -> Iterator[AsyncHiragClient]:
        """Give the latest client, which stays open until the block ends."""
        client = self._latest
        assert client is not None, "nothing is asked before the first client is put in"
        self._uses[client] += 1
        try:
            yield client
        finally:
            self._uses[client] -= 1
            self._close_unless_used(client)

    async def close(self) -> None:
        """Close them all; nothing is asked any more."""
        for client in list(self._uses):
            await client.close()
        await asyncio.gather(*self._closing)

    def _close_unless_used(self, client: AsyncHiragClient) -> None:
        if client is not self._latest and not self._uses[client]:
            del self._uses[client]
            task = asyncio.create_task(client.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)
