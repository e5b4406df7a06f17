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

Serve = Callable[[MCPServer[Any]], Awaitable[str]]


@pytest.fixture
async def connect() -> AsyncIterator[Callable[..., MCPServer[Any]]]:
    """Makes an MCP server that asks a service; keywords are `ServerSettings`."""
    clients = []

    def make(address: str, **settings: Any) -> MCPServer[Any]:
        clients.append(AsyncHiragClient(address, retries=False))
        return make_server(ServiceBackend(clients[-1]), ServerSettings(**settings))

    yield make
    for client in clients:
        await client.close()


@pytest.fixture
async def server(start: fakes.Start, engine: fakes.FakeEngine, connect: Any) -> Any:
    """An MCP server that asks a service around `engine`."""
    return connect((await start(engine)).address)


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """Serves an MCP server over HTTP on loopback; returns its URL."""
    serving: list[asyncio.Task[None]] = []

    async def run(server: MCPServer[Any]) -> str:
        url: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        serving.append(asyncio.create_task(serve_http(server, HttpOptions("127.0.0.1:0"), url.set_result)))
        done, _ = await asyncio.wait([url, serving[-1]], return_when=asyncio.FIRST_COMPLETED)
        assert url in done, serving[-1].exception()
        return url.result()

    yield run
    for task in serving:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
