"""The service as `serve` runs it: the engine in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from hirag_dist.service.engine import ThreadEngineRunner
from hirag_dist.service.hot_swap import SnapshotSwapper
from hirag_dist.types import Query
from hirag_dist.wire import convert as convert
from hirag_dist.wire._pb import query_pb2 as pb
from hirag_dist.wire._pb import query_pb2_grpc
from tests.service import fakes

QUERY = pb.Query(question="Who lit the lamp?")
REQUEST = pb.RetrieveRequest(query=QUERY)


@pytest.fixture
def engine() -> Any:
    """An engine that notes its threads, and can work until it is cancelled."""

    class Engine(fakes.FakeEngine):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.threads: set[str] = set()
            self.endless = False
            self.begun, self.stopped = threading.Event(), threading.Event()

        async def _work(self, query: Query, deadline_s: float | None) -> None:
            self.threads.add(threading.current_thread().name)
            if self.endless:
                self.begun.set()
                try:
                    await asyncio.Event().wait()
                finally:
                    self.stopped.set()
            await super()._work(query, deadline_s)

        async def close(self) -> None:
            self.threads.add(threading.current_thread().name)
            await super().close()

    return Engine()


@pytest.fixture
def swapper(engine: fakes.FakeEngine) -> Iterator[SnapshotSwapper]:
    async def opened() -> Any:
        return engine

    yield SnapshotSwapper(opened, lambda: "s1", poll_s=3600, runner=ThreadEngineRunner())
    assert engine.closed.is_set()
    assert engine.threads == {"engine"}


@pytest.fixture
async def stub(swapper: SnapshotSwapper, start: fakes.Start) -> Any:
    service = await start(swapper)
    async with fakes.channel(service) as channel:
        yield query_pb2_grpc.QueryServiceStub(channel)


async def test_every_call(stub: Any, engine: fakes.FakeEngine) -> None:
    response = await stub.Retrieve(REQUEST)
    assert convert.retrieval_from_proto(response.retrieval) == engine.whole
    levels = [message.level async for message in stub.RetrieveStream(pb.RetrieveStreamRequest(query=QUERY))]
    assert levels == [pb.LEVEL_LOCAL, pb.LEVEL_GLOBAL, pb.LEVEL_BRIDGE, pb.LEVEL_SOURCES, pb.LEVEL_DONE]
    parts = [message async for message in stub.Answer(pb.AnswerRequest(query=QUERY))]
    assert [part.WhichOneof("part") for part in parts] == ["retrieval", "text", "text", "answer"]
    assert convert.answer_from_proto(parts[-1].answer, response and engine.whole) == fakes.ANSWER
