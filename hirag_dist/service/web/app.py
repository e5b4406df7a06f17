"""The page as an aiohttp application: its static files, and questions that are forwarded to the service."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import math
import uuid
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from importlib import resources

from aiohttp import web

from hirag_dist.client import AsyncHiragClient, CallOptions, DeadlinePassed, Overloaded, Unauthenticated
from hirag_dist.core.text.normalize import count_noun
from hirag_dist.errors import HiragError, InvalidQuery
from hirag_dist.service.http_api.api import HttpApi
from hirag_dist.service.http_api.status_error import http_status
from hirag_dist.service.web.client_pool import ClientPool
from hirag_dist.service.web.json_lines import (
    PageIndex,
    PageQuestion,
    answer_line,
    error_body,
    error_line,
    info_body,
    level_line,
    read_body,
    retry_after_s,
    text_line,
)
from hirag_dist.service.web.options import PageOptions
from hirag_dist.service.web.request_checks import Handler, RequestChecks
from hirag_dist.types import Answer, Retrieval
from hirag_dist.wire.error_status import status_of

_TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}
logger = logging.getLogger(__name__)
_TOKEN_MAX = 4096
_PROBES = ("/healthz", "/readyz")
_READY_S = 1.0  # for the gRPC service to say that it is ready


@dataclass(frozen=True, slots=True)
class StaticFile:
    """A file of the page."""

    body: bytes
    content_type: str
    tag: str

    def response(self, request: web.Request) -> web.Response:
        """Return the file, or 304 if the browser has it."""
        quoted = f'"{self.tag}"'
        headers = {"ETag": quoted, "Cache-Control": "no-cache"}  # cached, with a check at each use
        if quoted in request.headers.get("If-None-Match", ""):
            return web.Response(status=304, headers=headers)
        response = web.Response(body=self.body, content_type=self.content_type, charset="utf-8", headers=headers)
        response.enable_compression()
        return response


def read_files() -> dict[str, StaticFile]:
    """Return the files by name; index.html is the page."""
    files: dict[str, StaticFile] = {}
    for entry in resources.files("hirag_dist.service.web").joinpath("static").iterdir():
        kind = _TYPES.get(entry.name[entry.name.rfind(".") :])
        if kind is not None:
            body = entry.read_bytes()
            files[entry.name] = StaticFile(body, kind, hashlib.sha256(body).hexdigest()[:16])
    return files


class PageApp:
    """The request handlers, and the number of questions in progress.

    The token of a browser is forwarded with each question and stored nowhere; access and quotas are decided by the
    service.

    Args:
        options: limits.
        guard: checks every request first.
        clients: of the service.
        api: has the routes of the APIs.
    """

    def __init__(
        self,
        options: PageOptions,
        guard: RequestChecks,
        clients: ClientPool[AsyncHiragClient],
        api: HttpApi,
    ) -> None:
        self._options = options
        self._guard = guard
        self._clients = clients
        self._api = api
        self._files = read_files()
        self._in_progress = 0

    def app(self) -> web.Application:
        """Return the application."""
        app = web.Application(middlewares=[self._checked, _errors], client_max_size=self._options.max_body_bytes)
        app.on_response_prepare.append(self._guard.sign)
        app.router.add_get("/healthz", self._alive)
        app.router.add_get("/readyz", self._ready)
        app.on_response_prepare.append(self._api.sign)
        self._api.add_to(app.router)
        if self._options.page:
            app.router.add_get("/", self._file)
            app.router.add_get("/static/{name}", self._file)
            app.router.add_post("/api/describe", self._describe)
            app.router.add_post("/api/ask", self._ask)
        return app

    @web.middleware
    async def _checked(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Check a request as one of the APIs, or as one of the page. Probes name an address, and see no content."""
        if request.path in _PROBES:
            return await handler(request)
        if self._api.serves(request.path):
            return await self._api.reply(request, handler)
        return await self._guard.check(request, handler)

    async def _alive(self, request: web.Request) -> web.StreamResponse:
        return web.Response(text="alive")

    async def _ready(self, request: web.Request) -> web.StreamResponse:
        """Return whether the service has a snapshot loaded, as `grpc.health.v1` tells."""
        try:
            with self._clients.lease() as client:
                await client.wait_ready(_READY_S)
        except HiragError as error:
            return web.Response(status=503, text=str(error))
        return web.Response(text="ready")

    async def _file(self, request: web.Request) -> web.StreamResponse:
        file: StaticFile | None = self._files.get(request.match_info.get("name", "index.html"))
        if file is None:
            raise web.HTTPNotFound(text="there is no such file")
        return file.response(request)

    async def _describe(self, request: web.Request) -> web.StreamResponse:
        wanted = read_body(PageIndex, await self._body(request))
        with self._admitted(), self._clients.lease() as client:
            call = self._call(request, self._options.timeout_s, wanted.index)
            info = await client.describe(**call)
        body = info_body(info)
        return web.Response(body=body, content_type="application/json", headers=_ids(call))

    async def _ask(self, request: web.Request) -> web.StreamResponse:
        question = read_body(PageQuestion, await self._body(request))
        with self._admitted(), self._clients.lease() as client:
            limit = self._options.timeout_s
            timeout_s = limit if question.timeout_s is None else min(question.timeout_s, limit)
            call = self._call(request, timeout_s, question.index)
            async with aclosing(_lines(client, question, call)) as lines:
                first = await anext(lines)  # an error before the first line has an HTTP status of its own
                response = web.StreamResponse(headers=_ids(call) | {"X-Accel-Buffering": "no"})
                response.content_type = "application/x-ndjson"
                response.charset = "utf-8"
                await response.prepare(request)
                try:
                    await self._send(response, first, lines)
                except TimeoutError:
                    logger.warning("closed the connection of %s, which does not read", request.remote)
                    if request.transport is not None:
                        request.transport.abort()
        return response

    async def _send(self, response: web.StreamResponse, first: bytes, lines: AsyncGenerator[bytes, None]) -> None:
        """Send lines as they come, and an error as the last.

        Raises:
            TimeoutError: the browser does not read.
        """

        async def write(line: bytes) -> None:
            async with asyncio.timeout(self._options.stall_s):
                await response.write(line)

        await write(first)
        try:
            async for line in lines:
                await write(line)
        except HiragError as error:
            await write(error_line(error))
        async with asyncio.timeout(self._options.stall_s):
            await response.write_eof()

    async def _body(self, request: web.Request) -> bytes:
        """Return the request's body. It is read before the request counts: a slow upload blocks no other request."""
        try:
            async with asyncio.timeout(self._options.body_s):
                return await request.read()
        except TimeoutError as error:
            raise DeadlinePassed(f"the request did not arrive within {self._options.body_s:g} s") from error

    def _call(self, request: web.Request, timeout_s: float, index: str) -> CallOptions:
        """Return the options of the call, with the token of the Authorization header: a URL would be logged."""
        call = CallOptions(timeout_s=timeout_s, request_id=f"page-{uuid.uuid4().hex}", index=index)
        header = request.headers.get("Authorization")
        if header is None:
            if self._options.callers:
                raise Unauthenticated("this service needs a bearer token; give one under Access")
            return call
        scheme, _, token = header.partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token:
            raise InvalidQuery("the Authorization header must be: Bearer, a space, and the token")
        if len(token) > _TOKEN_MAX or not token.isascii() or not token.isprintable():
            raise InvalidQuery(f"a token is at most {_TOKEN_MAX} ASCII characters")
        call["token"] = token
        return call

    @contextmanager
    def _admitted(self) -> Iterator[None]:
        if self._in_progress >= self._options.max_streams:
            raise Overloaded(
                f"the page has {count_noun(self._in_progress, 'question')} in progress, as many as it accepts; "
                "ask again soon"
            )
        self._in_progress += 1
        try:
            yield
        finally:
            self._in_progress -= 1


