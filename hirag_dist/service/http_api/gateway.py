"""Calls of the gRPC service on behalf of HTTP requests, and the status of those that fail. Messages are bytes."""

from __future__ import annotations

import asyncio
import itertools
import json
import math
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2

from hirag_dist.client.common import SERVICE_NAME, ClientOptions, make_channel
from hirag_dist.errors import HiragError
from hirag_dist.service.request_gate import SERVICE
from hirag_dist.wire._pb import query_pb2 as pb
from hirag_dist.wire.error_status import (
    DETAILS_KEY,
    OR_DEFAULT_KEY,
    REQUEST_ID_KEY,
    SERVING,
    HealthCheckRequest,
    HealthCheckResponse,
    NotReady,
    message_of,
    status_of,
    trailers_of,
)

_UNREACHABLE = "the query service cannot be reached; ask again soon"
_STOPPED = "the query service stopped during the request; ask again"
_LATE = "there was no result before the deadline; allow more time"
_JSON_NAMES = {
    field.name: field.json_name
    for message in (pb.Query.DESCRIPTOR, *(method.input_type for method in SERVICE.methods))
    for field in message.fields
}
_HTTP_STATUS = {
    grpc.StatusCode.CANCELLED: 499,
    grpc.StatusCode.INVALID_ARGUMENT: 400,
    grpc.StatusCode.DEADLINE_EXCEEDED: 504,
    grpc.StatusCode.NOT_FOUND: 404,
    grpc.StatusCode.ALREADY_EXISTS: 409,
    grpc.StatusCode.PERMISSION_DENIED: 403,
    grpc.StatusCode.RESOURCE_EXHAUSTED: 429,
    grpc.StatusCode.FAILED_PRECONDITION: 400,
    grpc.StatusCode.ABORTED: 409,
    grpc.StatusCode.OUT_OF_RANGE: 400,
    grpc.StatusCode.UNIMPLEMENTED: 501,
    grpc.StatusCode.UNAVAILABLE: 503,
    grpc.StatusCode.UNAUTHENTICATED: 401,
}


class StatusError(Exception):
    """A call failed with a status.

    Attributes:
        details: google.rpc messages.
        reason: Reason of the ErrorInfo among them, empty without one.
        retry_after_s: seconds after which a retry may succeed, None if it cannot.
    """

    def __init__(self, code: grpc.StatusCode, message: str, details: Iterable[AnyMessage] = ()) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.details: Sequence[AnyMessage] = tuple(details)
        info, retry = error_details_pb2.ErrorInfo(), error_details_pb2.RetryInfo()
        self.reason: str = next((info.reason for each in self.details if each.Unpack(info)), "")
        self.retry_after_s: float | None = next(
            (retry.retry_delay.ToNanoseconds() / 1e9 for each in self.details if each.Unpack(retry)), None
        )

    @property
    def field(self) -> str:
        """The field of the request that is wrong, such as "query.top_n"; empty if none is named."""
        fault = error_details_pb2.BadRequest()
        for each in self.details:
            if each.Unpack(fault) and fault.field_violations:
                named: str = fault.field_violations[0].field
                return named
        return ""

    @property
    def json_field(self) -> str:
        """The name of that field in JSON, such as "topN"; empty if none is named, or the query as a whole."""
        return _JSON_NAMES.get(self.field.removeprefix("query").lstrip("."), "")

    def message_with(self, name: str) -> str:
        """Return the message with another name of the field that it begins with; as it is without a name."""
        field = self.field.rpartition(".")[2]
        is_named = bool(name and field) and self.message.startswith(field)
        return name + self.message.removeprefix(field) if is_named else self.message


def error_of_call(error: grpc.RpcError) -> StatusError:
    """Return the status of a failed call of the gRPC service. Addresses of the service are left out."""
    code: grpc.StatusCode = error.code()
    details = _details(error.trailing_metadata() or ())
    if details:
        return StatusError(code, error.details() or code.name, details)
    match code:
        case grpc.StatusCode.UNAVAILABLE:
            return error_of(NotReady(_UNREACHABLE))
        case grpc.StatusCode.CANCELLED:
            return StatusError(grpc.StatusCode.UNAVAILABLE, _STOPPED)
        case grpc.StatusCode.DEADLINE_EXCEEDED:
            return StatusError(code, _LATE)
    return StatusError(code, error.details() or code.name)


def error_of(error: HiragError, request_id: str = "") -> StatusError:
    """Return an error of the HTTP server itself with the status and the details that the gRPC service would send."""
    return StatusError(status_of(error), message_of(error), _details(trailers_of(error, request_id, None)))


def _details(trailers: Iterable[Any]) -> list[AnyMessage]:
    raw = next((value for key, value in trailers if key == DETAILS_KEY), None)
    try:
        return [] if not isinstance(raw, bytes) else list(status_pb2.Status.FromString(raw).details)
    except DecodeError:
        return []


def http_status(code: grpc.StatusCode) -> int:
    """Return the HTTP status of a gRPC status.

    >>> http_status(grpc.StatusCode.UNAVAILABLE)
    503
    """
    return _HTTP_STATUS.get(code, 500)


def error_headers(error: StatusError) -> dict[str, str]:
    """Return the headers of an error: when to ask again, and how to authenticate."""
    headers = {}
    if error.retry_after_s is not None:
        headers["Retry-After"] = str(max(math.ceil(error.retry_after_s), 1))
    if error.code is grpc.StatusCode.UNAUTHENTICATED:
        headers["WWW-Authenticate"] = "Bearer"
    return headers


