"""Connections to the page that are hoarded, or that send their request too slowly, keep no browser out."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from contextlib import ExitStack

import aiohttp
import pytest
from yarl import URL

from tests.service.web.conftest import Served

Serve = Callable[..., Awaitable[Served]]
pytestmark = pytest.mark.asyncio(loop_scope="module")


async def _described(url: str) -> int:
    async with aiohttp.ClientSession() as session, session.post(f"{url}api/describe", json={}) as response:
        return response.status


def _is_open(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) != b""
    except BlockingIOError:
        return True
    except ConnectionError:
        return False


@pytest.mark.parametrize(
    ("limits", "left"),
    [
        ({"max_connections_per_client": 5}, 5),
        # those that are younger than the limit when the others are closed stay: half of the connections is no crowd
        ({"max_connections": 20, "max_connections_per_client": 20, "first_request_s": 1.0}, 10),
    ],
)
async def test_connections_that_send_no_request_are_closed(serve: Serve, limits: dict[str, float], left: int) -> None:
    url = URL((await serve(page=limits)).url)
    assert url.host is not None
    with ExitStack() as stack:
        opened = []
        for _ in range(15):
            connection = stack.enter_context(socket.create_connection((url.host, url.port)))
            connection.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-")  # the headers never end
            connection.setblocking(False)
            opened.append(connection)
        async with asyncio.timeout(30):
            while sum(map(_is_open, opened)) > left:
                await asyncio.sleep(0.05)
        assert await _described(str(url)) == 200
