"""Clients of a running query service. They import gRPC and protobuf, and no module of the engine.

>>> with HiragClient("127.0.0.1:50051") as client:  # doctest: +SKIP
...     print(client.answer("Who built the lighthouse?").text)

Errors of the service are raised here with the same classes: those of `hirag_dist.errors`, and those of this package
for errors that only a service has, which are all a `ServiceError`.
"""

from hirag_dist.client.asynchronous import AsyncHiragClient
from hirag_dist.client.common import CallOptions, ClientOptions
from hirag_dist.client.synchronous import HiragClient
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
    "DeadlinePassed",
    "HiragClient",
    "IndexNotFound",
    "NotReady",
    "Overloaded",
    "QuotaExceeded",
    "RequestTooLarge",
    "SlowReader",
    "Unauthenticated",
]
