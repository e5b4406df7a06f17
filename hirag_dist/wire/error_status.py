"""Errors of the package as gRPC statuses with google.rpc details, in both directions by one table."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from hirag_dist.errors import (
    BackendUnavailable,
    BudgetReached,
    ConfigError,
    ContextLengthExceeded,
    EndpointUnreachable,
    HiragError,
    IndexBusy,
    InputError,
    InvalidQuery,
    ModelError,
    ModelUnavailable,
    NotFound,
    RateLimited,
    RequestRejected,
    SchemaMismatch,
    ServiceError,
    SnapshotCorrupt,
    SnapshotError,
    SnapshotNotFound,
    SnapshotTooNew,
    StageFailed,
    StoreError,
    TimedOut,
    UnusableReply,
    WorkFileDamaged,
)
from hirag_dist.wire.convert import LOOKUP_FIELDS, QUERY_FIELDS

_FIELDS: dict[str, dict[str, str]] = {  # message → field → type, in the order of their numbers, from 1
    "Any": {"type_url": "string", "value": "bytes"},
    "Status": {"code": "int32", "message": "string", "details": "Any"},
    "Entry": {"key": "string", "value": "string"},
    "ErrorInfo": {"reason": "string", "domain": "string", "metadata": "Entry"},
    "RequestInfo": {"request_id": "string"},
    "Duration": {"seconds": "int64", "nanos": "int32"},
    "RetryInfo": {"retry_delay": "Duration"},
    "HealthCheckRequest": {"service": "string"},
    "HealthCheckResponse": {"status": "int32"},
}
_REPEATED = {"details", "metadata"}
_PACKAGE = "hirag_dist.error_status"

HEALTH_WATCH = "/grpc.health.v1.Health/Watch"
SERVING = 1  # HealthCheckResponse.ServingStatus.SERVING


def _classes() -> dict[str, Any]:
    """Return the messages of google.rpc and grpc.health.v1 as far as a client reads them, by name.

    The packages that have them (googleapis-common-protos, grpcio-health-checking) would be further dependencies of the
    client. Names and numbers are those of google/rpc/{status,error_details}.proto, google/protobuf/{any,duration}.proto
    and grpc/health/v1/health.proto; a map field is read as a list of its entries.
    """
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name=f"{_PACKAGE}.proto", package=_PACKAGE, syntax="proto3")
    for name, fields in _FIELDS.items():
        message = file.message_type.add(name=name)
        for number, (field, kind) in enumerate(fields.items(), start=1):
            label = kinds.LABEL_REPEATED if field in _REPEATED else kinds.LABEL_OPTIONAL
            added = message.field.add(name=field, number=number, label=label)
            if kind in _FIELDS:
                added.type, added.type_name = kinds.TYPE_MESSAGE, f".{_PACKAGE}.{kind}"
            else:
                added.type = kinds.Type.Value(f"TYPE_{kind.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}")) for name in _FIELDS}


_CLASSES = _classes()
HealthCheckRequest = _CLASSES["HealthCheckRequest"]
HealthCheckResponse = _CLASSES["HealthCheckResponse"]
_READ_DETAILS = ("ErrorInfo", "RequestInfo", "RetryInfo")


def details_of(status: bytes) -> dict[str, Any]:
    """Return the details of a google.rpc.Status that a client reads, the last of each kind, by message name.

    Raises:
        DecodeError: from protobuf: the status, or a detail of a known kind, is no such message.
    """
    found = {}
    for detail in _CLASSES["Status"].FromString(status).details:
        package, _, name = detail.type_url.rpartition("/")[2].rpartition(".")
        if package == "google.rpc" and name in _READ_DETAILS:
            found[name] = _CLASSES[name].FromString(detail.value)
    return found


DOMAIN = "hirag_dist"
DETAILS_KEY = "grpc-status-details-bin"
PUSHBACK_KEY = "grpc-retry-pushback-ms"
REQUEST_ID_KEY = "x-request-id"
# Metadata of a request in which the default index is meant where no index has the name.
OR_DEFAULT_KEY = "hirag-or-default-index"

_MESSAGE_BYTES = 1024  # the message travels twice, once percent-encoded, and all metadata must fit in 8 KiB
_MAX_ENCODED = 512  # statuses that are cached, a kilobyte each at most
_RETRIED = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED)


class AccessRefused(ServiceError):
    """The service rejects this call.

    Attributes:
        reason: one word for the log and the metrics; empty if the class needs none.
        caller: name of the caller, if known.
        retry_after_s: seconds after which a retry may succeed, if known.
    """

    def __init__(self, message: str, reason: str = "", caller: str = "", retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.caller = caller
        self.retry_after_s = retry_after_s


class Overloaded(AccessRefused):
    """The service has as many requests as it accepts; this one is shed."""

    retryable = True


class QuotaExceeded(AccessRefused):
    """The caller has used its quota: of requests per second, per day, or at a time."""

    retryable = True


class SlowReader(AccessRefused):
    """The caller does not read the reply."""


class NotReady(ServiceError):
    """The service has not loaded a snapshot yet, or is stopping."""

    retryable = True


class Unauthenticated(AccessRefused):
    """The caller has no valid token or certificate."""


class IndexNotFound(NotFound):
    """The service has no index of that name, or the caller may not ask it."""


class IndexUnavailable(ServiceError):
    """The index cannot be opened; the others of the service are not affected."""


class DeadlinePassed(ServiceError):
    """The caller's deadline passed before there was a result."""


