"""HTTP/2 by hand on plain sockets: clients that read nothing, say nothing, or say what no client should."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import Iterator

import numpy as np

from hirag_dist.client.common import SERVICE_NAME

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM, ACK, END_HEADERS = 0x1, 0x1, 0x4
INITIAL_WINDOW_SIZE = 0x4
_OPENINGS = (
    b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(32),  # a TLS hello
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r",
    b"\x00",
    b"",
)


def frame(kind: int, flags: int = 0, stream: int = 0, payload: bytes = b"") -> bytes:
    """Return a frame."""
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def settings(**values: int) -> bytes:
    """Return a SETTINGS frame with what is named: `initial_window`, or nothing."""
    window = values.get("initial_window")
    return frame(SETTINGS, payload=b"" if window is None else struct.pack(">HI", INITIAL_WINDOW_SIZE, window))


def headers(fields: dict[str, str]) -> bytes:
    """Return a block of headers, each spelt out."""
    block = b""
    for name, value in fields.items():
        block += b"\0" + _text(name) + _text(value)
    return block


def request(method: str, stream: int, message: bytes, service: str = SERVICE_NAME) -> bytes:
    """Return the frames of one call."""
    fields = {
        ":method": "POST",
        ":scheme": "http",
        ":path": f"/{service}/{method}",
        ":authority": "localhost",
        "content-type": "application/grpc",
        "te": "trailers",
    }
    body = b"\0" + struct.pack(">I", len(message)) + message
    return frame(HEADERS, END_HEADERS, stream, headers(fields)) + frame(DATA, END_STREAM, stream, body)


class Hostile:
    """Makes hostile sequences of frames by a seed."""

    def __init__(self, seed: int = 0) -> None:
        self._rng = np.random.default_rng(seed)

    def connections(self, count: int) -> Iterator[tuple[int, bytes]]:
        """Yield (frames, bytes) of connections until so many frames were made."""
        made = 0
        while made < count:
            if self._rng.random() < 0.05:
                opening = _OPENINGS[int(self._rng.integers(0, len(_OPENINGS)))]
                yield 1, opening + self._rng.bytes(int(self._rng.integers(0, 200)))
                made += 1
                continue
            frames = [self._frame() for _ in range(int(self._rng.integers(1, 200)))]
            made += len(frames)
            yield len(frames), PREFACE + settings() + b"".join(frames)

    def _frame(self) -> bytes:
        rng = self._rng
        stream = int(rng.choice([0, 1, 3, 2, 1 + 2 * int(rng.integers(0, 1000)), 2**31 - 1]))
        kind = int(rng.integers(0, 12))
        if kind == 11:  # a call, and its reset at once
            stream |= 1
            return request("Retrieve", stream, rng.bytes(20)) + frame(RST_STREAM, 0, stream, struct.pack(">I", 8))
        if kind == 10:  # a length that the frame does not have
            return struct.pack(">I", int(rng.integers(0, 1 << 24)))[1:] + rng.bytes(6)
        if kind == SETTINGS and rng.random() < 0.5:
            pairs = [(int(rng.integers(0, 12)), int(rng.integers(0, 1 << 32))) for _ in range(int(rng.integers(0, 20)))]
            return frame(SETTINGS, 0, 0, b"".join(struct.pack(">HI", *pair) for pair in pairs))
        if kind == PING and rng.random() < 0.5:
            return frame(PING, 0, 0, rng.bytes(8))
        if kind == WINDOW_UPDATE and rng.random() < 0.5:
            return frame(WINDOW_UPDATE, 0, stream, struct.pack(">I", int(rng.integers(0, 1 << 31))))
        return frame(kind, int(rng.integers(0, 256)), stream, rng.bytes(int(rng.integers(0, 300))))


async def throw(host: str, port: int, data: bytes, linger_s: float = 0.2) -> None:
    """Send bytes, read what comes for a moment, and hang up; the service may hang up first."""
    with contextlib.suppress(OSError):
        reader, writer = await asyncio.open_connection(host, port)
        try:
            writer.write(data)
            await writer.drain()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(reader.read(1 << 16), linger_s)
        finally:
            writer.transport.abort()


def _text(value: str) -> bytes:
    data = value.encode()
    return integer(len(data), 7) + data


def integer(value: int, bits: int) -> bytes:
    """Return HPACK's form of a number in so many bits of its first byte."""
    limit = (1 << bits) - 1
    if value < limit:
        return bytes([value])
    out = bytearray([limit])
    value -= limit
    while value >= 128:
        out.append(value % 128 + 128)
        value //= 128
    out.append(value)
    return bytes(out)
