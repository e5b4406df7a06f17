"""Clients of a running query service. Importing this brings gRPC and numpy, none of the engine.

>>> with HiragClient("127.0.0.1:50051") as client:  # doctest: +SKIP
...     print(client.answer("Who built the lighthouse?").text)
"""

from hirag_dist.client.asynchronous import AsyncHiragClient
from hirag_dist.client.synchronous import HiragClient

__all__ = ["AsyncHiragClient", "HiragClient"]
