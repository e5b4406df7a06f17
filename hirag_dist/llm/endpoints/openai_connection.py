"""Guards of HTTP calls, and why an endpoint cannot be reached or refuses a request, in words that say what to do.

A compressed reply of 3 MB can hold gigabytes. Replies are decompressed in pieces of at most 1 MiB and counted as they
come, so that one that is too large is given up before it is in memory.
"""

from __future__ import annotations

import errno
import ipaddress
import re
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
import httpx2

from hirag_dist.config.sections import public_url
from hirag_dist.core.text.normalize import one_line, shorten
from hirag_dist.errors import RequestRejected, UnusableReply
from hirag_dist.llm.reply_store.block_format import token_count

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
        base_url: URL as configured; requests go to its scheme, host and port, or from http to https on the usual ports.
        max_reply_bytes: Maximum bytes of a reply that is no stream and no file, decompressed.
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
        is_https = home.host == there.host and (home.scheme, there.scheme) == ("http", "https")
        if there.origin == home.origin or (is_https and home.port in (None, 80) and there.port in (None, 443)):
            return
        port = "" if there.port is None else f":{there.port}"
        shown = shorten(one_line(f"{there.scheme}://{there.host}{port}"), _SHOWN_CHARS)
        raise RequestRejected(
            f"{self.who} redirects to {shown}, another host, which is sent neither prompts nor the key; set "
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

    async def __aiter__(self) -> AsyncIterator[bytes]:
        n_bytes = 0
        async with aclosing(self._encoded.aiter_bytes()) as pieces:
            async for piece in pieces:
                n_bytes += len(piece)
                if n_bytes > self._limit:
                    raise UnusableReply(f"{self._who} answered more than {self._limit:,} bytes, which is no reply")
                yield piece

    async def aclose(self) -> None:
        await self._encoded.aclose()


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost" or host.lower().endswith(".localhost")


def through_proxy(url: str) -> str:
    """Return which proxy the environment sets for a URL, as the end of a sentence; "" for none."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    proxies = getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    if not proxy or is_loopback(host) or proxy_bypass(host):
        return ""
    return f" through the proxy {public_url(proxy)}"


def connection_problem(error: BaseException, url: str) -> str | None:
    """Return why no connection came about; None where there was one, or the error is another.

    Args:
        url: the address, without credentials.
    """
    causes = list(_causes(error))
    host = urlsplit(url).hostname or url
    proxy = through_proxy(url)
    if proxy and any(isinstance(cause, httpx2.ProxyError | aiohttp.ClientProxyConnectionError) for cause in causes):
        return f"no connection{proxy}: {causes[-1]}; mend HTTP_PROXY and HTTPS_PROXY, or name {host} in NO_PROXY"
    for cause in causes:
        if isinstance(cause, ssl.SSLCertVerificationError | aiohttp.ClientConnectorCertificateError):
            return (
                f"the TLS certificate of {url} cannot be verified ({getattr(cause, 'verify_message', '') or cause}): "
                "if an authority of your own signed it, set SSL_CERT_FILE to the file of its certificate"
            )
        if isinstance(cause, ssl.SSLError):
            return f"no TLS at {url} ({cause.reason or cause}): is it http:// in place of https://?"
        if isinstance(cause, socket.gaierror | aiohttp.ClientConnectorDNSError):
            return f"the name {host} cannot be resolved{proxy}: check base_url and the network"
        if isinstance(cause, ConnectionRefusedError) or getattr(cause, "errno", None) == errno.ECONNREFUSED:
            return f"connection refused at {url}{proxy}: is the server running?"
    for cause in causes:
        if isinstance(cause, aiohttp.ConnectionTimeoutError):
            return f"no connection to {url}{proxy} in time: is the address right, and does a firewall let it through?"
        if isinstance(cause, aiohttp.ClientConnectorError | httpx2.ConnectError):
            return f"no connection to {url}{proxy}: {cause}"
    return None


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and all that caused it, those that were tried side by side too."""
    waiting, seen = [error], set[int]()
    while waiting:
        cause = waiting.pop(0)
        if cause is None or id(cause) in seen:
            continue
        seen.add(id(cause))
        yield cause
        waiting += [getattr(cause, "os_error", None), getattr(cause, "certificate_error", None), cause.__cause__]
        waiting += getattr(cause, "exceptions", ())


_CODES = frozenset({"context_length_exceeded", "context_window_exceeded", "exceed_context_size_error"})
_SAID = re.compile(
    r"maximum (?:context|model|prompt|input) length|exceeds? (?:the )?(?:model's )?(?:available |maximum |max )*context"
    r"|exceeds? (?:the )?context (?:window|size|length|limit)|context (?:window|length|size) exceeded"
    r"|(?:prompt|input|request|conversation) (?:is )?too long|input (?:\(\d+ tokens\) )?is too (?:long|large)"
    r"|exceed context limit|longer than the (?:maximum |model)|too large for model with|must have less than \d+ tokens"
    r"|`max_new_tokens` must be <=|input token count|context length of only|context length is only|context overflow"
    r"|exceeded max context|number of tokens in the prompt",
    re.IGNORECASE,
)
_WINDOW = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"context (?:length|size|window|limit)(?: is| of)?(?: only)? \(?(\d+)",
        r"(?:model|prompt|input) length (?:is|of) (\d+)",
        r"> (\d+) maximum",
        r"\d \+ \d+ > (\d+)",
        r"with (\d+) maximum context",
        r"tokens allowed \((\d+)",
        r"must be <= (\d+)",
        r"less than (\d+) tokens",
        r"cannot exceed (\d+)",
        r"batch size: (\d+)",
    )
)
_PROMPT = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"(\d+) (?:tokens )?(?:in|of|from) (?:the )?(?:messages|text input|input|prompt)",
        r"(?:has|passed|contains) (\d+) (?:input )?tokens",
        r"resulted in (\d+) tokens",
        r"(?:request|input|prompt) \((?:length )?(\d+)(?: tokens)?\)",
        r"too long: (\d+) tokens",
        r": (\d+) \+ \d+ >",
        r"token count \((\d+)",
        r"given: (\d+)",
        r"keep the first (\d+) tokens",
    )
)


def refused_window(
    status: int, detail: Mapping[str, Any], codes: Sequence[str], said: str
) -> tuple[int | None, int | None] | None:
    """Return the tokens of the window and of the prompt, as far as named, where a prompt is larger than the window.

    None for any other refusal.

    Args:
        status: HTTP status. Some servers answer 413 or 500.
        detail: the error object. llama.cpp gives n_ctx and n_prompt_tokens.
        codes: its code and type.
        said: its message.
    """
    if status == 429 or not (_CODES.intersection(codes) or _SAID.search(said)):
        return None
    words = re.sub(r"(?<=\d),(?=\d{3})", "", said)
    return (
        token_count(detail.get("n_ctx")) or _first(_WINDOW, words),
        token_count(detail.get("n_prompt_tokens")) or _first(_PROMPT, words),
    )


def _first(patterns: Sequence[re.Pattern[str]], said: str) -> int | None:
    found = (pattern.search(said) for pattern in patterns)
    return next((token_count(int(match[1])) for match in found if match), None)
