"""Messages of google.rpc and grpc.health.v1, as far as a client reads them.

The packages that have them (googleapis-common-protos, grpcio-health-checking) would be further dependencies of the
client, so that it declares the same fields here, in a descriptor pool of its own. Names and numbers are those of
google/rpc/status.proto, google/rpc/error_details.proto, google/protobuf/{any,duration}.proto and
grpc/health/v1/health.proto; a map field is read as a list of its entries.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

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
_PACKAGE = "hirag_dist.status_details"

HEALTH_WATCH = "/grpc.health.v1.Health/Watch"
SERVING = 1  # of HealthCheckResponse.ServingStatus


def _classes() -> dict[str, Any]:
    """Return the message classes by name."""
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
ErrorInfo = _CLASSES["ErrorInfo"]
RequestInfo = _CLASSES["RequestInfo"]
RetryInfo = _CLASSES["RetryInfo"]


def details_of(status: bytes) -> dict[str, Any]:
    """Return the details of a google.rpc.Status that a client reads, the last of each kind, by message name.

    Raises:
        DecodeError: from protobuf: the status, or a detail of a known kind, is no such message.
    """
    known = {"ErrorInfo": ErrorInfo, "RequestInfo": RequestInfo, "RetryInfo": RetryInfo}
    found = {}
    for detail in _CLASSES["Status"].FromString(status).details:
        package, _, name = detail.type_url.rpartition("/")[2].rpartition(".")
        if package == "google.rpc" and name in known:
            found[name] = known[name].FromString(detail.value)
    return found


def seconds_of(retry: Any) -> float:
    """Return the delay of a RetryInfo."""
    return float(retry.retry_delay.seconds + retry.retry_delay.nanos / 1e9)
