"""Health, reflection, tokens, TLS, ports, signals and draining."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import socket
import threading
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from hirag_dist.errors import BackendUnavailable, SnapshotNotFound
from hirag_dist.service.hot_swap import SnapshotSwapper
from hirag_dist.service.index_source import SingleIndex
from hirag_dist.service.options import ServerOptions
from hirag_dist.service.server import SERVICE_NAME, serve
from hirag_dist.service.supervisor import reserve
from hirag_dist.wire._pb import query_pb2 as pb
from hirag_dist.wire._pb import query_pb2_grpc
from tests.service import fakes

REQUEST = pb.RetrieveRequest(query=pb.Query(question="q"))
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


def asked(name: str) -> health_pb2.HealthCheckRequest:
    return health_pb2.HealthCheckRequest(service=name)


@pytest.mark.parametrize("name", ["", SERVICE_NAME])
async def test_health_from_start_to_end(start: fakes.Start, engine: fakes.FakeEngine, name: str) -> None:
    service = await start(engine, load=False)
    async with fakes.channel(service) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        watch = aiter(health.Watch(asked(name)))
        assert (await anext(watch)).status == NOT_SERVING
        assert (await health.Check(asked(name))).status == NOT_SERVING
        await service.swapper.start()
        await service.server.set_serving()
        assert (await anext(watch)).status == SERVING
        assert (await health.Check(asked(name))).status == SERVING
        await service.server.stop(3600)  # the open watch does not hold it up
        assert [reply.status async for reply in watch] == [NOT_SERVING]


async def test_health_of_an_unknown_name(start: fakes.Start, engine: fakes.FakeEngine) -> None:
    service = await start(engine)
    async with fakes.channel(service) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await health.Check(asked("other"))
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND
        unknown = await anext(aiter(health.Watch(asked("other"))))
        assert unknown.status == health_pb2.HealthCheckResponse.SERVICE_UNKNOWN


@pytest.mark.parametrize("on", [True, False])
async def test_reflection_is_a_switch(start: fakes.Start, engine: fakes.FakeEngine, on: bool) -> None:
    service = await start(engine, reflection=on)
    async with fakes.channel(service) as channel:
        requests = [reflection_pb2.ServerReflectionRequest(list_services="")]
        call = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(iter(requests))
        if on:
            (reply,) = [reply async for reply in call]
            names = {found.name for found in reply.list_services_response.service}
            assert {SERVICE_NAME, "grpc.health.v1.Health"} <= names
        else:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                _ = [reply async for reply in call]
            assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_a_port_in_use(start: fakes.Start, engine: fakes.FakeEngine) -> None:
    first = await start(engine)
    port = first.address.rpartition(":")[2]
    for host in ("127.0.0.1", "localhost"):
        with pytest.raises(BackendUnavailable, match=f"^port {port} is in use; choose another with --listen$"):
            await start(engine, listen=f"{host}:{port}")


async def test_several_servers_share_a_port_where_asked(start: fakes.Start, engine: fakes.FakeEngine) -> None:
    first = await start(engine, reuse_port=True)
    second = await start(engine, reuse_port=True, listen=first.address)
    assert second.address == first.address


@pytest.mark.parametrize(
    ("listen", "words"),
    [("192.0.2.7:50051", "192.0.2.7 is no address of this machine"), ("no-such-host.invalid:1", "host .* is unknown")],
)
async def test_an_address_of_another_machine(
    start: fakes.Start, engine: fakes.FakeEngine, callers: fakes.CallersFile, listen: str, words: str
) -> None:
    with pytest.raises(BackendUnavailable, match=words):
        await start(engine, listen=listen, callers_file=callers.path)


async def test_random_bytes_do_no_harm(start: fakes.Start, engine: fakes.FakeEngine) -> None:
    service = await start(engine)
    host, _, port = service.address.rpartition(":")
    dice = random.Random(7)

    def disturb() -> None:
        for start_of in (b"", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n"):
            with socket.create_connection((host, int(port)), timeout=5) as connection:
                connection.sendall(start_of + dice.randbytes(2000))

    await asyncio.to_thread(disturb)
    async with fakes.channel(service) as channel:
        stub = query_pb2_grpc.QueryServiceStub(channel)
        raw = channel.unary_unary(f"/{SERVICE_NAME}/Retrieve")
        with pytest.raises(grpc.aio.AioRpcError):
            await raw(dice.randbytes(500))
        assert (await stub.Retrieve(REQUEST)).retrieval.local


async def test_bytes_that_are_no_request_for_reflection_write_nothing_into_the_log(
    start: fakes.Start, engine: fakes.FakeEngine, caplog: pytest.LogCaptureFixture
) -> None:
    service = await start(engine)
    async with fakes.channel(service) as channel:
        info = channel.stream_stream(
            "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
            response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
        )
        (reply,) = [reply async for reply in info(iter([b"\xff\xff\xff"]))]
        assert reply.error_response.error_code == grpc.StatusCode.INVALID_ARGUMENT.value[0]
    assert not [record for record in caplog.records if record.exc_info]


async def test_what_is_at_work_finishes_before_the_end(start: fakes.Start, engine: fakes.FakeEngine) -> None:
    service = await start(engine)
    engine.gate = asyncio.Event()
    async with fakes.channel(service) as channel, fakes.channel(service) as other:
        stub = query_pb2_grpc.QueryServiceStub(channel)
        unary = asyncio.ensure_future(stub.Retrieve(REQUEST))
        stream = aiter(stub.Answer(pb.AnswerRequest(query=REQUEST.query)))
        assert (await anext(stream)).retrieval.local
        await engine.started.wait()
        stopping = asyncio.create_task(service.server.stop(30))
        await _refused(query_pb2_grpc.QueryServiceStub(other))
        assert not stopping.done()
        engine.gate.set()
        assert (await unary).retrieval.local
        assert [part.WhichOneof("part") async for part in stream] == ["text", "text", "answer"]
        await stopping


async def _refused(stub: Any) -> None:
    """Ask until the service takes no more."""

    async def ask() -> None:
        while True:
            await stub.DescribeIndex(pb.DescribeIndexRequest())

    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await ask()
    assert caught.value.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)


async def test_the_drain_has_an_end(start: fakes.Start, engine: fakes.FakeEngine) -> None:
    service = await start(engine)
    engine.gate = asyncio.Event()
    async with fakes.channel(service) as channel:
        unary = asyncio.ensure_future(query_pb2_grpc.QueryServiceStub(channel).Retrieve(REQUEST))
        await engine.started.wait()
        await service.server.stop(0.05)
        await engine.cancelled.wait()
        with pytest.raises(grpc.aio.AioRpcError):
            await unary


async def test_a_connection_has_an_age(start: fakes.Start, engine: fakes.FakeEngine) -> None:
    service = await start(engine, max_connection_age_s=0.3, max_connection_age_grace_s=0.2)
    async with fakes.channel(service) as channel:
        watch = aiter(health_pb2_grpc.HealthStub(channel).Watch(asked("")))
        assert (await anext(watch)).status == SERVING
        with pytest.raises(grpc.aio.AioRpcError):  # a call that does not end in time is cut off with its connection
            await anext(watch)
        assert (await query_pb2_grpc.QueryServiceStub(channel).Retrieve(REQUEST)).retrieval.local


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


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
async def test_a_signal_drains_and_ends(engine: fakes.FakeEngine, number: signal.Signals) -> None:
    running = Running(fakes.swapper_of(engine), ServerOptions(listen="127.0.0.1:0"))
    engine.gate = asyncio.Event()
    async with grpc.aio.insecure_channel(await running.address()) as channel:
        unary = asyncio.ensure_future(query_pb2_grpc.QueryServiceStub(channel).Retrieve(REQUEST))
        await engine.started.wait()
        watch = aiter(health_pb2_grpc.HealthStub(channel).Watch(asked("")))
        assert (await anext(watch)).status == SERVING
        os.kill(os.getpid(), number)
        assert (await anext(watch)).status == NOT_SERVING
        assert not running.done.done()
        engine.gate.set()
        assert (await unary).retrieval.local
        await running.done
    assert engine.closed.is_set()


async def test_a_second_signal_does_not_wait(engine: fakes.FakeEngine) -> None:
    running = Running(fakes.swapper_of(engine), ServerOptions(listen="127.0.0.1:0", drain_s=3600))
    engine.gate = asyncio.Event()
    async with grpc.aio.insecure_channel(await running.address()) as channel:
        unary = asyncio.ensure_future(query_pb2_grpc.QueryServiceStub(channel).Retrieve(REQUEST))
        await engine.started.wait()
        watch = aiter(health_pb2_grpc.HealthStub(channel).Watch(asked("")))
        assert (await anext(watch)).status == SERVING
        os.kill(os.getpid(), signal.SIGTERM)
        assert (await anext(watch)).status == NOT_SERVING
        os.kill(os.getpid(), signal.SIGTERM)
        await running.done
        with pytest.raises(grpc.aio.AioRpcError):
            await unary
    assert engine.cancelled.is_set()
    assert engine.closed.is_set()


async def test_a_service_that_is_leaving_still_answers(engine: fakes.FakeEngine) -> None:
    running = Running(fakes.swapper_of(engine), ServerOptions(listen="127.0.0.1:0", drain_delay_s=3600))
    async with grpc.aio.insecure_channel(await running.address()) as channel:
        watch = aiter(health_pb2_grpc.HealthStub(channel).Watch(asked("")))
        assert (await anext(watch)).status == SERVING
        os.kill(os.getpid(), signal.SIGTERM)
        assert (await anext(watch)).status == NOT_SERVING
        assert (await query_pb2_grpc.QueryServiceStub(channel).Retrieve(REQUEST)).retrieval.local
        os.kill(os.getpid(), signal.SIGTERM)  # does not wait for balancers any more
        await running.done


async def test_a_signal_while_the_snapshot_is_opened() -> None:
    opening, cancelled = asyncio.Event(), asyncio.Event()

    async def never() -> Any:
        opening.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    running = Running(SnapshotSwapper(never, lambda: "s1"), ServerOptions(listen="127.0.0.1:0"))
    await opening.wait()
    os.kill(os.getpid(), signal.SIGTERM)
    await running.done
    assert cancelled.is_set()


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
            assert (await query_pb2_grpc.QueryServiceStub(channel).Retrieve(REQUEST)).retrieval.local
        os.kill(os.getpid(), signal.SIGTERM)
        await running.done
    assert engine.closed.is_set()


async def test_without_a_snapshot_the_service_ends_with_the_reason() -> None:
    async def nothing() -> Any:
        raise SnapshotNotFound("nothing is published there")

    running = Running(SnapshotSwapper(nothing, lambda: None), ServerOptions(listen="127.0.0.1:0"))
    with pytest.raises(SnapshotNotFound, match="nothing is published"):
        await running.address()


async def test_a_taken_port_ends_the_service_before_anything_is_opened(
    start: fakes.Start, engine: fakes.FakeEngine
) -> None:
    taken = (await start(engine)).address
    running = Running(fakes.swapper_of(fakes.FakeEngine()), ServerOptions(listen=taken))
    with pytest.raises(BackendUnavailable, match="is in use"):
        await running.address()


def test_in_another_thread_an_event_stops_it() -> None:
    found: dict[str, Any] = {}
    ready = threading.Event()

    async def main() -> None:
        found["loop"], found["stop"] = asyncio.get_running_loop(), asyncio.Event()
        engine = fakes.FakeEngine()
        source = SingleIndex(fakes.swapper_of(engine))
        await serve(source, ServerOptions(listen="127.0.0.1:0"), lambda _: ready.set(), found["stop"])
        found["closed"] = engine.closed.is_set()

    thread = threading.Thread(target=asyncio.run, args=(main(),))
    thread.start()
    assert ready.wait(60)
    found["loop"].call_soon_threadsafe(found["stop"].set)
    thread.join(10)
    assert found["closed"]
