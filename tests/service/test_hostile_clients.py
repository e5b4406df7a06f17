"""Strangers at the door: hostile messages, frames and connections, against the real engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from benchmarks.generated import generate, questions
from hirag_dist.composition.query import make_engine
from hirag_dist.config.loader import load_config
from hirag_dist.core.prompts.templates import Prompts
from hirag_dist.retrieval.engine import QueryEngine
from hirag_dist.service.hot_swap import SnapshotSwapper
from hirag_dist.storage.snapshot.reader import current_id, open_snapshot
from hirag_dist.storage.store import Store
from hirag_dist.types import FloatMatrix
from tests.service import fakes
from tests.service.hostile_clients import (
    Connections,
    Probe,
    fuzz,
    make_connections,
    make_messages,
    unread_calls,
)

MAX_REQUESTS = 24


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    made = Store(str(tmp_path_factory.mktemp("abused")))
    generate(made, 1000)
    return made


@pytest.fixture(scope="module")
def vector(store: Store) -> FloatMatrix:
    return questions(open_snapshot(store).entity_vectors, 1)[0]


@pytest.fixture
async def service(store: Store, start: fakes.Start) -> Any:
    config = load_config(None, {}, {"vectors.backend": "memory"}).config

    async def opened() -> QueryEngine:
        return make_engine(config, open_snapshot(store), Prompts())

    swapper = SnapshotSwapper(opened, lambda: current_id(store), poll_s=3600)
    return await start(
        swapper,
        max_concurrent_retrievals=2,
        max_queue_wait_s=60,
        max_concurrent_requests=MAX_REQUESTS,
        send_timeout_s=0.5,
    )


@pytest.fixture
async def probe(service: fakes.Service, vector: FloatMatrix) -> AsyncIterator[Probe]:
    asking = Probe(service.address, vector)
    await asking.ask()
    yield asking
    await asking.close()


@pytest.mark.parametrize("seed", [1, 2])
async def test_hostile_messages_end_and_others_are_answered(
    service: fakes.Service, probe: Probe, vector: FloatMatrix, seed: int
) -> None:
    messages = make_messages(len(vector), 500, seed, largest=1 << 17)
    connections = make_connections(500, seed)
    found = await fuzz(service.address, messages, connections, probe, every=50, in_flight=12, patience_s=120)
    assert found.messages == len(messages)
    assert sum(sum(codes.values()) for codes in found.codes.values()) == len(messages)
    assert not found.hung
    assert not found.unforeseen
    assert not probe.failures
    assert len(probe.ms) > 5
    mutated = found.codes["mutated"]
    assert mutated["OK"]  # some get as far as the search
    assert mutated["OK"] < sum(mutated.values())


async def test_idle_connections_hold_nobody_up(service: fakes.Service, probe: Probe) -> None:
    async with Connections(service.address) as connections:
        await connections.open(200)
        for _ in range(5):
            await probe.ask()
        assert connections.alive == 200
    assert not probe.failures


async def test_answers_that_are_never_read_hold_nobody_up(
    service: fakes.Service, probe: Probe, vector: FloatMatrix
) -> None:
    spoken = unread_calls("Retrieve", 30, vector)
    async with Connections(service.address, window=0, spoken=spoken) as connections:
        await connections.open(2)
        for _ in range(10):
            await probe.ask()
        assert connections.alive == 2
    assert not probe.failures


async def test_streams_that_are_never_read_hold_nobody_up_and_are_dropped(
    service: fakes.Service, probe: Probe, vector: FloatMatrix
) -> None:
    """Twice as many streams come as there may be requests: the first ones must make room."""
    spoken = unread_calls("RetrieveStream", 1, vector)
    async with Connections(service.address, window=0, spoken=spoken) as connections:
        await connections.open(MAX_REQUESTS - 2)
        for _ in range(5):
            await probe.ask()
        assert not probe.failures
        await connections.open(MAX_REQUESTS)
        async with asyncio.timeout(20):
            answered = len(probe.ms)
            while len(probe.ms) == answered:
                await probe.ask()
    assert not [failure for failure in probe.failures if not failure.startswith("Overloaded")]
