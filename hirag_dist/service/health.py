"""grpc.health.v1 for one service. Unlike the library's, a watch ends when the service stops: it holds up no drain."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import grpc
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
        self, request: health_pb2.HealthCheckRequest, context: Context
    ) -> health_pb2.HealthCheckResponse:
        """Return the status now; NOT_FOUND for an unknown name."""
        if request.service not in self._names:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"no service {request.service!r} here")
        return _Status(status=self._status(request.service))

    async def Watch(  # noqa: N802
        self, request: health_pb2.HealthCheckRequest, context: Context
    ) -> None:
        """Send the status now and at every change."""
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
        self, request: Any, context: Context
    ) -> Any:
        """Return the status of every name."""
        return _PB.HealthListResponse(statuses={name: _Status(status=self._status(name)) for name in self._names})

    def _status(self, name: str) -> int:
        if name not in self._names:
            return int(_Status.SERVICE_UNKNOWN)
        return int(_Status.SERVING if self._serving and not self._stopping else _Status.NOT_SERVING)

    async def _set(self, *, serving: bool, stopping: bool) -> None:
        async with self._changed:
            self._serving, self._stopping = serving, stopping
            self._changed.notify_all()
