"""Calls of the gRPC service on behalf of HTTP requests. Messages are bytes."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any

import grpc

from hirag_dist.client.common import SERVICE_NAME, ClientOptions
from hirag_dist.service.http_api.status_error import StatusError, error_of_call
from hirag_dist.wire.error_status import REQUEST_ID_KEY
from hirag_dist.wire.status_details import SERVING, HealthCheckRequest, HealthCheckResponse

_STOPPING = "the query service is stopping; ask again soon"
_CONFIG_KEY = "grpc.service_config"
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
        request_id: name of the call in the service's log.
        authorization: Authorization header of the HTTP request, None without one.
        trace: headers of the W3C trace context.
    """

    timeout_s: float
    request_id: str
    authorization: str | None = None
    trace: tuple[tuple[str, str], ...] = ()

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """Metadata of the gRPC call."""
        token = () if self.authorization is None else (("authorization", self.authorization),)
        return ((REQUEST_ID_KEY, self.request_id), *token, *self.trace)


class Gateway:
    """Client of the gRPC service that passes messages on as bytes.

    It has several connections: the service bounds the streams of each, and where several processes share the port, each
    connection leads to one of them. The one with the fewest calls in progress is used.

    Args:
        options: address and certificates of the service.
        connections: number of connections, made when they are first used.
    """

    def __init__(self, options: ClientOptions, connections: int = 4) -> None:
        credentials = options.credentials()
        arguments = [(name, value) for name, value in options.channel_options() if name != _CONFIG_KEY]
        arguments.append((_CONFIG_KEY, _SERVICE_CONFIG))

        def channel() -> grpc.aio.Channel:
            if credentials is None:
                return grpc.aio.insecure_channel(options.target, options=arguments)
            return grpc.aio.secure_channel(options.target, credentials, options=arguments)

        self._channels = [_Channel(channel()) for _ in range(connections)]
        self._turn = itertools.count()

    async def close(self) -> None:
        """Close the connections. Calls in progress end with UNAVAILABLE."""
        await asyncio.gather(*(each.channel.close() for each in self._channels))

    async def is_serving(self, timeout_s: float) -> bool:
        """Return whether the health of the service is SERVING."""
        check = self._channel().channel.unary_unary(
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
        """Return the response of an RPC.

        Raises:
            StatusError: the call failed.
        """
        channel = self._channel()
        channel.calls += 1
        try:
            response: bytes = await channel.unary(method)(request, timeout=call.timeout_s, metadata=call.metadata)
            return response
        except grpc.RpcError as error:
            raise error_of_call(error) from error
        except asyncio.CancelledError as error:
            if _is_cancelled():
                raise
            raise StatusError(grpc.StatusCode.UNAVAILABLE, _STOPPING) from error
        finally:
            channel.calls -= 1

    async def stream(self, method: str, request: bytes, call: GatewayCall) -> AsyncGenerator[bytes, None]:
        """Yield the responses of an RPC that streams them. Closing the iterator cancels the call.

        Raises:
            StatusError: the call failed.
        """
        channel = self._channel()
        channel.calls += 1
        begun = channel.stream(method)(request, timeout=call.timeout_s, metadata=call.metadata)
        try:
            async for response in begun:
                yield response
        except grpc.RpcError as error:
            raise error_of_call(error) from error
        except asyncio.CancelledError as error:
            if _is_cancelled():
                raise
            raise StatusError(grpc.StatusCode.UNAVAILABLE, _STOPPING) from error
        finally:
            channel.calls -= 1
            begun.cancel()

    def _channel(self) -> _Channel:
        first = next(self._turn) % len(self._channels)
        return min(self._channels[first:] + self._channels[:first], key=lambda each: each.calls)


class _Channel:
    """A connection, its methods and the number of its calls in progress."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.channel = channel
        self.calls = 0
        self._methods: dict[str, Any] = {}

    def unary(self, method: str) -> Any:
        if method not in self._methods:
            self._methods[method] = self.channel.unary_unary(f"/{SERVICE_NAME}/{method}")
        return self._methods[method]

    def stream(self, method: str) -> Any:
        if method not in self._methods:
            self._methods[method] = self.channel.unary_stream(f"/{SERVICE_NAME}/{method}")
        return self._methods[method]


def _is_cancelled() -> bool:
    """Return whether this task was cancelled; otherwise gRPC raised the error, because its connection was closed."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
