"""Clients of a running query service. They import gRPC and protobuf, and no module of the engine.

>>> with HiragClient("127.0.0.1:50051") as client:  # doctest: +SKIP
...     print(client.answer("Who built the lighthouse?").text)

Errors of the service are raised here with the same classes as in process (`hirag_dist.errors`); those that only a
service has are a `ServiceError`. All of them can be imported from here.
"""

from hirag_dist.client.clients import AsyncHiragClient, HiragClient
from hirag_dist.client.common import CallOptions, ClientOptions
from hirag_dist.errors import (
    ConfigError,
    HiragError,
    InvalidQuery,
    ModelError,
    ModelUnavailable,
    NotFound,
    RateLimited,
    ServiceError,
)
from hirag_dist.wire.error_status import (
    AccessRefused,
    DeadlinePassed,
    IndexNotFound,
    NotReady,
    Overloaded,
    QuotaExceeded,
    RequestTooLarge,
    SlowReader,
    Unauthenticated,
)

__all__ = [
    "AccessRefused",
    "AsyncHiragClient",
    "CallOptions",
    "ClientOptions",
    "ConfigError",
    "DeadlinePassed",
    "HiragClient",
    "HiragError",
    "IndexNotFound",
    "InvalidQuery",
    "ModelError",
    "ModelUnavailable",
    "NotFound",
    "NotReady",
    "Overloaded",
    "QuotaExceeded",
    "RateLimited",
    "RequestTooLarge",
    "ServiceError",
    "SlowReader",
    "Unauthenticated",
]
