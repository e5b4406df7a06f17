"""Connections of clients: several addresses, a broken one, oversized messages, the end."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from hirag_dist.client import ClientOptions, ConfigError, RequestTooLarge, ServiceError
from hirag_dist.types import Answer
from tests.cable import Cable
from tests.client.conftest import both_clients
from tests.service import fakes


@pytest.fixture
async def cable(start: fakes.Start, engine: fakes.FakeEngine) -> AsyncIterator[Cable]:
    cable = Cable((await start(engine)).address)
    await cable.plug_in()
    yield cable
    await cable.unplug()


@both_clients
async def test_a_connection_lost_in_mid_answer_is_told_and_the_next_call_finds_another(
    cable: Cable, engine: fakes.FakeEngine, connect: Any
) -> None:
    client = connect(cable.address)
    got = asyncio.Event()
    asking = await engine.held(client.collect("answer_stream", "q", got=got))
    await got.wait()
    cable.pull()
    with pytest.raises(ServiceError, match=f"the connection to {cable.address} was lost during the reply; ask again"):
        await asking
    await engine.cancelled.wait()  # the service stops when the caller has gone
    assert len(engine.queries) == 1, "an answer that broke off is not paid for twice"
    engine.gate = None
    assert (await client.collect("answer_stream", "q"))[0] == engine.whole


async def test_a_connection_lost_before_the_reply_is_asked_again(
    cable: Cable, engine: fakes.FakeEngine, connect: Any
) -> None:
    client = connect(cable.address)
    assert await client.call("describe") == engine.info  # the connection is there
    asking = await engine.held(client.call("retrieve", "q"))
    engine.started.clear()
    cable.pull()
    await engine.started.wait()
    engine.gate.set()
    assert await asking == engine.whole
    assert len(engine.queries) == 2


async def test_a_connection_that_is_dead_without_a_word_is_noticed(
    cable: Cable, engine: fakes.FakeEngine, connect: Any
) -> None:
    client = connect(cable.address, timeout_s=None, keepalive_s=0.2)
    got = asyncio.Event()
    asking = await engine.held(client.collect("answer_stream", "q", got=got))
    await got.wait()
    cable.cut()
    with pytest.raises(ServiceError, match="was lost during the reply"):
        await asking


@pytest.mark.integration
async def test_a_stream_that_is_silent_for_many_probes_still_gets_its_answer(
    start: fakes.Start, engine: fakes.FakeEngine, connect: Any
) -> None:
    service = await start(engine, min_ping_interval_s=0.05)
    client = connect(service.address, timeout_s=None, keepalive_s=1.5)  # also the time that a probe's answer may take
    asking = await engine.held(client.collect("answer_stream", "q"))
    done, _ = await asyncio.wait({asking}, timeout=7)  # four probes
    engine.gate.set()
    assert not done
    assert isinstance((await asking)[-1], Answer)


async def test_no_proxy_stands_before_this_machine(
    start: fakes.Start, engine: fakes.FakeEngine, connect: Any, monkeypatch: pytest.MonkeyPatch, free_address: str
) -> None:
    for name in ("http_proxy", "https_proxy", "grpc_proxy"):
        monkeypatch.setenv(name, f"http://{free_address}")
    monkeypatch.delenv("no_proxy", raising=False)
    address = (await start(engine)).address
    assert await connect(address).call("retrieve", "q") == engine.whole
    assert await connect(address.replace("127.0.0.1", "localhost")).call("retrieve", "q") == engine.whole


async def test_the_addresses_of_a_name_are_used_in_turn(start: fakes.Start, connect: Any) -> None:
    engines = [fakes.FakeEngine(name) for name in ("s1", "s2")]
    first, second = [(await start(engine)).address for engine in engines]
    client = connect(f"ipv4:{first},{second}")
    while not all(engine.queries for engine in engines):  # until both are connected
        await client.call("retrieve", "q")
    seen = Counter([(await client.call("retrieve", "q")).snapshot_id for _ in range(20)])
    assert min(seen["s1"], seen["s2"]) >= 8  # the rotation may restart while addresses connect


async def test_the_other_address_takes_over(start: fakes.Start, connect: Any, free_address: str) -> None:
    engine = fakes.FakeEngine()
    client = connect(f"ipv4:{free_address},{(await start(engine)).address}")
    for _ in range(4):
        assert await client.call("retrieve", "q") == engine.whole


async def test_a_reply_larger_than_the_client_takes(start: fakes.Start, engine: fakes.FakeEngine, connect: Any) -> None:
    engine.whole = replace(engine.whole, context="x" * 100_000)
    address = (await start(engine)).address
    assert await connect(address).call("retrieve", "q") == engine.whole
    small = connect(address, max_message_bytes=50_000)
    for name in ("retrieve", "answer"):
        with pytest.raises(RequestTooLarge, match="ask with omit_context"):
            await small.call(name, "q")
    assert (await small.call("retrieve", "q", omit_context=True)).context == ""


async def test_a_request_larger_than_the_service_takes(
    start: fakes.Start, engine: fakes.FakeEngine, connect: Any
) -> None:
    client = connect((await start(engine, max_message_bytes=50_000)).address)
    with pytest.raises(RequestTooLarge, match="larger than"):
        await client.call("retrieve", "why? " * 20_000)
    assert not engine.queries


@both_clients
async def test_a_closed_client_says_so(start: fakes.Start, engine: fakes.FakeEngine, connect: Any) -> None:
    client = connect((await start(engine)).address)
    asking = await engine.held(client.call("retrieve", "q"))
    await client.close()
    with pytest.raises(ServiceError, match="the client was closed during the request"):
        await asking
    for name in ("retrieve", "answer", "describe", "wait_ready"):
        with pytest.raises(RuntimeError, match="this client is closed"):
            await client.call(name, *(("q",) if name in ("retrieve", "answer") else ()))


def test_addresses_as_urls() -> None:
    assert ClientOptions("http://127.0.0.1:50051/").target == "127.0.0.1:50051"
    assert ClientOptions("http://127.0.0.1:50051").credentials() is None
    assert ClientOptions("https://[::1]:443").target == "[::1]:443"
    assert ClientOptions("https://[::1]:443").credentials() is not None
    assert ClientOptions("dns:///hirag.example.org:50051").target == "dns:///hirag.example.org:50051"
    for wrong in ("http://hirag.example.org", "http://a:1/path", None):
        with pytest.raises(ConfigError, match="expected HOST:PORT, http://HOST:PORT or https://HOST:PORT"):
            ClientOptions(wrong)  # type: ignore[arg-type]
