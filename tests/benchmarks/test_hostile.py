"""Hostile messages are reproducible by a seed, and their frames are well formed where they are meant to be."""

from __future__ import annotations

import os

import numpy as np
import pytest
from google.protobuf.message import DecodeError

from benchmarks import wire
from benchmarks.hostile import Hostile
from benchmarks.hostile_clients import make_connections, make_messages, unread_calls
from benchmarks.processes import memory_of, open_files, threads
from hirag_dist.wire._pb import query_pb2 as pb


@pytest.mark.parametrize(
    ("value", "bits", "expected"),
    [(10, 5, b"\x0a"), (1337, 5, b"\x1f\x9a\x0a"), (42, 8, b"\x2a")],  # RFC 7541, appendix C.1
)
def test_numbers_of_header_blocks(value: int, bits: int, expected: bytes) -> None:
    assert wire.integer(value, bits) == expected


def test_frames_say_their_length_kind_flags_and_stream() -> None:
    assert wire.frame(wire.DATA, wire.END_STREAM, 5, b"abc") == b"\x00\x00\x03\x00\x01\x00\x00\x00\x05abc"


def test_a_call_that_is_not_read_is_a_request_in_full() -> None:
    data = unread_calls("Retrieve", 2, np.ones(3, np.float32))
    kinds, streams, bodies = [], [], []
    while data:
        size = int.from_bytes(data[:3], "big")
        kinds.append(data[3])
        streams.append(int.from_bytes(data[5:9], "big"))
        bodies.append(data[9 : 9 + size])
        data = data[9 + size :]
    assert kinds == [wire.HEADERS, wire.DATA] * 2
    assert streams == [1, 1, 3, 3]
    assert list(pb.RetrieveRequest.FromString(bodies[1][5:]).query.vector) == [1, 1, 1]


def test_a_seed_gives_the_same_messages_and_frames() -> None:
    assert make_messages(4, 200, seed=1) == make_messages(4, 200, seed=1) != make_messages(4, 200, seed=2)
    assert make_connections(300, seed=1) == make_connections(300, seed=1)
    assert sum(frames for frames, _ in make_connections(300, seed=1)) >= 300


def test_some_messages_can_be_read_and_some_cannot() -> None:
    readable = 0
    messages = list(Hostile(4, seed=3, largest=4096).messages(300))
    for message in messages:
        try:
            pb.RetrieveRequest.FromString(message.data)
        except DecodeError:
            continue
        readable += 1
    assert 60 < readable < 240
    assert {message.kind for message in messages} >= {"random", "mutated", "nested", "odd_vector", "odd_numbers"}


def test_a_process_is_seen_to_take_memory_and_files() -> None:
    before, files = memory_of(os.getpid()), open_files(os.getpid())
    held = np.ones(8_000_000, np.float64)
    with open(os.devnull) as file:
        after = memory_of(os.getpid())
        assert open_files(os.getpid()) == files + 1
        assert after.private - before.private == pytest.approx(64, abs=8)
        assert after.proportional <= after.private + after.shared
        assert not file.closed
    assert len(held)
    assert threads(os.getpid()) >= 1