class RequestTooLarge(ServiceError):
    """The reply is larger than a message may be."""


# Most specific first: the first row with a class of the error applies.
STATUS: tuple[tuple[type[HiragError], grpc.StatusCode], ...] = (
    (Overloaded, grpc.StatusCode.RESOURCE_EXHAUSTED),
    (QuotaExceeded, grpc.StatusCode.RESOURCE_EXHAUSTED),
    (SlowReader, grpc.StatusCode.ABORTED),
    (RequestTooLarge, grpc.StatusCode.RESOURCE_EXHAUSTED),
    (NotReady, grpc.StatusCode.UNAVAILABLE),
    (Unauthenticated, grpc.StatusCode.UNAUTHENTICATED),
    (DeadlinePassed, grpc.StatusCode.DEADLINE_EXCEEDED),
    (IndexUnavailable, grpc.StatusCode.UNAVAILABLE),
    (ServiceError, grpc.StatusCode.UNAVAILABLE),
    (InvalidQuery, grpc.StatusCode.INVALID_ARGUMENT),
    (IndexNotFound, grpc.StatusCode.NOT_FOUND),
    (NotFound, grpc.StatusCode.NOT_FOUND),
    (InputError, grpc.StatusCode.INVALID_ARGUMENT),
    (ConfigError, grpc.StatusCode.FAILED_PRECONDITION),
    (SnapshotNotFound, grpc.StatusCode.FAILED_PRECONDITION),
    (SnapshotTooNew, grpc.StatusCode.FAILED_PRECONDITION),
    (SnapshotCorrupt, grpc.StatusCode.DATA_LOSS),
    (SnapshotError, grpc.StatusCode.FAILED_PRECONDITION),
    (SchemaMismatch, grpc.StatusCode.DATA_LOSS),
    (WorkFileDamaged, grpc.StatusCode.DATA_LOSS),
    (StoreError, grpc.StatusCode.UNAVAILABLE),
    (BackendUnavailable, grpc.StatusCode.UNAVAILABLE),
    (IndexBusy, grpc.StatusCode.ABORTED),
    (RateLimited, grpc.StatusCode.RESOURCE_EXHAUSTED),
    (TimedOut, grpc.StatusCode.UNAVAILABLE),
    (UnusableReply, grpc.StatusCode.UNAVAILABLE),
    (EndpointUnreachable, grpc.StatusCode.UNAVAILABLE),
    (ModelUnavailable, grpc.StatusCode.UNAVAILABLE),
    (ContextLengthExceeded, grpc.StatusCode.FAILED_PRECONDITION),
    (RequestRejected, grpc.StatusCode.FAILED_PRECONDITION),
    (ModelError, grpc.StatusCode.INTERNAL),
    (BudgetReached, grpc.StatusCode.RESOURCE_EXHAUSTED),
    (StageFailed, grpc.StatusCode.INTERNAL),
    (HiragError, grpc.StatusCode.INTERNAL),
)

