"""What gRPC calls for each method of the service. Bytes that are no message reach the servicer, which refuses them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from hirag_dist.service._pb import query_pb2

SERVICE = query_pb2.DESCRIPTOR.services_by_name["QueryService"]
SERVICE_NAME: str = SERVICE.full_name


class Malformed:
    """Stands for a request whose bytes are no message of its type.

    Left to gRPC, each would end in UNKNOWN and write a traceback into the log.
    """


def service_handler(servicer: Any) -> grpc.GenericRpcHandler:
    """Return the handler of all methods.

    Args:
        servicer: has a method of the same name for each, which takes a message, or `Malformed`, and replies in bytes.
    """
    handlers = {}
    for method in SERVICE.methods:
        make: Any = (
            grpc.unary_stream_rpc_method_handler if method.server_streaming else grpc.unary_unary_rpc_method_handler
        )
        handlers[method.name] = make(
            getattr(servicer, method.name),
            request_deserializer=_parser(GetMessageClass(method.input_type)),
        )
    return grpc.method_handlers_generic_handler(SERVICE_NAME, handlers)


def _parser(kind: Any) -> Callable[[bytes], Any]:
    def parse(raw: bytes) -> Any:
        try:
            return kind.FromString(raw)
        except DecodeError:
            return Malformed()

    return parse
