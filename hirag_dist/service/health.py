"""Health of the service by grpc.health.v1.

The stock servicer (`grpc_health.v1.health.aio`) is not used because of these differences:

- its watches never end, so `server.stop(grace)` waits the whole grace period for every client that watches, such as a
  load balancer; here `set_stopping` sends NOT_SERVING to the watches and ends them;
- it holds a lock while it writes to a watch, so a client that does not read delays every change of the status;
- it has no `List`;
- its requests are parsed by gRPC, which logs a traceback for each that is not a message; here they arrive as bytes.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import grpc
from google.protobuf.message import DecodeError, Message
from grpc_health.v1 import health_pb2

from hirag_dist.service.access_log import Context
from hirag_dist.service.connection_limits import ConnectionGuard, network_of, peer_of

_PB: Any = health_pb2  # the published stubs are older than `List`
_Status = health_pb2.HealthCheckResponse
_MAX_WATCHES = 512  # of one address: each takes some 25 KB
_MAX_ALL_WATCHES = 4096
_Request = TypeVar("_Request", bound=Message)


class HealthService:
    """The servicer of `Check`, `Watch` and `List`, with one status for all its names.

    Args:
        names: names of the services; "" is the process as a whole.
        connections: counts the requests of each connection.
    """

    def __init__(self, names: Iterable[str], connections: ConnectionGuard) -> None:
        self._names = frozenset(names)
        self._connections = connections
        self._watches: Counter[str] = Counter()  # by network
        self._serving = False
        self._stopping = False
        self._changed = asyncio.Condition()

    def handler(self) -> grpc.GenericRpcHandler:
        """Return the gRPC handlers of the methods."""
        unary: Any = grpc.unary_unary_rpc_method_handler
        stream: Any = grpc.unary_stream_rpc_method_handler
        replies = _Status.SerializeToString
        handlers = {
            "Check": unary(self.Check, response_serializer=replies),
            "Watch": stream(self.Watch, response_serializer=replies),
            "List": unary(self.List, response_serializer=_PB.HealthListResponse.SerializeToString),
        }
        return grpc.method_handlers_generic_handler(
            health_pb2.DESCRIPTOR.services_by_name["Health"].full_name, handlers
        )

    @property
    def is_serving(self) -> bool:
        """True if the status is SERVING."""
        return self._serving and not self._stopping

    async def set_serving(self) -> None:
        """Set the status to SERVING, unless the service is stopping."""
        await self._set(serving=True, stopping=self._stopping)

    async def set_stopping(self) -> None:
        """Set the status to NOT_SERVING for good, and end the watches."""
        await self._set(serving=False, stopping=True)

    async def Check(  # noqa: N802 - the name is the protocol's
        self, raw: bytes, context: Context
    ) -> health_pb2.HealthCheckResponse:
        """Return the current status; NOT_FOUND for an unknown name."""
        with self._connections.call(peer_of(context.peer())):
            request = await _read(health_pb2.HealthCheckRequest, raw, context)
            if request.service not in self._names:
                await context.abort(
                    grpc.StatusCode.NOT_FOUND,
                    "no service of that name",  # without the name, which may be very long
                )
            return _Status(status=self._status(request.service))

    async def Watch(  # noqa: N802
        self, raw: bytes, context: Context
    ) -> None:
        """Send the current status, then every change."""
        peer = peer_of(context.peer())
        with self._connections.call(peer), self._watched("" if peer is None else network_of(peer[0])) as admitted:
            if not admitted:
                await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many watches; one of a service is enough")
            request = await _read(health_pb2.HealthCheckRequest, raw, context)
            last = None
            while True:
                status, stopping = self._status(request.service), self._stopping
                if status != last:
                    await context.write(_Status(status=status))
                    last = status
                if stopping:
                    return
                async with self._changed:
                    await self._changed.wait_for(
                        lambda: self._stopping or self._status(request.service) != last  # noqa: B023 - awaited in place
                    )

    async def List(  # noqa: N802
        self, raw: bytes, context: Context
    ) -> Any:
        """Return the status of every name."""
        with self._connections.call(peer_of(context.peer())):
            await _read(_PB.HealthListRequest, raw, context)
            return _PB.HealthListResponse(statuses={name: _Status(status=self._status(name)) for name in self._names})

    @contextmanager
    def _watched(self, network: str) -> Iterator[bool]:
        """Count a watch while the block lasts; yield whether it is admitted. Watches need no authentication."""
        admitted = self._watches[network] < _MAX_WATCHES and self._watches.total() < _MAX_ALL_WATCHES
        if not admitted:
            yield False
            return
        self._watches[network] += 1
        try:
            yield True
        finally:
            self._watches[network] -= 1
            if not self._watches[network]:
                del self._watches[network]

    def _status(self, name: str) -> int:
        if name not in self._names:
            return int(_Status.SERVICE_UNKNOWN)
        return int(_Status.SERVING if self.is_serving else _Status.NOT_SERVING)

    async def _set(self, *, serving: bool, stopping: bool) -> None:
        async with self._changed:
            self._serving, self._stopping = serving, stopping
            self._changed.notify_all()


async def _read(kind: type[_Request], raw: bytes, context: Context) -> _Request:
    try:
        return kind.FromString(raw)
    except DecodeError:
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"the bytes are no {kind.__name__}")