_LIST_FIELDS = ("page_size", "page_token")
_MAX_PUSHBACK_S = 5.0  # longest silent wait of gRPC's own retries; a used-up quota lasts until midnight

# Seconds after which a retry may succeed, for errors without a time of their own.
_DELAYS_S: tuple[tuple[type[HiragError], float], ...] = (
    (Overloaded, 0.2),
    (QuotaExceeded, 1.0),
    (NotReady, 1.0),
    (RateLimited, 1.0),
    (ModelUnavailable, 1.0),
)


_ROWS: dict[type[HiragError], tuple[type[HiragError], grpc.StatusCode]] = {}  # rows of `STATUS` that were looked up


def status_of(error: HiragError) -> grpc.StatusCode:
    """Return the code of the first row of `STATUS` that fits."""
    return _row_of(type(error))[1]


def _row_of(kind: type[HiragError]) -> tuple[type[HiragError], grpc.StatusCode]:
    row = _ROWS.get(kind)
    if row is None:
        row = _ROWS[kind] = next(row for row in STATUS if issubclass(kind, row[0]))
    return row


def reason_of(kind: type[HiragError]) -> str:
    """Return a class's name as an ErrorInfo reason.

    >>> reason_of(InvalidQuery)
    'INVALID_QUERY'
    """
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", kind.__name__).upper()


_BY_REASON = {reason_of(kind): kind for kind, _ in STATUS}


def message_of(error: HiragError) -> str:
    """Return the error's text, cut to what fits in a header."""
    raw = str(error).encode("utf-8", "replace")
    if len(raw) <= _MESSAGE_BYTES:
        return raw.decode("utf-8")
    return raw[: _MESSAGE_BYTES - 3].decode("utf-8", "ignore") + "…"


def trailers_of(error: HiragError, request_id: str, remaining_s: float | None) -> tuple[tuple[str, str | bytes], ...]:
    """Return the trailing metadata of an error: details, request id, and time of a retry.

    Args:
        remaining_s: seconds until the caller's deadline. A pause that does not fit into them, or is longer than a
            caller expects of a call, stops gRPC's own retries, so that the caller gets the error.
    """
    from google.rpc import error_details_pb2, status_pb2  # not at the top: clients do without these packages

    row, code = _row_of(type(error))
    retry_after_s = error.retry_after_s if isinstance(error, RateLimited | AccessRefused) else None
    delay_s = retry_after_s
    if delay_s is None:
        delay_s = next((delay for kind, delay in _DELAYS_S if isinstance(error, kind)), None)
    constant = _encoded_status(
        reason_of(row),
        code.value[0],
        message_of(error),
        field_of(error) if isinstance(error, InvalidQuery) else "",
        error.reason if isinstance(error, AccessRefused) else "",
        error.caller if isinstance(error, QuotaExceeded) else None,
        retry_after_s,
        delay_s,
    )
    request = status_pb2.Status()
    request.details.add().Pack(error_details_pb2.RequestInfo(request_id=request_id))
    # encoded messages one after the other are one message, with the details of both
    encoded = constant + request.SerializeToString()
    trailers: list[tuple[str, str | bytes]] = [(DETAILS_KEY, encoded), (REQUEST_ID_KEY, request_id)]
    if code in _RETRIED:
        wait = delay_s is not None and delay_s <= _MAX_PUSHBACK_S and (remaining_s is None or delay_s < remaining_s)
        wait = wait and not isinstance(error, ModelUnavailable)  # the service has tried several times itself
        trailers.append((PUSHBACK_KEY, str(int((delay_s or 0.0) * 1000)) if wait else "-1"))
    return tuple(trailers)


