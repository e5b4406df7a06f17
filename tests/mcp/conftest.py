"""A service on loopback with a scripted engine, and MCP servers that ask it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest
from mcp.server import MCPServer

from hirag_dist.client import AsyncHiragClient
from hirag_dist.mcp import ServiceBackend
from hirag_dist.mcp.run import HttpOptions, serve_http
from hirag_dist.mcp.tools import ServerSettings, make_server
from tests.service import fakes
from tests.service.fixtures import engine, start

__all__ = ["engine", "start"]

Serve = Callable[[ServiceBackend], Awaitable[str]]


@pytest.fixture
async def backend_of() -> AsyncIterator[Callable[[str], ServiceBackend]]:
    """Returns the backend of the service at an address."""
    backends: list[ServiceBackend] = []

    def make(address: str) -> ServiceBackend:
        backends.append(ServiceBackend(AsyncHiragClient(address, retries=False)))
        return backends[-1]

    yield make
    for backend in backends:
        await backend.close()


@pytest.fixture
def connect(backend_of: Callable[[str], ServiceBackend]) -> Callable[..., MCPServer[Any]]:
    """Makes an MCP server that asks a service; keywords are `ServerSettings`."""
    return lambda address, **settings: make_server(backend_of(address), ServerSettings(**settings))


@pytest.fixture
async def backend(start: fakes.Start, engine: fakes.FakeEngine, backend_of: Any) -> Any:
    """A service around `engine`."""
    return backend_of((await start(engine)).address)


@pytest.fixture
def server(backend: ServiceBackend) -> MCPServer[Any]:
    """An MCP server that asks a service around `engine`."""
    return make_server(backend, ServerSettings())


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """Serves the tools of a backend over HTTP on loopback; returns the URL."""
    serving: list[asyncio.Task[None]] = []

    async def run(backend: ServiceBackend) -> str:
        url: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        served = serve_http(backend, ServerSettings(), HttpOptions("127.0.0.1:0"), url.set_result)
        serving.append(asyncio.create_task(served))
        done, _ = await asyncio.wait([url, serving[-1]], return_when=asyncio.FIRST_COMPLETED)
        assert url in done, serving[-1].exception()
        return url.result()

    yield run
    for task in serving:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
