"""Every RPC of the service by POST /hirag.query.v1.QueryService/METHOD: JSON, and server-sent events for streams.

`ApiRequests` is what it shares with the OpenAI-compatible API: bodies, deadlines, credentials, limits, slow clients.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import re
import uuid
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing, contextmanager
from typing import Any

import grpc
from aiohttp import web
from google.protobuf import json_format
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from hirag_dist.core.text.normalize import count_noun
from hirag_dist.errors import InvalidQuery
from hirag_dist.service.http_api.gateway import Gateway, GatewayCall, StatusError, error_headers, error_of, http_status
from hirag_dist.service.options import PageOptions
from hirag_dist.service.request_gate import SERVICE, SERVICE_NAME
from hirag_dist.wire.error_status import DeadlinePassed, Overloaded
from hirag_dist.wire.records import json_fault

logger = logging.getLogger(__name__)
REQUEST_ID_HEADER = "X-Request-Id"
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_TRACE_HEADERS = ("traceparent", "tracestate")
_MAX_HEADER = 4096
_MAX_TIMEOUT_S = 600.0  # maximum time that a request may ask for
_STALL_S = 15.0  # for which a client may read nothing of a reply
_ENCODINGS = ("identity", "gzip", "deflate")  # aiohttp decompresses, in pieces of bounded size


class BodyTooLarge(Exception):
    """The body of a request is larger than accepted."""


class ApiRequests:
    """Reads requests and makes the calls of the gRPC service, with the credentials of each request."""

    def __init__(self, options: PageOptions, gateway: Gateway) -> None:
        self._options = options
        self._gateway = gateway
        self._in_progress = 0

    async def body(self, request: web.Request) -> bytes:
        """Return the body of a request. It is read before the request counts: a slow upload blocks no other request.

        Raises:
            BodyTooLarge: it is longer than `max_api_body_bytes`, after decompression too.
            StatusError: it did not arrive in time, cannot be decompressed, or is compressed in a form that is not
                supported.
        """
        limit = self._options.max_api_body_bytes
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
        except web.RequestPayloadError as error:
            why = f"its bytes are not what Content-Encoding ({encoding}) and Transfer-Encoding say"
            raise error_of(InvalidQuery(f"the body cannot be read: {why}")) from error
        return bytes(parts)

    def call(self, request: web.Request) -> GatewayCall:
        """Return deadline and metadata of the call for a request.

        Without an Authorization header an invalid one is sent where the service has callers, so that the service
        refuses the call instead of taking this server's own certificate for that of the caller.

        Raises:
            StatusError: the header of the deadline is wrong, or the deadline has passed.
        """
        allowed = _timeout_s(request.headers.get(_TIMEOUT_HEADER))
        limit = self._options.timeout_s if allowed is None else min(allowed, _MAX_TIMEOUT_S)
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
            yield self._gateway
        finally:
            self._in_progress -= 1

    async def stream(
        self, request: web.Request, call: GatewayCall, events: AsyncGenerator[bytes, None]
    ) -> web.StreamResponse:
        """Send events as they come; close the connection of a client that does not read.

        An error before the first event is raised before the reply begins, and so has an HTTP status of its own.
        """
        async with aclosing(events):
            event: bytes | None = await anext(events, b"")
            response = web.StreamResponse(headers=request_ids(call) | {"X-Accel-Buffering": "no"})
            response.content_type, response.charset = "text/event-stream", "utf-8"
            await response.prepare(request)
            try:
                while event is not None:
                    async with asyncio.timeout(_STALL_S):
                        await response.write(event)
                    event = await anext(events, None)
                async with asyncio.timeout(_STALL_S):
                    await response.write_eof()
            except TimeoutError:
                logger.warning("closed the connection of %s, which does not read", request.remote)
                if request.transport is not None:
                    request.transport.abort()
            except ConnectionResetError:
                logger.debug("%s closed its connection before the end of the reply", request.remote)
        return response


def _is_plain(value: str) -> bool:
    return len(value) <= _MAX_HEADER and value.isascii() and value.isprintable()


PREFIX = f"/{SERVICE_NAME}/"
_TIMEOUT_HEADER = "Connect-Timeout-Ms"
_MAX_TIMEOUT_DIGITS = 10
_JSON = "application/json"
INTERNAL = "internal error; the log of the service has details"


class RpcRoutes:
    """Handlers of the RPCs."""

    def __init__(self, requests: ApiRequests) -> None:
        self._requests = requests

    def add_to(self, router: web.UrlDispatcher) -> None:
        """Add the route."""
        router.add_route("*", PREFIX + "{method}", self._handle)

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
            return error_response(StatusError(grpc.StatusCode.INTERNAL, INTERNAL))

    async def _reply(self, request: web.Request) -> web.StreamResponse:
        method = SERVICE.methods_by_name.get(request.match_info["method"])
        if method is None:
            why = f"there is no RPC {request.match_info['method'][:80]!r}"
            return error_response(StatusError(grpc.StatusCode.UNIMPLEMENTED, why), 404)
        if request.method != "POST":
            error = StatusError(grpc.StatusCode.UNIMPLEMENTED, "RPCs are requests with POST")
            return error_response(error, 405, {"Allow": "POST"})
        if request.content_type != _JSON:
            error = StatusError(grpc.StatusCode.INVALID_ARGUMENT, f"the content type must be {_JSON}")
            return error_response(error, 415, {"Accept-Post": _JSON})
        message = _request_bytes(method, await self._requests.body(request))
        call = self._requests.call(request)
        with self._requests.admitted() as gateway:
            if method.server_streaming:
                events = _events(method, gateway.stream(method.name, message, call))
                return await self._requests.stream(request, call, events)
            response = await gateway.unary(method.name, message, call)
        body = _response_json(method, response)
        return web.Response(body=body, content_type=_JSON, headers=request_ids(call))


async def _events(method: MethodDescriptor, responses: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """Yield an event for each response. An error after the first one becomes the last; an earlier one is raised."""
    begun = False
    async with aclosing(responses):
        try:
            async for response in responses:
                event = b"data: " + _response_json(method, response) + b"\n\n"
                begun = True
                yield event
        except StatusError as error:
            if not begun:
                raise
            yield b"event: error\ndata: " + dump(_error_object(error)) + b"\n\n"


def _timeout_s(header: str | None) -> float | None:
    """Return the seconds in the header of a deadline, None without one.

    Raises:
        StatusError: it is no whole number of at most 10 digits, or 0.

    >>> _timeout_s("1500")
    1.5
    """
    if header is None:
        return None
    if not (header.isascii() and header.isdigit() and len(header) <= _MAX_TIMEOUT_DIGITS):
        raise error_of(InvalidQuery(f"{_TIMEOUT_HEADER} is a whole number of at most {_MAX_TIMEOUT_DIGITS} digits"))
    if not int(header):
        raise error_of(DeadlinePassed("the deadline had passed when the request began"))
    return int(header) / 1000


def dump(value: Any) -> bytes:
    """Return a value as compact JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def error_response(
    error: StatusError, status: int | None = None, headers: Mapping[str, str] | None = None
) -> web.Response:
    """Return an error as the reply, with the HTTP status of its code if no other is given."""
    return web.Response(
        body=dump(_error_object(error)),
        status=http_status(error.code) if status is None else status,
        content_type=_JSON,
        headers=error_headers(error) | dict(headers or {}),
    )


