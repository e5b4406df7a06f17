"""The status of a failed call, with its details, as the HTTP APIs report it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2

from hirag_dist.errors import HiragError
from hirag_dist.service.request_gate import SERVICE
from hirag_dist.wire._pb import query_pb2 as pb
from hirag_dist.wire.error_status import DETAILS_KEY, message_of, status_of, trailers_of

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
        code: of the status.
        message: of the status.
        details: google.rpc messages.
        reason: of the ErrorInfo among them, empty without one.
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
            return StatusError(code, _UNREACHABLE)
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