@lru_cache(_MAX_ENCODED)
def _encoded_status(
    kind: str,
    code: int,
    message: str,
    field: str,
    reason: str,
    exceeded_by: str | None,
    retry_after_s: float | None,
    delay_s: float | None,
) -> bytes:
    """Return the bytes of a google.rpc.Status with all details but the request's: rejections repeat one another.

    Args:
        kind: of the error, as `reason_of` names it.
        field: of a query that is wrong.
        reason, retry_after_s: of the error, where it has them.
        exceeded_by: caller whose quota is exceeded.
        delay_s: until a retry may succeed, None if it cannot.
    """
    from google.rpc import error_details_pb2, status_pb2

    status = status_pb2.Status(code=code, message=message)
    info = error_details_pb2.ErrorInfo(reason=kind, domain=DOMAIN)
    if retry_after_s is not None:
        info.metadata["retry_after_s"] = repr(retry_after_s)
    if reason:
        info.metadata["reason"] = reason
    details: list[Any] = [info]
    if field:
        violation = error_details_pb2.BadRequest.FieldViolation(field=field, description=message)
        details.append(error_details_pb2.BadRequest(field_violations=[violation]))
    if exceeded_by is not None:
        quota = error_details_pb2.QuotaFailure.Violation(subject=f"caller:{exceeded_by}", description=message)
        details.append(error_details_pb2.QuotaFailure(violations=[quota]))
    if delay_s is not None:
        retry = error_details_pb2.RetryInfo()
        retry.retry_delay.FromNanoseconds(int(delay_s * 1e9))
        details.append(retry)
    for detail in details:
        status.details.add().Pack(detail)
    encoded: bytes = status.SerializeToString()
    return encoded


def field_of(error: InvalidQuery) -> str:
    """Return the path of the field that the message begins with, "query" if it begins with none.

    >>> field_of(InvalidQuery("top_n must be at least 1, got 0")), field_of(InvalidQuery("entity must not be blank"))
    ('query.top_n', 'entity')
    """
    first = re.match(r"\w+", str(error))
    name = first.group() if first else ""
    if name in QUERY_FIELDS:
        return f"query.{name}"
    return name if name in LOOKUP_FIELDS or name in _LIST_FIELDS else "query"


def error_of(code: grpc.StatusCode, message: str, trailers: Iterable[tuple[str, str | bytes]]) -> HiragError | None:
    """Return the error that the server raised, None if the status comes from elsewhere.

    A class that this version does not know becomes a `ServiceError`. The error has the `request_id` of the call, and as
    `retry_delay_s` what the service advises.
    """
    raw = next((value for key, value in trailers if key == DETAILS_KEY), None)
    if not isinstance(raw, bytes):
        return None
    try:
        details = details_of(raw)
    except DecodeError:
        return None
    info = details.get("ErrorInfo")
    if info is None or info.domain != DOMAIN:
        return None
    kind = _BY_REASON.get(info.reason, ServiceError)
    metadata = {one.key: one.value for one in info.metadata}
    after = metadata.get("retry_after_s")
    error: HiragError
    if issubclass(kind, RateLimited):
        error = kind(message, float(after) if after else None)
    elif issubclass(kind, AccessRefused):
        error = kind(message, metadata.get("reason", ""), retry_after_s=float(after) if after else None)
    else:
        error = kind(message)
    if "RequestInfo" in details:
        error.request_id = details["RequestInfo"].request_id
    if "RetryInfo" in details:
        delay = details["RetryInfo"].retry_delay
        error.retry_delay_s = float(delay.seconds + delay.nanos / 1e9)
    return error
