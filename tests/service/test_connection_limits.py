"""Connections of a client that holds too many, or that does not use them, are closed; the others stay."""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from benchmarks import wire
from benchmarks.hostile_clients import Connections
from hirag_dist.client import AsyncHiragClient
from hirag_dist.errors import ConfigError, ServiceError
from hirag_dist.service import descriptors
from hirag_dist.service.connection_limits import Connection, ConnectionGuard, ConnectionLimits, Peer, surplus
from tests.service import fakes

LIMITS = ConnectionLimits(total=100, per_client=25, first_call_s=20.0, idle_s=300.0)


def held(address: str, count: int, first_port: int = 1, **facts: object) -> dict[Peer, Connection]:
    """Connections of one address, each since a moment later than the one before."""
    return {
        (address, first_port + at): Connection(**{"since": 1000.0 + at / 1000, **facts})  # type: ignore[arg-type]
        for at in range(count)
    }


def test_few_connections_stay() -> None:
    assert surplus(held("10.0.0.1", 25) | held("10.0.0.2", 25), LIMITS, 1001.0) == {}


def test_the_longest_unused_connections_of_a_client_go_first() -> None:
    used = held("10.0.0.1", 10, 100, used_at=1000.5)
    working = held("10.0.0.1", 5, 200, used_at=1000.5, calls=1)
    closed = surplus(held("10.0.0.1", 20) | used | working | held("10.0.0.2", 25), LIMITS, 1001.0)
    assert closed == {("10.0.0.1", port): "client" for port in range(1, 11)}


def test_a_caller_has_a_limit_of_its_own() -> None:
    """Many clients may share the address of a proxy: those that authenticated count by their caller."""
    known = held("10.0.0.1", 25, 100, used_at=1000.5, caller="web") | held("10.0.0.1", 20, 200, caller="reports")
    closed = surplus(known | held("10.0.0.1", 26), LIMITS, 1001.0)
    assert closed == {("10.0.0.1", 1): "client"}
    closed = surplus(held("10.0.0.1", 20, caller="web") | held("10.0.0.2", 20, caller="web"), LIMITS, 1001.0)
    assert set(closed.values()) == {"client"}
    assert len(closed) == 15


def test_the_addresses_of_an_ipv6_network_are_one_client() -> None:
    many = {(f"2001:db8::{at:x}", 1): Connection(1000.0) for at in range(30)}
    assert len(surplus(many, LIMITS, 1001.0)) == 5


def test_unused_and_idle_connections() -> None:
    unused = held("10.0.0.1", 1) | held("10.0.0.2", 1, used_at=1000.0) | held("10.0.0.3", 1, calls=1)
    assert surplus(unused, LIMITS, 1021.0) == {}
    assert surplus(unused, LIMITS, 1340.0) == {("10.0.0.1", 1): "idle", ("10.0.0.2", 1): "idle"}
    crowded = ConnectionLimits(total=5, per_client=5, first_call_s=20.0, idle_s=300.0)
    assert surplus(unused, crowded, 1019.0) == {}
    assert surplus(unused, crowded, 1021.0) == {("10.0.0.1", 1): "unused"}


def test_a_full_port_closes_connections_of_the_clients_that_hold_most() -> None:
    few = {peer: each for at in range(20) for peer, each in held(f"10.0.1.{at}", 1).items()}
    closed = surplus(
        held("10.0.0.1", 25) | held("10.0.0.2", 25) | held("10.0.0.3", 25) | few,
        ConnectionLimits(100, 90, 20, 300),
        1001.0,
    )
    assert len(closed) == 95 - 80
    assert set(closed.values()) == {"full"}
    assert {host for host, _ in closed} == {"10.0.0.1", "10.0.0.2", "10.0.0.3"}


def test_a_full_port_of_many_addresses_keeps_callers_and_requests() -> None:
    crowd = {peer: each for at in range(80) for peer, each in held(f"10.0.1.{at}", 1).items()}
    known = {peer: each for at in range(10) for peer, each in held(f"10.0.2.{at}", 1, caller=f"c{at}").items()}
    working = {peer: each for at in range(10) for peer, each in held(f"10.0.3.{at}", 1, calls=1).items()}
    closed = surplus(crowd | known | working, LIMITS, 1001.0)
    assert len(closed) == 20
    assert closed.keys() <= crowd.keys()


