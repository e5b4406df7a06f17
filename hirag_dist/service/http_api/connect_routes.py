"""Every RPC of the service by POST /hirag.query.v1.QueryService/METHOD, in the Connect protocol or as plain JSON."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing

import grpc
from aiohttp import web

from hirag_dist.service.http_api import connect_protocol as protocol
from hirag_dist.service.http_api.connect_protocol import Method
from hirag_dist.service.http_api.gateway import Gateway, GatewayCall
from hirag_dist.service.http_api.requests import REQUEST_ID_HEADER, ApiRequests, BodyTooLarge
from hirag_dist.service.http_api.status_error import StatusError

logger = logging.getLogger(__name__)
_STREAM_TYPES = {"application/json": protocol.JSON} | dict(protocol.STREAM_TYPES)
_INTERNAL = "internal error; the log of the service has details"


class ConnectRoutes:
    """Handlers of the RPCs.

    Args:
        requests: reads the requests and makes the calls.
    """

    def __init__(self, requests: ApiRequests) -> None:
        self._requests = requests

    def add_to(self, router: web.UrlDispatcher) -> None:
        """Add the route."""
        router.add_route("*", protocol.PREFIX + "{method}", self._handle)

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        try:
            return await self._reply(request)
        except StatusError as error:
            return error_response(error)
        except BodyTooLarge as error:
            return error_response(StatusError(grpc.StatusCode.RESOURCE_EXHAUSTED, str(error)), 413)
        except ConnectionError:  # the client disconnected
            raise
        except Exception:
            logger.exception("request %.200r failed", request.path)
            return error_response(StatusError(grpc.StatusCode.INTERNAL, _INTERNAL))

    async def _reply(self, request: web.Request) -> web.StreamResponse:
        method = protocol.METHODS.get(request.match_info["method"])
        if method is None:
            message = f"there is no RPC {request.match_info['method'][:80]!r}"
            return error_response(StatusError(grpc.StatusCode.UNIMPLEMENTED, message), 404)
        if request.method != "POST":
            error = StatusError(grpc.StatusCode.UNIMPLEMENTED, "RPCs are requests with POST")
            return error_response(error, 405, {"Allow": "POST"})
        allowed = _STREAM_TYPES if method.streams else protocol.UNARY_TYPES
        codec = allowed.get(request.content_type)
        if codec is None:
            types = ", ".join(allowed)
            error = StatusError(grpc.StatusCode.INVALID_ARGUMENT, f"the content type must be one of: {types}")
            return error_response(error, 415, {"Accept-Post": types})
        if not method.streams:
            return await self._unary(request, method, codec)
        if request.content_type in protocol.STREAM_TYPES:
            return await self._enveloped(request, method, codec)
        return await self._lines(request, method)

    async def _unary(self, request: web.Request, method: Method, codec: str) -> web.StreamResponse:
        message = protocol.request_bytes(method, codec, await self._requests.body(request))
        call = self._call(request)
        with self._requests.admitted() as gateway:
            response = await gateway.unary(method.name, message, call)
        body = protocol.response_bytes(method, codec, response)
        return web.Response(body=body, content_type=request.content_type, headers=_ids(call))

    async def _lines(self, request: web.Request, method: Method) -> web.StreamResponse:
        """Reply with a message per line."""
        message = protocol.request_bytes(method, protocol.JSON, await self._requests.body(request))
        call = self._call(request)
        with self._requests.admitted() as gateway:
            responses = _responses(gateway, method, protocol.JSON, message, call)
            return await self._send(request, call, protocol.NDJSON_TYPE, _as_lines(responses))

    async def _enveloped(self, request: web.Request, method: Method, codec: str) -> web.StreamResponse:
        """Reply with messages in envelopes, of which the last carries the error, if there is one."""
        call = self._requests.call(request)
        try:
            encoding = request.headers.get(protocol.ENCODING_HEADER, "identity")
            limit = self._requests.max_body_bytes
            body = protocol.open_envelope(await self._requests.body(request), encoding, limit)
            message = protocol.request_bytes(method, codec, body)
            call = self._call(request)
            with self._requests.admitted() as gateway:
                responses = _responses(gateway, method, codec, message, call)
                return await self._send(request, call, request.content_type, _as_envelopes(responses))
        except StatusError as error:
            failed = error
        except BodyTooLarge as error:
            failed = StatusError(grpc.StatusCode.RESOURCE_EXHAUSTED, str(error))
        return web.Response(body=protocol.end_of_stream(failed), content_type=request.content_type, headers=_ids(call))

    async def _send(
        self, request: web.Request, call: GatewayCall, content_type: str, frames: AsyncGenerator[bytes, None]
    ) -> web.StreamResponse:
        async with aclosing(frames):
            first = await anext(frames, b"")  # an error before it may have an HTTP status of its own
            response = web.StreamResponse(headers=_ids(call) | {"X-Accel-Buffering": "no"})
            response.content_type = content_type
            async with self._requests.reply(request, response):
                await self._requests.write(response, first)
                async for frame in frames:
                    await self._requests.write(response, frame)
        return response

    def _call(self, request: web.Request) -> GatewayCall:
        return self._requests.call(request, protocol.timeout_s(request.headers.get(protocol.TIMEOUT_HEADER)))


async def _responses(
    gateway: Gateway, method: Method, codec: str, message: bytes, call: GatewayCall
) -> AsyncGenerator[bytes, None]:
    async with aclosing(gateway.stream(method.name, message, call)) as responses:
        async for response in responses:
            yield protocol.response_bytes(method, codec, response)


async def _as_lines(responses: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """Yield lines. An error after the first one becomes the last; an earlier one is raised."""
    begun = False
    async with aclosing(responses):
        try:
            async for response in responses:
                begun = True
                yield response + b"\n"
        except StatusError as error:
            if not begun:
                raise
            yield protocol.dump({"error": protocol.error_object(error)}) + b"\n"


async def _as_envelopes(responses: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    failed: StatusError | None = None
    async with aclosing(responses):
        try:
            async for response in responses:
                yield protocol.envelope(response)
        except StatusError as error:
            failed = error
    yield protocol.end_of_stream(failed)


def _ids(call: GatewayCall) -> dict[str, str]:
    return {REQUEST_ID_HEADER: call.request_id}


def error_response(
    error: StatusError, status: int | None = None, headers: Mapping[str, str] | None = None
) -> web.Response:
    """Return an error as the reply, with the HTTP status of its code if no other is given."""
    return web.Response(
        body=protocol.dump(protocol.error_object(error)),
        status=protocol.http_status(error.code) if status is None else status,
        content_type="application/json",
        headers=protocol.error_headers(error) | dict(headers or {}),
    )
