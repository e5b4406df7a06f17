"""The parts that both HTTP APIs share: bodies, deadlines, credentials, the number of requests, slow clients."""

from __future__ import annotations

import asyncio
import logging
import re
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import grpc
from aiohttp import web

from hirag_dist.core.text.normalize import count_noun
from hirag_dist.service.http_api.gateway import Gateway, GatewayCall
from hirag_dist.service.http_api.status_error import StatusError, error_of
from hirag_dist.service.web.client_pool import ClientPool
from hirag_dist.service.web.options import PageOptions
from hirag_dist.wire.error_status import DeadlinePassed, Overloaded

logger = logging.getLogger(__name__)

REQUEST_ID_HEADER = "X-Request-Id"
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_TRACE_HEADERS = ("traceparent", "tracestate")
_MAX_HEADER = 4096
_ENCODINGS = ("identity", "gzip", "deflate")  # aiohttp decompresses, in pieces of bounded size


class BodyTooLarge(Exception):
    """The body of a request is larger than accepted."""


class ApiRequests:
    """Reads requests and makes the calls of the gRPC service, with the credentials of each request.

    Args:
        options: limits.
        gateways: Connections to the service.
    """

    def __init__(self, options: PageOptions, gateways: ClientPool[Gateway]) -> None:
        self._options = options
        self._gateways = gateways
        self._in_progress = 0

    @property
    def max_body_bytes(self) -> int:
        """Size of a request at most, in bytes."""
        return self._options.max_api_body_bytes

    async def body(self, request: web.Request) -> bytes:
        """Return the body of a request. It is read before the request counts: a slow upload blocks no other request.

        Raises:
            BodyTooLarge: it is longer than `max_api_body_bytes`, after decompression too.
            StatusError: it did not arrive in time, or is compressed in a form that is not supported.
        """
        limit = self.max_body_bytes
        encoding = request.headers.get("Content-Encoding", "identity")
        if encoding.lower() not in _ENCODINGS:
            raise StatusError(grpc.StatusCode.UNIMPLEMENTED, f"content encodings are {', '.join(_ENCODINGS)}")
        too_large = BodyTooLarge(f"the request is longer than {limit} bytes")
        if (request.content_length or 0) > limit:
            raise too_large
        parts = bytearray()
        try:
            async with asyncio.timeout(self._options.body_s):
                async for part in request.content.iter_any():
                    parts += part
                    if len(parts) > limit:
                        raise too_large
        except TimeoutError as error:
            raise error_of(DeadlinePassed(f"the request did not arrive within {self._options.body_s:g} s")) from error
        return bytes(parts)

    def call(self, request: web.Request, timeout_s: float | None = None) -> GatewayCall:
        """Return deadline and metadata of the call for a request.

        Without an Authorization header an invalid one is sent where the service has callers, so that the service
        refuses the call instead of taking this server's own certificate for that of the caller.

        Args:
            request: from a client.
            timeout_s: seconds that the client allows, None if it does not say.
        """
        limit = self._options.timeout_s if timeout_s is None else min(timeout_s, self._options.max_timeout_s)
        given = request.headers.get(REQUEST_ID_HEADER, "")
        name = given if _REQUEST_ID.fullmatch(given) else f"http-{uuid.uuid4().hex}"
        authorization = request.headers.get("Authorization")
        if authorization is not None and not _is_plain(authorization):
            authorization = "invalid"
        if authorization is None and self._options.callers:
            authorization = "Bearer"
        trace = tuple(
            (key, request.headers[key])
            for key in _TRACE_HEADERS
            if key in request.headers and _is_plain(request.headers[key])
        )
        return GatewayCall(limit, name, authorization, trace)

    @contextmanager
    def admitted(self) -> Iterator[Gateway]:
        """Count a request while the block lasts, and lend the way to the service.

        Raises:
            StatusError: there are as many requests as this server accepts.
        """
        if self._in_progress >= self._options.max_api_requests:
            raise error_of(
                Overloaded(
                    f"the HTTP server has {count_noun(self._in_progress, 'request')} in progress, as many as it "
                    "accepts; ask again soon"
                )
            )
        self._in_progress += 1
        try:
            with self._gateways.lease() as gateway:
                yield gateway
        finally:
            self._in_progress -= 1

    async def write(self, response: web.StreamResponse, part: bytes) -> None:
        """Send a part of a reply.

        Raises:
            TimeoutError: the client does not read.
        """
        async with asyncio.timeout(self._options.stall_s):
            await response.write(part)

    @asynccontextmanager
    async def reply(self, request: web.Request, response: web.StreamResponse) -> AsyncIterator[None]:
        """Begin a streamed reply, and end it after the block; close the connection of a client that does not read."""
        await response.prepare(request)
        try:
            yield
            async with asyncio.timeout(self._options.stall_s):
                await response.write_eof()
        except TimeoutError:
            logger.warning("closed the connection of %s, which does not read", request.remote)
            if request.transport is not None:
                request.transport.abort()


def _is_plain(value: str) -> bool:
    return len(value) <= _MAX_HEADER and value.isascii() and value.isprintable()
