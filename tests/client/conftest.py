"""A service on loopback with a scripted engine, and both clients behind one interface."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import Any

import pytest

from hirag_dist.client import AsyncHiragClient, HiragClient
from tests.service.fixtures import certificates, engine, start

__all__ = ["certificates", "engine", "start"]


@pytest.fixture
def free_address() -> str:
    """Return HOST:PORT without a listener."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


class Client:
    """Either client behind one face: the ordinary one runs in a thread, as the service has the loop."""

    def __init__(self, form: str, target: str, **options: Any) -> None:
        self._form = form
        self._of: Any = HiragClient(target, **options) if form == "sync" else AsyncHiragClient(target, **options)

    async def call(self, name: str, *args: Any, **options: Any) -> Any:
        method = getattr(self._of, name)
        return (
            await asyncio.to_thread(method, *args, **options)
            if self._form == "sync"
            else await method(*args, **options)
        )

    async def collect(self, name: str, *args: Any, got: asyncio.Event | None = None, **options: Any) -> list[Any]:
        """All parts; `got` is set when the first is there."""
        method, loop, parts = getattr(self._of, name), asyncio.get_running_loop(), list[Any]()

        def take(part: Any) -> None:
            parts.append(part)
            if got is not None:
                loop.call_soon_threadsafe(got.set)

        if self._form == "sync":
            await asyncio.to_thread(lambda: [take(part) for part in method(*args, **options)])
        else:
            async for part in method(*args, **options):
                take(part)
        return parts

    async def first(self, name: str, *args: Any, **options: Any) -> Any:
        """The first part; then the stream is closed."""
        method = getattr(self._of, name)
        if self._form == "sync":

            def take() -> Any:
                with contextlib.closing(method(*args, **options)) as stream:
                    return next(stream)

            return await asyncio.to_thread(take)
        async with contextlib.aclosing(method(*args, **options)) as stream:
            return await anext(stream)

    async def close(self) -> None:
        if self._form == "sync":
            self._of.close()
        else:
            await self._of.close()


@pytest.fixture
def form() -> str:
    """The client of a test; those marked `both_clients` run with the synchronous one too, which is made from it."""
    return "async"


both_clients = pytest.mark.parametrize("form", ["sync", "async"])


@pytest.fixture
async def connect(form: str) -> Any:
    made: list[Client] = []

    def connect(target: str, **options: Any) -> Client:
        made.append(Client(form, target, **options))
        return made[-1]

    yield connect
    for client in made:
        await client.close()
