"""grpc.health.v1 for one service. Unlike the library's, a watch ends when the service stops: it holds up no drain."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import grpc
from google.protobuf.message import DecodeError
from grpc_health.v1 import health_pb2

from hirag_dist.service.access import Context

_PB: Any = health_pb2  # the published stubs are older than `List`
_Status = health_pb2.HealthCheckResponse


class Health:
    """Answers `Check` and `Watch` with one status for every name it knows.

    Args:
        names: services that are answered for; "" is the process as a whole.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._names = frozenset(names)
        self._serving = False
        self._stopping = False
        self._changed = asyncio.Condition()

    async def serving(self) -> None:
        """Say SERVING from now on, unless the service is stopping."""
        await self._set(serving=True, stopping=self._stopping)

    async def stopping(self) -> None:
        """Say NOT_SERVING for good, and end the watches."""
        await self._set(serving=False, stopping=True)

    async def Check(  # noqa: N802 - the name is the protocol's
        self, request: bytes, context: Context
    ) -> health_pb2.HealthCheckResponse:
        """Return the status now; NOT_FOUND for an unknown name."""
        name = await _name(request, context)
        if name not in self._names:
            await context.abort(grpc.StatusCode.NOT_FOUND, "there is no service of that name here")
        return _Status(status=self._status(name))

    async def Watch(  # noqa: N802
        self, request: bytes, context: Context
    ) -> None:
        """Send the status now and at every change."""
        name, last = await _name(request, context), None
        while True:
            status, stopping = self._status(name), self._stopping
            if status != last:
                await context.write(_Status(status=status))
                last = status
            if stopping:
                return
            async with self._changed:
                await self._changed.wait_for(
                    lambda: self._stopping or self._status(name) != last  # noqa: B023 - awaited in place
                )

    async def List(  # noqa: N802
        self, request: bytes, context: Context
    ) -> Any:
        """Return the status of every name; there is nothing to ask."""
        return _PB.HealthListResponse(statuses={name: _Status(status=self._status(name)) for name in self._names})

    def _status(self, name: str) -> int:
        if name not in self._names:
            return int(_Status.SERVICE_UNKNOWN)
        return int(_Status.SERVING if self._serving and not self._stopping else _Status.NOT_SERVING)

    async def _set(self, *, serving: bool, stopping: bool) -> None:
        async with self._changed:
            self._serving, self._stopping = serving, stopping
            self._changed.notify_all()


def health_handler(health: Health) -> grpc.GenericRpcHandler:
    """Return the handler of all methods.

    They take bytes: the library's would write a traceback into the log for each that are no message, and anybody may
    send them.
    """
    one, many = grpc.unary_unary_rpc_method_handler, grpc.unary_stream_rpc_method_handler
    made: list[tuple[str, Any, Any, Any]] = [
        ("Check", one, health.Check, _Status),
        ("List", one, health.List, _PB.HealthListResponse),
        ("Watch", many, health.Watch, _Status),
    ]
    handlers = {name: make(method, response_serializer=reply.SerializeToString) for name, make, method, reply in made}
    return grpc.method_handlers_generic_handler("grpc.health.v1.Health", handlers)


async def _name(request: bytes, context: Context) -> str:
    """Return the name that is asked for."""
    try:
        return str(health_pb2.HealthCheckRequest.FromString(request).service)
    except DecodeError:
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the bytes are no HealthCheckRequest")
