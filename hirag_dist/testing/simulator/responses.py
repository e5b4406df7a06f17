"""Replies put on the wire: whole, or only their first half."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from aiohttp import web

from hirag_dist.testing.simulator import openai_schema


@dataclass(frozen=True, slots=True)
class Payload:
    """The body of a reply: in one part, or as server-sent events."""

    parts: tuple[bytes, ...]
    is_stream: bool = False

    @property
    def whole(self) -> bytes:
        """All of it."""
        return self.parts[0] if len(self.parts) == 1 else b"".join(self.parts)


def json_response(body: object, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    """Return a JSON response."""
    return web.Response(body=openai_schema.dump(body), status=status, headers=headers, content_type="application/json")


async def send(request: web.Request, payload: Payload, headers: Mapping[str, str]) -> web.StreamResponse:
    """Send a reply. Raises ConnectionError when the caller has gone."""
    if not payload.is_stream:
        whole = web.Response(body=payload.whole, headers=headers, content_type="application/json")
        await whole.prepare(request)
        await whole.write_eof()
        return whole
    response = _open(payload, headers)
    await response.prepare(request)
    for part in payload.parts:
        await response.write(part)
    await response.write_eof()
    return response


async def begin(request: web.Request, payload: Payload, headers: Mapping[str, str]) -> web.StreamResponse:
    """Send the first half of a reply. Raises ConnectionError when the caller has gone."""
    response = _open(payload, headers)
    await response.prepare(request)
    if payload.is_stream:
        for part in payload.parts[: len(payload.parts) // 2]:
            await response.write(part)
    else:
        await response.write(payload.whole[: len(payload.whole) // 2])
    return response


async def gone(request: web.Request) -> bool:
    """Return whether the caller has closed the connection, as far as can be known now."""
    for _ in range(2):  # the loop first has to see the end of the connection, then to act on it
        await asyncio.sleep(0)
    return request.transport is None or request.transport.is_closing()


def _open(payload: Payload, headers: Mapping[str, str]) -> web.StreamResponse:
    if payload.is_stream:
        own = {"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache"}
        return web.StreamResponse(headers={**own, **headers})
    response = web.StreamResponse(headers={**headers, "Content-Type": "application/json"})
    response.content_length = len(payload.whole)
    return response