async def _lines(client: AsyncHiragClient, question: PageQuestion, call: CallOptions) -> AsyncGenerator[bytes, None]:
    """Yield the lines of a reply: the retrieval, then the answer's text in pieces, then the answer."""
    query = question.query()
    if not question.answer:
        async with aclosing(client.retrieve_stream(query, omit_context=True, **call)) as levels:
            async for level, retrieval in levels:
                yield level_line(level, retrieval)
        return
    sent: Retrieval | None = None
    async with aclosing(client.answer_stream(query, omit_context=True, **call)) as parts:
        async for part in parts:
            match part:
                case Retrieval():
                    sent = part
                    yield level_line("done", part)
                case str():
                    yield text_line(part)
                case Answer():
                    if part.retrieval is not sent:  # the final retrieval differs from the first one
                        yield level_line("done", part.retrieval)
                    yield answer_line(part)


def _ids(call: CallOptions) -> dict[str, str]:
    return {"X-Request-Id": call["request_id"] or ""}


@web.middleware
async def _errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Convert errors of the service and the handlers to a status and a JSON object that the page explains."""
    try:
        return await handler(request)
    except HiragError as error:
        return _error_response(error, http_status(status_of(error)))
    except web.HTTPRequestEntityTooLarge:
        return _error_response(InvalidQuery("the request is too long; shorten the question"), 413)
    except (web.HTTPException, ConnectionError):  # a reply of aiohttp, or a browser that disconnected
        raise
    except Exception:
        logger.exception("request %.200r failed", request.path)
        return _error_response(HiragError("internal error; the log of the page has details"), 500)


def _error_response(error: HiragError, status: int) -> web.Response:
    after = retry_after_s(error)
    headers = {} if after is None else {"Retry-After": str(math.ceil(after))}
    return web.json_response(error_body(error), status=status, headers=headers)
