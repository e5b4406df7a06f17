"""Guards of an endpoint's HTTP client: replies of bounded size, and no redirect to another host.

A compressed reply of 3 MB can hold gigabytes. Replies are decompressed in pieces of at most 1 MiB and counted as they
come, so that one that is too large is given up before it is in memory.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import httpx2

from hirag_dist.core.text.normalize import one_line, shorten
from hirag_dist.errors import RequestRejected, UnusableReply

MAX_REPLY_BYTES = 8 << 20  # a chat reply of 128,000 tokens, escaped, with its reasoning text, has half of it
MAX_STREAM_BYTES = 32 << 20  # of server-sent events, of some 300 bytes a token
MAX_FILE_BYTES = 4 << 30  # of a batch; its reader has a bound of its own
_MAX_REDIRECTS = 5
_TO_GET = frozenset({301, 302, 303})  # statuses that turn a POST into a GET without its body
_SHOWN_CHARS = 120


@dataclass(frozen=True, slots=True)
class HttpGuards:
    """Hooks of one endpoint's client.

    Attributes:
        who: the endpoint, for messages.
        base_url: as configured; requests go to its scheme, host and port, or from http to https on the usual ports.
        max_reply_bytes: of a reply that is no stream and no file, decompressed.
        key_header: carries the key in place of `Authorization: Bearer`; empty for that.
    """

    who: str
    base_url: str
    max_reply_bytes: int = MAX_REPLY_BYTES
    key_header: str = ""

    def client_options(self) -> dict[str, Any]:
        """Return the arguments of an `httpx2.AsyncClient` with these guards."""
        hooks: dict[str, list[Callable[[Any], Awaitable[None]]]] = {
            "request": [self.check_request],
            "response": [self.check_response],
        }
        return {"event_hooks": hooks, "max_redirects": _MAX_REDIRECTS}

    async def check_request(self, request: httpx2.Request) -> None:
        """Put the key where the endpoint wants it; refuse a request to another host, which only a redirect can cause.

        Raises:
            RequestRejected: it would go to another host, port or scheme.
        """
        if self.key_header and (bearer := request.headers.pop("Authorization", "")):
            request.headers[self.key_header] = bearer.removeprefix("Bearer ")
        home, there = httpx2.URL(self.base_url), request.url
        if there.origin == home.origin or _is_upgrade(home, there):
            return
        raise RequestRejected(
            f"{self.who} redirects to {_public(there)}, another host, which is sent neither prompts nor the key; set "
            "base_url to it if it is the endpoint's new address",
            fatal=True,
        )

    async def check_response(self, response: httpx2.Response) -> None:
        """Bound the size of a reply, and refuse a redirect that would drop the request's body.

        Raises:
            RequestRejected: a POST is redirected with a status that makes it a GET.
        """
        request = response.request
        if response.status_code in _TO_GET and request.method == "POST" and response.has_redirect_location:
            where = shorten(one_line(response.headers["Location"]), _SHOWN_CHARS).rpartition("@")[2]
            raise RequestRejected(
                f"{self.who} answered {response.status_code}, a redirect to {where} without the request's body; set "
                "base_url to the endpoint's present address",
                fatal=True,
            )
        limit = self.max_reply_bytes
        if response.headers.get("content-type", "").startswith("text/event-stream"):
            limit = MAX_STREAM_BYTES
        elif request.method == "GET" and request.url.path.endswith("/content"):
            limit = MAX_FILE_BYTES
        encoded = httpx2.Response(
            response.status_code, headers=response.headers, stream=response.stream, request=request
        )
        response.stream = _BoundedStream(encoded, limit, self.who)
        response.headers.pop("content-encoding", None)


class _BoundedStream(httpx2.AsyncByteStream):
    """The decompressed content of a response, up to a limit."""

    def __init__(self, encoded: httpx2.Response, limit: int, who: str) -> None:
        self._encoded, self._limit, self._who = encoded, limit, who

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._pieces()

    async def _pieces(self) -> AsyncGenerator[bytes]:
        n_bytes = 0
        async with aclosing(self._encoded.aiter_bytes()) as pieces:
            async for piece in pieces:
                n_bytes += len(piece)
                if n_bytes > self._limit:
                    raise UnusableReply(f"{self._who} answered more than {self._limit:,} bytes, which is no reply")
                yield piece

    async def aclose(self) -> None:
        await self._encoded.aclose()


def _is_upgrade(home: httpx2.URL, there: httpx2.URL) -> bool:
    """Return whether a URL is the same host by https, both on their usual ports."""
    ports = home.port in (None, 80) and there.port in (None, 443)
    return home.host == there.host and (home.scheme, there.scheme) == ("http", "https") and ports


def _public(url: httpx2.URL) -> str:
    """Return the scheme, host and port of a URL."""
    port = "" if url.port is None else f":{url.port}"
    return shorten(one_line(f"{url.scheme}://{url.host}{port}"), _SHOWN_CHARS)
