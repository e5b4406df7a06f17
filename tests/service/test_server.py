"""Health, reflection, tokens, TLS, ports, signals and draining."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from hirag_dist.client.common import service_stub
from hirag_dist.errors import SnapshotNotFound
from hirag_dist.service.hot_swap import SingleIndex, SnapshotSwapper
from hirag_dist.service.options import ServerOptions
from hirag_dist.service.server import SERVICE_NAME, serve
from hirag_dist.service.supervisor import reserve
from hirag_dist.wire._pb import query_pb2 as pb
from tests.service import fakes

REQUEST = pb.RetrieveRequest(query=pb.Query(question="q"))
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


def asked(name: str) -> health_pb2.HealthCheckRequest:
    return health_pb2.HealthCheckRequest(service=name)


@pytest.mark.parametrize("name", ["", SERVICE_NAME])
async def test_health_from_start_to_end(start: fakes.Start, engine: fakes.FakeEngine, name: str) -> None:
    service = await start(engine, load=False)
    health = health_pb2_grpc.HealthStub(service.channel)
    watch = aiter(health.Watch(asked(name)))
    assert (await anext(watch)).status == NOT_SERVING
    assert (await health.Check(asked(name))).status == NOT_SERVING
    await service.load()
    assert (await anext(watch)).status == SERVING
    assert (await health.Check(asked(name))).status == SERVING
    await service.server.stop(3600)  # the open watch does not hold it up
    assert [reply.status async for reply in watch] == [NOT_SERVING]


@pytest.mark.parametrize("on", [True, False])
async def test_reflection_is_a_switch(start: fakes.Start, engine: fakes.FakeEngine, on: bool) -> None:
    service = await start(engine, reflection=on)
    call = fakes.list_services(service.channel)
    if on:
        (reply,) = [reply async for reply in call]
        names = {found.name for found in reply.list_services_response.service}
        assert {SERVICE_NAME, "grpc.health.v1.Health"} <= names
    else:
        assert (await fakes.end_of(call)).startswith("UNIMPLEMENTED")


async def test_the_drain_has_an_end(start: fakes.Start, engine: fakes.FakeEngine) -> None:
    service = await start(engine)
    unary = await engine.held(service.stub.Retrieve(REQUEST))
    await service.server.stop(0.05)
    await engine.cancelled.wait()
    with pytest.raises(grpc.aio.AioRpcError):
        await unary


class Running:
    """`serve` as a task."""

    def __init__(self, swapper: SnapshotSwapper, options: ServerOptions) -> None:
        self._ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.done = asyncio.create_task(serve(SingleIndex(swapper), options, self._ready.set_result))

    async def address(self) -> str:
        await asyncio.wait({self.done, self._ready}, return_when=asyncio.FIRST_COMPLETED)
        if self.done.done():
            await self.done
        return await self._ready


async def _refused(stub: Any) -> None:
    """Ask until the service takes no more."""
    code = grpc.StatusCode.OK
    while code is grpc.StatusCode.OK:
        code = await stub.DescribeIndex(pb.DescribeIndexRequest()).code()
    assert code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)


async def test_a_signal_drains_and_ends(engine: fakes.FakeEngine) -> None:
    running = Running(fakes.swapper_of(engine), ServerOptions(listen="127.0.0.1:0"))
    address = await running.address()
    async with grpc.aio.insecure_channel(address) as channel, grpc.aio.insecure_channel(address) as other:
        stub = service_stub(channel)
        unary = await engine.held(stub.Retrieve(REQUEST))
        stream = aiter(stub.Answer(pb.AnswerRequest(query=REQUEST.query)))
        assert (await anext(stream)).retrieval.local
        watch = aiter(health_pb2_grpc.HealthStub(channel).Watch(asked("")))
        assert (await anext(watch)).status == SERVING
        os.kill(os.getpid(), signal.SIGTERM)
        assert (await anext(watch)).status == NOT_SERVING
        await _refused(service_stub(other))
        assert not running.done.done()
        engine.gate.set()
        assert (await unary).retrieval.local
        assert [part.WhichOneof("part") async for part in stream] == ["text", "text", "answer"]
        await running.done
    assert engine.closed.is_set()


async def test_a_service_that_is_leaving_still_answers(engine: fakes.FakeEngine) -> None:
    running = Running(fakes.swapper_of(engine), ServerOptions(listen="127.0.0.1:0", drain_delay_s=3600))
    async with grpc.aio.insecure_channel(await running.address()) as channel:
        watch = aiter(health_pb2_grpc.HealthStub(channel).Watch(asked("")))
        assert (await anext(watch)).status == SERVING
        os.kill(os.getpid(), signal.SIGTERM)
        assert (await anext(watch)).status == NOT_SERVING
        assert (await service_stub(channel).Retrieve(REQUEST)).retrieval.local
        os.kill(os.getpid(), signal.SIGTERM)  # does not wait for balancers any more
        await running.done


async def test_one_of_several_processes_listens_once_it_can_answer(engine: fakes.FakeEngine) -> None:
    """The kernel would give it connections, and their clients would be refused while the others could answer."""
    opening, opened = asyncio.Event(), asyncio.Event()

    async def slow() -> Any:
        opening.set()
        await opened.wait()
        return engine

    with reserve("127.0.0.1", 0) as held:
        host, port = held.getsockname()
        options = ServerOptions(listen=f"{host}:{port}", reuse_port=True)
        running = Running(SnapshotSwapper(slow, lambda: "s1", poll_s=3600), options)
        await opening.wait()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(host, port)
        opened.set()
        async with grpc.aio.insecure_channel(await running.address()) as channel:
            assert (await service_stub(channel).Retrieve(REQUEST)).retrieval.local
        os.kill(os.getpid(), signal.SIGTERM)
        await running.done
    assert engine.closed.is_set()


async def test_without_a_snapshot_the_service_ends_with_the_reason() -> None:
    async def nothing() -> Any:
        raise SnapshotNotFound("nothing is published there")

    running = Running(SnapshotSwapper(nothing, lambda: None), ServerOptions(listen="127.0.0.1:0"))
    with pytest.raises(SnapshotNotFound, match="nothing is published"):
        await running.address()
