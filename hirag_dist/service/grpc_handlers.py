"""gRPC handlers of the service's methods. Requests stay bytes until the servicer has authenticated the caller."""

from __future__ import annotations

from typing import Any

import grpc
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from hirag_dist.errors import InvalidQuery
from hirag_dist.wire._pb import query_pb2

SERVICE = query_pb2.DESCRIPTOR.services_by_name["QueryService"]
SERVICE_NAME: str = SERVICE.full_name
_REQUESTS: dict[str, Any] = {method.name: GetMessageClass(method.input_type) for method in SERVICE.methods}


def service_handler(servicer: Any) -> grpc.GenericRpcHandler:
    """Return the handler of all methods.

    If gRPC parsed the requests, it would do so before authentication, and one that is no message would end in UNKNOWN
    with a traceback in the log.

    Args:
        servicer: has a method for each RPC, with the same name, that takes a request and replies, both as bytes.
    """
    handlers = {}
    for method in SERVICE.methods:
        make: Any = (
            grpc.unary_stream_rpc_method_handler if method.server_streaming else grpc.unary_unary_rpc_method_handler
        )
        handlers[method.name] = make(getattr(servicer, method.name))
    return grpc.method_handlers_generic_handler(SERVICE_NAME, handlers)


def read_request(method: str, raw: bytes) -> Any:
    """Return the message of a method's request.

    Raises:
        InvalidQuery: the bytes are none.
    """
    try:
        return _REQUESTS[method].FromString(raw)
    except DecodeError:
        raise InvalidQuery(f"the bytes are no {method}Request; make one with code generated from query.proto") from None
