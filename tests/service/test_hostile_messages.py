"""Messages that no client of hirag_dist sends end with a status, and questions beside them are answered."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import grpc
import numpy as np

from hirag_dist.service.request_gate import SERVICE_NAME
from hirag_dist.wire._pb import query_pb2 as pb
from tests.service import fakes

METHODS = ("Retrieve", "RetrieveStream", "Answer", "DescribeIndex", "ListIndexes", "GetEntity", "FindPath", "Unknown")
TEXTS = ("", "\0", "What?\0'; DROP TABLE entities; --", "\u202eright to left", "e" + "\u0301" * 20_000, "a" * 60_000)
BAD_UTF8 = (b"\xff\xfe\xfd", b"\xc0\x80", b"\xed\xa0\x80", b"ok \xe2\x82")
NUMBERS = (-1, 2**31 - 1, -(2**31), 1000)


def field(data: bytes) -> bytes:
    """Return a length-delimited field 1 of less than 128 bytes."""
    return bytes([1 << 3 | 2, len(data)]) + data


def hostile(count: int, seed: int) -> Iterator[bytes]:
    """Yield random, mutated, nested, wrongly encoded and out-of-range requests."""
    rng = np.random.default_rng(seed)
    for at in range(count):
        query = pb.Query(question="Who was it?", top_n=int(rng.choice(NUMBERS)), mode=int(rng.choice(NUMBERS)))  # type: ignore[arg-type]
        valid = bytearray(pb.RetrieveRequest(query=query).SerializeToString())
        match at % 6:
            case 0:
                yield rng.bytes(int(rng.integers(0, 512)))
            case 1:
                for _ in range(int(rng.integers(1, 8))):
                    valid[int(rng.integers(0, len(valid)))] = int(rng.integers(0, 256))
                yield bytes(valid)
            case 2:
                yield b"\x0b" * int(rng.integers(1, 20_000))  # groups that never end
            case 3:
                yield field(field(BAD_UTF8[at % len(BAD_UTF8)]))
            case 4:
                vector = rng.choice([np.nan, np.inf, 0.0, 3.4e38, 1.0], int(rng.integers(1, 3000)))
                yield pb.RetrieveRequest(query=pb.Query(question="Who?", vector=vector.tolist())).SerializeToString()
            case _:
                yield pb.RetrieveRequest(query=pb.Query(question=TEXTS[at % len(TEXTS)])).SerializeToString()


async def test_hostile_messages_end_with_a_status_and_proper_questions_are_answered(start: fakes.Start) -> None:
    service = await start(fakes.FakeEngine())

    async def status(method: str, data: bytes) -> tuple[grpc.StatusCode, str]:
        call: Any = service.channel.unary_stream(f"/{SERVICE_NAME}/{method}")(data, timeout=60)
        with suppress(grpc.aio.AioRpcError):
            async for _ in call:
                pass
        return await call.code(), await call.details() or ""

    for seed in range(4):
        sent = enumerate(hostile(48, seed))
        ends = await asyncio.gather(*(status(METHODS[at % len(METHODS)], data) for at, data in sent))
        await service.stub.Retrieve(pb.RetrieveRequest(query=pb.Query(question="q")))
        for code, details in ends:
            assert code is not grpc.StatusCode.DEADLINE_EXCEEDED
            assert "DecodeError" in details or code not in (grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL)
