"""A connection to a server on this machine that can be cut, pulled, and plugged in again."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any


class Cable:
    """Carries what is sent to its address to a target, HOST:PORT, and back."""

    def __init__(self, target: str) -> None:
        self._target = target.split(":")
        self._carrying: list[asyncio.Task[Any]] = []
        self._ends: list[asyncio.StreamWriter] = []
        self._is_cut = False
        self._port = 0
        self.address = ""

    async def plug_in(self) -> None:
        """Listen, where it did before if it was unplugged."""
        self._server = await asyncio.start_server(self._join, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]
        self.address = f"127.0.0.1:{self._port}"

    async def _join(self, reader: asyncio.StreamReader, near: asyncio.StreamWriter) -> None:
        far_reader, far = await asyncio.open_connection(*self._target)
        self._ends += [near, far]
        self._carrying += [asyncio.create_task(self._carry(*each)) for each in ((reader, far), (far_reader, near))]

    async def _carry(self, source: asyncio.StreamReader, to: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await source.read(65_536):
                if not self._is_cut:
                    to.write(data)
        to.close()

    def cut(self) -> None:
        """Drop all traffic without closing either end."""
        self._is_cut = True

    def pull(self) -> None:
        """Abort the connections that there are."""
        for end in self._ends:
            end.transport.abort()

    async def unplug(self) -> None:
        """Abort the connections, and take no others."""
        self._server.close()
        self.pull()
        await asyncio.gather(*self._carrying)
        self._ends, self._carrying = [], []
