"""The Connect protocol (connectrpc.com/docs/protocol): messages, envelopes, errors and deadlines. Pure functions."""

from __future__ import annotations

import base64
import json
import math
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf import json_format
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from hirag_dist.errors import InvalidQuery
from hirag_dist.service.grpc_handlers import SERVICE, SERVICE_NAME
from hirag_dist.service.http_api.message_json import message_object
from hirag_dist.service.http_api.status_error import StatusError, error_of
from hirag_dist.wire.error_status import DeadlinePassed

PREFIX = f"/{SERVICE_NAME}/"
JSON, PROTO = "json", "proto"
NDJSON_TYPE = "application/x-ndjson"
UNARY_TYPES: Mapping[str, str] = {"application/json": JSON, "application/proto": PROTO}
STREAM_TYPES: Mapping[str, str] = {"application/connect+json": JSON, "application/connect+proto": PROTO}
TIMEOUT_HEADER = "Connect-Timeout-Ms"
ENCODING_HEADER = "Connect-Content-Encoding"
_MAX_TIMEOUT_DIGITS = 10
_END = 2  # flag of the last envelope of a stream
_COMPRESSED = 1
_GZIP = 31  # zlib's number of the format
_HEAD = struct.Struct(">BI")

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


@dataclass(frozen=True, slots=True)
class Method:
    """An RPC of the service.

    Attributes:
        name: of the RPC.
        request, response: classes of its messages.
        streams: whether it streams its responses.
    """

    name: str
    request: type[Message]
    response: type[Message]
    streams: bool


METHODS: Mapping[str, Method] = {
    each.name: Method(
        each.name, GetMessageClass(each.input_type), GetMessageClass(each.output_type), each.server_streaming
    )
    for each in SERVICE.methods
}


def http_status(code: grpc.StatusCode) -> int:
    """Return the HTTP status of a gRPC status.

    >>> http_status(grpc.StatusCode.UNAVAILABLE)
    503
    """
    return _HTTP_STATUS.get(code, 500)


def code_name(code: grpc.StatusCode) -> str:
    """Return the name of a gRPC status in the Connect protocol.

    >>> code_name(grpc.StatusCode.CANCELLED), code_name(grpc.StatusCode.NOT_FOUND)
    ('canceled', 'not_found')
    """
    return "canceled" if code is grpc.StatusCode.CANCELLED else code.name.lower()


def request_bytes(method: Method, codec: str, body: bytes) -> bytes:
    """Return the request in the form of gRPC.

    Raises:
        StatusError: the body is no request of this method.
    """
    if codec == PROTO:
        return body
    try:
        text = body.decode("utf-8")
        if not text.lstrip().startswith("{"):
            raise json_format.ParseError("it is not an object")
        message = json_format.Parse(text, method.request())
        return message.SerializeToString()
    except (ValueError, RecursionError, json_format.ParseError) as error:
        why = "it is not UTF-8" if isinstance(error, UnicodeError) else str(error)
        raise error_of(InvalidQuery(f"the request is no {method.request.DESCRIPTOR.name} in JSON: {why}")) from None


def response_bytes(method: Method, codec: str, response: bytes) -> bytes:
    """Return a response in the form that the client asked for. In JSON the fields without presence are always there.

    Raises:
        StatusError: the bytes are no response of this method.
    """
    if codec == PROTO:
        return response
    try:
        message = method.response.FromString(response)
    except DecodeError:
        raise StatusError(grpc.StatusCode.INTERNAL, "the service sent a response of another version") from None
    return dump(message_object(message))


def dump(value: Any) -> bytes:
    """Return a value as compact JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def envelope(payload: bytes, *, end: bool = False) -> bytes:
    """Return a message of a stream, after its flags and its length."""
    return _HEAD.pack(_END if end else 0, len(payload)) + payload


def open_envelope(body: bytes, encoding: str, max_bytes: int) -> bytes:
    """Return the only message of a request.

    Args:
        body: of the request.
        encoding: its Connect-Content-Encoding.
        max_bytes: size of the message at most, after decompression.

    Raises:
        StatusError: the body is not one message, or it is too large, or compressed in another form than gzip.
    """
    flags, length = _HEAD.unpack_from(body) if len(body) >= _HEAD.size else (-1, -1)
    if flags not in (0, _COMPRESSED) or length != len(body) - _HEAD.size:
        raise error_of(InvalidQuery("the request is not one message in an envelope of the Connect protocol"))
    payload = body[_HEAD.size :]
    if not flags:
        return payload
    if encoding != "gzip":
        raise StatusError(grpc.StatusCode.UNIMPLEMENTED, "the encoding of messages is identity or gzip")
    unpacking = zlib.decompressobj(wbits=_GZIP)
    try:
        message = unpacking.decompress(payload, max_bytes)
    except zlib.error:
        raise error_of(InvalidQuery("the message of the request is not compressed with gzip")) from None
    if unpacking.unconsumed_tail:
        raise StatusError(grpc.StatusCode.RESOURCE_EXHAUSTED, f"the request is longer than {max_bytes} bytes")
    return message


def timeout_s(header: str | None) -> float | None:
    """Return the seconds in a Connect-Timeout-Ms header, None without one.

    Raises:
        StatusError: it is no whole number of at most 10 digits, or 0.

    >>> timeout_s("1500")
    1.5
    """
    if header is None:
        return None
    if not (header.isascii() and header.isdigit() and len(header) <= _MAX_TIMEOUT_DIGITS):
        raise error_of(InvalidQuery(f"{TIMEOUT_HEADER} is a whole number of at most {_MAX_TIMEOUT_DIGITS} digits"))
    if not int(header):
        raise error_of(DeadlinePassed("the deadline had passed when the request began"))
    return int(header) / 1000


def error_object(error: StatusError) -> dict[str, Any]:
    """Return an error as JSON: code, message, and each detail in binary form and, under `debug`, as JSON."""
    return {
        "code": code_name(error.code),
        "message": error.message,
        "details": [_detail_object(each) for each in error.details],
    }


def end_of_stream(error: StatusError | None = None) -> bytes:
    """Return the last envelope of a stream."""
    return envelope(dump({} if error is None else {"error": error_object(error)}), end=True)


def error_headers(error: StatusError) -> dict[str, str]:
    """Return the headers of an error: when to ask again, and how to authenticate."""
    headers = {}
    if error.retry_after_s is not None:
        headers["Retry-After"] = str(max(math.ceil(error.retry_after_s), 1))
    if error.code is grpc.StatusCode.UNAUTHENTICATED:
        headers["WWW-Authenticate"] = "Bearer"
    return headers


def _detail_object(detail: AnyMessage) -> dict[str, Any]:
    value = base64.b64encode(detail.value).decode().rstrip("=")
    shown = json_format.MessageToDict(detail)
    shown.pop("@type", None)
    return {"type": detail.TypeName(), "value": value, "debug": shown}
