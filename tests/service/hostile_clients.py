"""Clients of `abuse.py` and the tests: they fuzz a service, hold connections, read slowly; others ask properly."""

from __future__ import annotations

import asyncio
import struct
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import grpc
import numpy as np
from numpy.typing import NDArray

from hirag_dist.client import AsyncHiragClient
from hirag_dist.errors import HiragError
from hirag_dist.types import Query, Retrieval
from hirag_dist.wire._pb import query_pb2 as pb
from tests.service import raw_http2 as wire
from tests.service.hostile import Hostile, Message

PATIENCE_S = 20.0
HEALTH = "grpc.health.v1.Health"
_OPENING = 200  # connections that are opened at a time
_A_SOURCE = 20_000  # connections from one loopback address: it has some 28,000 ports


class Probe:
    """A caller who asks properly, and notes whether and how fast the right answer comes.

    Args:
        address: HOST:PORT.
        vector: of a question that the index can answer.
    """

    def __init__(self, address: str, vector: NDArray[np.float32]) -> None:
        self._client = AsyncHiragClient(address, timeout_s=PATIENCE_S)
        self._query = Query("What is known of it?", vector=vector)
        self._right: Retrieval | None = None
        self.ms: list[float] = []
        self.failures: list[str] = []

    async def ask(self) -> None:
        """Ask once. The first answer is the right one."""
        started = time.perf_counter()
        try:
            found = await self._client.retrieve(self._query)
        except HiragError as error:
            self.failures.append(f"{type(error).__name__}: {error}")
            return
        self.ms.append((time.perf_counter() - started) * 1e3)
        self._right = self._right or found
        if (found.local, found.paths, found.context) != (self._right.local, self._right.paths, self._right.context):
            self.failures.append("another answer than before")

    async def ask_for(self, seconds: float, pause_s: float = 0.02) -> None:
        """Ask again and again."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            await self.ask()
            await asyncio.sleep(pause_s)

    def figures(self) -> dict[str, Any]:
        """Return the figures since the last call, and reset them."""
        ms = self.ms or [0.0]
        found = {
            "answered": len(self.ms),
            "failed": len(self.failures),
            "p50_ms": round(float(np.percentile(ms, 50)), 1),
            "p99_ms": round(float(np.percentile(ms, 99)), 1),
            "failures": self.failures[:3],
        }
        self.ms, self.failures = [], []
        return found

    async def close(self) -> None:
        """Close the connection."""
        await self._client.close()


@dataclass
class Fuzzed:
    """Results of hostile messages.

    Attributes:
        codes: how often each status came back, by kind of message.
        hung: calls without an end in time.
        unforeseen: calls that met an error which the service did not foresee.
        undecodable: calls that gRPC itself ended since their bytes are no message.
    """

    messages: int = 0
    frames: int = 0
    codes: dict[str, Counter[str]] = field(default_factory=dict)
    hung: list[str] = field(default_factory=list)
    unforeseen: list[str] = field(default_factory=list)
    undecodable: int = 0


async def fuzz(
    address: str,
    messages: Sequence[Message],
    connections: Sequence[tuple[int, bytes]],
    probe: Probe,
    *,
    in_flight: int = 24,
    patience_s: float = PATIENCE_S,
    every: int = 250,
    look: Callable[[float], None] = lambda share: None,
) -> Fuzzed:
    """Send hostile messages and connections, mixed, with a proper question after every so many.

    Args:
        patience_s: a call that takes longer hangs.
        look: called now and then with the share that is done.
    """
    host, _, port = address.rpartition(":")
    found = Fuzzed()
    channel = grpc.aio.insecure_channel(
        address, options=[("grpc.enable_retries", 0), ("grpc.max_send_message_length", -1)]
    )
    jobs = iter(_mixed(messages, connections))
    total = max(len(messages) + len(connections), 1)
    done = 0

    async def worker() -> None:
        nonlocal done
        for job in jobs:
            if isinstance(job, Message):
                await _send(channel, job, found, patience_s)
                found.messages += 1
            else:
                await wire.throw(host, int(port), job[1])
                found.frames += job[0]
            done += 1
            if done % every == 0:
                await probe.ask()
            if done % max(total // 10, 1) == 0:
                look(done / total)

    try:
        await asyncio.gather(*(worker() for _ in range(in_flight)))
        await probe.ask()
    finally:
        await channel.close()
    return found


def _mixed(messages: Sequence[Message], connections: Sequence[tuple[int, bytes]]) -> list[Any]:
    """Return both, the fewer spread evenly among the more."""
    places = [(at / max(len(items), 1), item) for items in (messages, connections) for at, item in enumerate(items)]
    return [item for _, item in sorted(places, key=lambda place: place[0])]


async def _send(channel: grpc.aio.Channel, message: Message, found: Fuzzed, patience_s: float) -> None:
    watching = message.path.endswith("/Watch")  # it never ends, and is not meant to
    call: Any = channel.unary_stream(message.path)
    timeout = 0.05 if watching else patience_s
    code = "OK"
    try:
        async for _ in call(message.data, timeout=timeout, metadata=message.metadata):
            pass
    except grpc.aio.AioRpcError as error:
        code = error.code().name
        if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED and not watching:
            found.hung.append(f"{message.kind} {message.path[:80]}: {message.data[:80]!r}")
        details = error.details() or ""
        if "DecodeError" in details:
            found.undecodable += 1
        elif "internal error" in details or error.code() is grpc.StatusCode.UNKNOWN:
            found.unforeseen.append(f"{message.kind} {message.path[:80]}: {message.data[:80]!r}: {details[:200]}")
    found.codes.setdefault(message.kind, Counter())[code] += 1


class Connections:
    """Connections that do no more than HTTP/2 asks of them: they acknowledge settings and pings.

    Args:
        address: HOST:PORT.
        window: bytes that the service may send on a stream; 0 means that its answers are never read.
        spoken: what each says once it is open.
        source: address to connect from; empty for several of loopback, as many as the ports take.
        greeted: whether `open` waits until the service has greeted each connection, or closed it.
    """

    def __init__(
        self, address: str, *, window: int = 65_535, spoken: bytes = b"", source: str = "", greeted: bool = True
    ) -> None:
        host, _, port = address.rpartition(":")
        self._host, self._port = host, int(port)
        self._hello = wire.PREFACE + wire.settings(initial_window=window) + spoken
        self._source = source
        self._wait = greeted
        self._open: list[_Connection] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        for each in self._open:
            each.transport.abort()
        await asyncio.sleep(0)

    async def open(self, count: int) -> None:
        """Open so many more, and return when the service has greeted all of them."""
        loop = asyncio.get_running_loop()
        for first in range(len(self._open), len(self._open) + count, _OPENING):
            more = range(first, min(first + _OPENING, len(self._open) + count))
            made = await asyncio.gather(
                *(
                    loop.create_connection(
                        lambda: _Connection(self._hello),
                        self._host,
                        self._port,
                        local_addr=(self._source or f"127.0.0.{1 + at // _A_SOURCE}", 0),
                    )
                    for at in more
                )
            )
            self._open.extend(connection for _, connection in made)
        if not self._wait:
            return
        async with asyncio.timeout(PATIENCE_S):
            for each in self._open:
                await each.greeted.wait()

    @property
    def alive(self) -> int:
        """Number of connections that the service has not closed."""
        return sum(not each.lost for each in self._open)

    @property
    def ended_calls(self) -> int:
        """Number of calls whose end was observed; a call whose answer is never read may end unobserved."""
        return sum(each.ended for each in self._open)


class _Connection(asyncio.Protocol):
    def __init__(self, hello: bytes) -> None:
        self._hello = hello
        self._rest = b""
        self.greeted = asyncio.Event()
        self.lost = False
        self.ended = 0

    def connection_made(self, transport: Any) -> None:
        self.transport: asyncio.Transport = transport
        transport.write(self._hello)

    def data_received(self, data: bytes) -> None:
        data = self._rest + data
        while len(data) >= 9 and len(data) >= 9 + (size := int.from_bytes(data[:3], "big")):
            kind, flags = data[3], data[4]
            if kind == wire.SETTINGS and not flags & wire.ACK:
                self.transport.write(wire.frame(wire.SETTINGS, wire.ACK))
                self.greeted.set()
            elif kind == wire.PING and not flags & wire.ACK:
                self.transport.write(wire.frame(wire.PING, wire.ACK, 0, data[9 : 9 + size]))
            elif kind == wire.RST_STREAM or (kind in (wire.HEADERS, wire.DATA) and flags & wire.END_STREAM):
                self.ended += 1
            data = data[9 + size :]
        self._rest = data

    def connection_lost(self, error: Exception | None) -> None:
        self.lost = True
        self.greeted.set()


def unread_calls(method: str, count: int, vector: NDArray[np.float32]) -> bytes:
    """Return the frames of so many calls on one connection."""
    query = pb.Query(question="What is known of it?", vector=vector.tolist())
    message = pb.RetrieveRequest(query=query).SerializeToString()
    return b"".join(wire.request(method, 1 + 2 * at, message) for at in range(count))


def idle_streams(count: int) -> bytes:
    """Return the frames of so many streams on one connection that end only when the service stops."""
    return b"".join(wire.request("Watch", 1 + 2 * at, b"", HEALTH) for at in range(count))


async def dribble(address: str, count: int, seconds: float) -> int:
    """Have connections send the headers of a call a byte at a time; return how many are still open at the end."""
    host, _, port = address.rpartition(":")
    data = wire.PREFACE + wire.settings() + wire.request("Retrieve", 1, b"")
    until = time.monotonic() + seconds

    async def one() -> bool:
        reader, writer = await asyncio.open_connection(host, int(port))
        try:
            for byte in data:
                if time.monotonic() > until or reader.at_eof():
                    break
                writer.write(struct.pack("B", byte))
                await writer.drain()
                await asyncio.sleep(0.5)
            return not reader.at_eof()
        except OSError:
            return False
        finally:
            writer.transport.abort()

    return sum(await asyncio.gather(*(one() for _ in range(count))))


def make_messages(dim: int, count: int, seed: int, largest: int = 1 << 20) -> list[Message]:
    """Return hostile messages."""
    return list(Hostile(dim, seed, largest).messages(count))


def make_connections(count: int, seed: int) -> list[tuple[int, bytes]]:
    """Return hostile connections with so many frames in all."""
    return list(wire.Hostile(seed).connections(count))