def test_sockets_of_other_ports_are_left_alone() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as first,
        socket.create_server(("::1", 0), family=socket.AF_INET6) as other,
    ):
        port, other_port = first.getsockname()[1], other.getsockname()[1]
        guard = ConnectionGuard(ConnectionLimits(100, 1, 20, 300))
        with (
            socket.create_connection(("127.0.0.1", port)) as one,
            socket.create_connection(("127.0.0.1", port)) as two,
            socket.create_connection(("::1", other_port)) as third,
        ):
            accepted = [first.accept()[0], first.accept()[0], other.accept()[0]]
            closed = guard.sweep(port)
            assert list(closed.values()) == ["client"]
            left = one if one.getsockname()[:2] not in closed else two
            gone = two if left is one else one
            gone.settimeout(10)
            assert gone.recv(1) == b""
            for connection, end in zip((left, third), (None, accepted[2]), strict=True):
                end = end or next(each for each in accepted if each.getpeername() == connection.getsockname())
                end.sendall(b"x")
                connection.settimeout(10)
                assert connection.recv(1) == b"x"
            for each in accepted:
                each.close()


async def test_a_client_that_hoards_connections_keeps_no_one_out(
    start: fakes.Start, engine: fakes.FakeEngine, callers: fakes.CallersFile
) -> None:
    service = await start(engine, callers_file=callers.path, max_connections=60, max_connections_per_client=12)
    async with AsyncHiragClient(service.address, token="web-token") as before, Connections(service.address) as hoard:
        await before.describe()
        await hoard.open(150)
        async with asyncio.timeout(30):
            while hoard.alive > 12:
                await asyncio.sleep(0.05)
            await before.describe()
            await _eventually_described(service.address)


async def test_connections_without_a_request_are_closed_when_there_are_many(
    start: fakes.Start, engine: fakes.FakeEngine
) -> None:
    service = await start(engine, first_call_s=0.3, max_connections=10, max_connections_per_client=10)
    async with AsyncHiragClient(service.address) as client, Connections(service.address) as idle:
        await client.describe()
        await idle.open(4)
        await asyncio.sleep(1.5)  # three sweeps
        assert idle.alive == 4
        await idle.open(3)
        async with asyncio.timeout(30):
            while idle.alive > 4:
                await asyncio.sleep(0.05)
        await client.describe()


async def test_idle_connections_are_closed(start: fakes.Start, engine: fakes.FakeEngine) -> None:
    service = await start(engine, max_connection_idle_s=0.3)
    async with AsyncHiragClient(service.address) as client, Connections(service.address) as idle:
        await client.describe()
        await idle.open(5)
        async with asyncio.timeout(30):
            while idle.alive:
                await asyncio.sleep(0.05)
        await client.describe()


async def test_a_refused_caller_gains_nothing_by_its_requests(
    start: fakes.Start, engine: fakes.FakeEngine, callers: fakes.CallersFile
) -> None:
    service = await start(engine, callers_file=callers.path, max_connections_per_client=3)
    asked = wire.request("DescribeIndex", 1, b"")
    async with Connections(service.address, spoken=asked) as connections:
        await connections.open(8)
        async with asyncio.timeout(30):
            while connections.alive > 3 or connections.ended_calls < 3:
                await asyncio.sleep(0.05)


async def _eventually_described(address: str) -> None:
    """Ask over a new connection until it is answered: at first the port may be full."""
    while True:
        try:
            async with AsyncHiragClient(address, token="web-token") as client:
                await client.describe()
                return
        except ServiceError:
            await asyncio.sleep(0.05)


@contextmanager
def limit_of_files(count: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (count, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_the_limit_of_open_files_is_raised_and_checked(caplog: pytest.LogCaptureFixture) -> None:
    with limit_of_files(1000), caplog.at_level(logging.WARNING):
        assert descriptors.allowed_connections(100) == 100
        assert not caplog.records
        assert descriptors.allowed_connections(4096) == 1000 - descriptors.RESERVE
        assert "instead of 4096" in caplog.text
        assert descriptors.allowed_connections(4096, reserved=200) == 800 - descriptors.RESERVE
        assert descriptors.raise_descriptor_limit() > 1000
    with limit_of_files(210), pytest.raises(ConfigError, match="limit of open files is 210"):
        descriptors.allowed_connections(4096)