def _error_object(error: StatusError) -> dict[str, Any]:
    """Return an error as JSON: code, message, and each detail in binary form and, under `debug`, as JSON."""
    return {
        "code": "canceled" if error.code is grpc.StatusCode.CANCELLED else error.code.name.lower(),
        "message": error.message_with(error.json_field),
        "details": [_detail_object(each) for each in error.details],
    }


def _detail_object(detail: AnyMessage) -> dict[str, Any]:
    value = base64.b64encode(detail.value).decode().rstrip("=")
    shown = json_format.MessageToDict(detail)
    shown.pop("@type", None)
    return {"type": detail.TypeName(), "value": value, "debug": shown}


def _request_bytes(method: MethodDescriptor, body: bytes) -> bytes:
    """Return the request in the form of gRPC; raise StatusError where the body is none of this method."""
    try:
        text = body.decode("utf-8")
        if not text.lstrip().startswith("{"):
            raise json_format.ParseError("it is not a JSON object")
        return json_format.Parse(text, GetMessageClass(method.input_type)()).SerializeToString()
    except (ValueError, RecursionError, json_format.ParseError) as error:
        why = "it is not UTF-8" if isinstance(error, UnicodeError) else json_fault(error)
        raise error_of(InvalidQuery(f"Invalid {method.input_type.name}: {why}")) from None


def _response_json(method: MethodDescriptor, response: bytes) -> bytes:
    """Return a response as JSON, always with the fields without presence."""
    try:
        message = GetMessageClass(method.output_type).FromString(response)
    except DecodeError:
        raise StatusError(grpc.StatusCode.INTERNAL, "the service sent a response of another version") from None
    return dump(json_format.MessageToDict(message, always_print_fields_with_no_presence=True))


def request_ids(call: GatewayCall) -> dict[str, str]:
    """Return the header with the id of a request."""
    return {REQUEST_ID_HEADER: call.request_id}