_STOPPING = "the query service is stopping; ask again soon"
# A request that the service sheds is not retried here: its client is sent the time of the next attempt.
_SERVICE_CONFIG = json.dumps(
    {
        "methodConfig": [
            {
                "name": [{"service": SERVICE_NAME}],
                "retryPolicy": {
                    "maxAttempts": 3,
                    "initialBackoff": "0.1s",
                    "maxBackoff": "1s",
                    "backoffMultiplier": 2,
                    "retryableStatusCodes": ["UNAVAILABLE", "CANCELLED"],
                },
            }
        ],
    }
)


@dataclass(frozen=True, slots=True)
class GatewayCall:
    """Deadline and metadata of a call.

    Attributes:
        timeout_s: seconds until the deadline.
        authorization: Authorization header of the HTTP request, None without one.
        trace: headers of the W3C trace context.
        or_default: whether the default index is asked where the service has none of the request's name.
    """

    timeout_s: float
    request_id: str
    authorization: str | None = None
    trace: tuple[tuple[str, str], ...] = ()
    or_default: bool = False

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """Metadata of the gRPC call."""
        token = () if self.authorization is None else (("authorization", self.authorization),)
        other = ((OR_DEFAULT_KEY, "true"),) if self.or_default else ()
        return ((REQUEST_ID_KEY, self.request_id), *token, *self.trace, *other)


class Gateway:
    """Client of the gRPC service that passes messages on as bytes. `connect` comes before the first call.

    It has several connections: the service bounds the streams of each, and where several processes share the port, each
    connection leads to one of them. The one with the fewest calls in progress is used.

    Args:
        connections: number of connections, made when they are first used.
    """

    def __init__(self, connections: int = 4) -> None:
        self._connections = connections
        self._channels: list[_Channel] = []
        self._turn = itertools.count()
        self._replaced: set[_Channel] = set()
        self._closing: set[asyncio.Task[None]] = set()

    def connect(self, options: ClientOptions) -> None:
        """Use other connections from now on. Each of those before is closed when its last call has ended.

        An open one would reconnect for ever, with a certificate that the service no longer uses.

        Raises:
            ConfigError: a file cannot be read.
        """
        credentials = options.credentials()
        made = [_Channel(make_channel(options, credentials, _SERVICE_CONFIG)) for _ in range(self._connections)]
        before, self._channels = self._channels, made
        self._replaced.update(before)
        for each in before:
            self._close_if_done(each)

    async def close(self) -> None:
        """Close the connections. Calls in progress end with UNAVAILABLE."""
        await asyncio.gather(*(each.channel.close() for each in (*self._channels, *self._replaced)), *self._closing)

    async def is_serving(self, timeout_s: float) -> bool:
        """Return whether the health of the service is SERVING."""
        with self._lent() as lent:
            check = lent.channel.unary_unary(
                "/grpc.health.v1.Health/Check",
                request_serializer=HealthCheckRequest.SerializeToString,
                response_deserializer=HealthCheckResponse.FromString,
            )
            try:
                reply = await check(HealthCheckRequest(service=SERVICE_NAME), timeout=timeout_s)
            except grpc.RpcError:
                return False
        return bool(reply.status == SERVING)

    async def unary(self, method: str, request: bytes, call: GatewayCall) -> bytes:
        """Return the response of an RPC. Raises StatusError where the call failed."""
        with self._lent() as lent:
            send = lent.method(method, streams=False)
            response: bytes = await send(request, timeout=call.timeout_s, metadata=call.metadata)
        return response

    async def stream(self, method: str, request: bytes, call: GatewayCall) -> AsyncGenerator[bytes, None]:
        """Yield the responses of an RPC that streams them. Closing the iterator cancels the call.

        Raises:
            StatusError: the call failed.
        """
        with self._lent() as lent:
            send = lent.method(method, streams=True)
            begun = send(request, timeout=call.timeout_s, metadata=call.metadata)
            try:
                async for response in begun:
                    yield response
            finally:
                begun.cancel()

    @contextmanager
    def _lent(self) -> Iterator[_Channel]:
        """Lend a connection to one call, whose errors are raised as StatusError."""
        first = next(self._turn) % len(self._channels)
        channel = min(self._channels[first:] + self._channels[:first], key=lambda each: each.calls)
        channel.calls += 1
        try:
            yield channel
        except grpc.RpcError as error:
            raise error_of_call(error) from error
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            # this task was not cancelled: gRPC raised the error, because its connection was closed
            raise StatusError(grpc.StatusCode.UNAVAILABLE, _STOPPING) from error
        finally:
            channel.calls -= 1
            self._close_if_done(channel)

    def _close_if_done(self, channel: _Channel) -> None:
        if channel in self._replaced and not channel.calls:
            self._replaced.remove(channel)
            task = asyncio.create_task(channel.channel.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)


class _Channel:
    """A connection, its methods and the number of its calls in progress."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.channel = channel
        self.calls = 0
        self._methods: dict[str, Any] = {}

    def method(self, name: str, *, streams: bool) -> Any:
        if name not in self._methods:
            make = self.channel.unary_stream if streams else self.channel.unary_unary
            self._methods[name] = make(f"/{SERVICE_NAME}/{name}")
        return self._methods[name]
