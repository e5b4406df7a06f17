"""The connections that a page asks with: those before a renewal are closed when their questions have ended."""

from __future__ import annotations

import asyncio

import grpc
import pytest

from hirag_dist.client import ClientOptions
from hirag_dist.service.http_api.gateway import Gateway, GatewayCall

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_replaced_connection_is_closed_when_its_last_question_ends() -> None:
    asked, answered = asyncio.Event(), asyncio.Event()

    async def reply(request: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
        asked.set()
        await answered.wait()
        return request

    class Anything(grpc.GenericRpcHandler):
        def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes]:
            return grpc.unary_unary_rpc_method_handler(reply)

    server = grpc.aio.server()
    server.add_generic_rpc_handlers((Anything(),))
    options = ClientOptions(f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}")
    await server.start()
    gateway = Gateway(connections=1)
    gateway.connect(options)
    (first,) = gateway._channels
    question = asyncio.create_task(gateway.unary("Answer", b"?", GatewayCall(60.0, "one")))
    await asked.wait()
    gateway.connect(options)
    assert first.channel.get_state() is not grpc.ChannelConnectivity.SHUTDOWN
    answered.set()
    assert await question == b"?"
    while first.channel.get_state() is not grpc.ChannelConnectivity.SHUTDOWN:
        await asyncio.sleep(0.01)
    assert await gateway.unary("Answer", b"!", GatewayCall(60.0, "two")) == b"!"
    await gateway.close()
    await server.stop(0)
