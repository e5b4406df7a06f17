"""The gateways that a page asks with: one in use, those before it closed when their questions have ended."""

from __future__ import annotations

import asyncio

import pytest

from hirag_dist.client import ClientOptions
from hirag_dist.service.http_api.gateway import Gateway, GatewayPool

pytestmark = pytest.mark.asyncio(loop_scope="module")


class WatchedGateway(Gateway):
    """One that tells when it is closed."""

    def __init__(self) -> None:
        super().__init__(ClientOptions("127.0.0.1:1"))
        self.closed = asyncio.Event()

    async def close(self) -> None:
        await super().close()
        self.closed.set()


async def test_a_replaced_gateway_is_closed_when_its_last_question_ends() -> None:
    gateways, first, second = GatewayPool(), WatchedGateway(), WatchedGateway()
    gateways.put(first)
    with gateways.lease() as before, gateways.lease():
        gateways.put(second)
        with gateways.lease() as after:
            assert (before, after) == (first, second)
        await asyncio.sleep(0)
        assert not first.closed.is_set()
    await asyncio.wait_for(first.closed.wait(), 10)
    assert not second.closed.is_set()
    await gateways.close()
    assert second.closed.is_set()
