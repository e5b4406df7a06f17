"""The RPCs over a real channel."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from hirag_dist import errors
from hirag_dist.retrieval.search import MODES
from hirag_dist.types import MAP_REDUCE, Retrieval
from hirag_dist.wire import convert as convert
from hirag_dist.wire._pb import query_pb2 as pb
from hirag_dist.wire.records import MODE_NAMES, record_of
from tests.service import fakes

QUERY = pb.Query(question="Who lit the lamp?", top_n=5, vector=[0.5, 0.25, 0.0, 1.0])


@pytest.fixture
async def stub(start: fakes.Start, engine: fakes.FakeEngine) -> Any:
    return (await start(engine)).stub


async def test_a_stream_sends_each_level_before_the_next_is_ready(stub: Any, engine: fakes.FakeEngine) -> None:
    engine.gate = asyncio.Event()
    call = stub.RetrieveStream(pb.RetrieveStreamRequest(query=QUERY))
    first = await anext(aiter(call))
    assert first.level == pb.LEVEL_LOCAL
    engine.gate.set()
    rest = [message async for message in call]
    assert [message.level for message in rest] == [pb.LEVEL_GLOBAL, pb.LEVEL_BRIDGE, pb.LEVEL_SOURCES, pb.LEVEL_DONE]
    assert record_of(Retrieval, rest[-1].retrieval) == engine.whole


@pytest.mark.parametrize("allowed", [False, True])
async def test_answers_that_cost_a_call_for_each_part_are_given_and_told_where_that_is_allowed(
    start: fakes.Start, engine: fakes.FakeEngine, allowed: bool
) -> None:
    stub = (await start(engine, map_reduce=allowed)).stub
    described = await stub.DescribeIndex(pb.DescribeIndexRequest())
    assert {MODE_NAMES[mode] for mode in described.modes} == {*MODES, *(MAP_REDUCE if allowed else ())}
    answer = stub.Answer(pb.AnswerRequest(query=pb.Query(question="q", mode=pb.MODE_GRAPHRAG_GLOBAL)))
    assert re.match("OK" if allowed else r"INVALID_ARGUMENT: .*service\.map_reduce", await fakes.end_of(answer))
    assert [query.mode for query in engine.queries] == (["graphrag-global"] if allowed else [])


LOOKUPS = {
    "GetEntity": pb.GetEntityRequest(entity="e1"),
    "FindPath": pb.FindPathRequest(source="e1", target="e2"),
    "GetCommunity": pb.GetCommunityRequest(community_id="c1"),
    "GetDocument": pb.GetDocumentRequest(document_id="d1"),
}


async def test_look_ups_have_the_defaults_of_the_server(stub: Any, engine: fakes.FakeEngine) -> None:
    for method, request in LOOKUPS.items():
        await getattr(stub, method)(request)
    assert [most for *_, most in engine.lookups] == [
        {"max_relations": 20, "max_sources": 10},
        {},
        {"max_members": 100},
        {"start": 0, "max_chars": 100_000},
    ]


@pytest.mark.parametrize("method", LOOKUPS)
async def test_look_ups_pass_the_same_checks_as_retrievals(
    start: fakes.Start, engine: fakes.FakeEngine, callers: fakes.CallersFile, method: str
) -> None:
    callers.add("reader", labels=["a"], quota_per_day=2)
    stub = (await start(engine, callers_file=callers.path)).stub
    good = LOOKUPS[method]
    blank, labels = type(good)(), type(good)(labels=["x"] * 65)
    labels.MergeFrom(good)

    async def code(caller: str = "web", request: Any = good, **options: Any) -> str:
        call = getattr(stub, method)(request, metadata=fakes.token(caller), **options)
        return (await fakes.end_of(call)).partition(":")[0]

    assert await code("stranger") == "UNAUTHENTICATED"
    assert [await code(request=bad) for bad in (blank, labels)] == ["INVALID_ARGUMENT"] * 2
    assert engine.lookups == []
    assert [await code("reader") for _ in range(3)] == ["OK", "OK", "RESOURCE_EXHAUSTED"]
    assert {scope.reach for _, _, scope, _ in engine.lookups} == {frozenset({"a"})}
    for error, wanted in ((errors.NotFound("none"), "NOT_FOUND"), (KeyError("x"), "INTERNAL")):
        engine.error = error
        assert await code() == wanted
    engine.error, engine.gate = None, asyncio.Event()  # never set
    assert await code(timeout=0.3) == "DEADLINE_EXCEEDED"
    assert engine.lookups[-1][2].reach is None


async def test_a_deadline_before_anything_was_found(stub: Any, engine: fakes.FakeEngine) -> None:
    engine.late = fakes.Retrieval("q", "hirag", "s1", partial=("local", "global"))
    engine.gate = asyncio.Event()
    call = stub.Retrieve(pb.RetrieveRequest(query=QUERY), timeout=1)
    assert re.match("DEADLINE_EXCEEDED: .*local, global", await fakes.end_of(call))


@pytest.mark.parametrize("method", ["Retrieve", "Answer"])
async def test_a_request_cannot_make_a_model_read_without_end(stub: Any, engine: fakes.FakeEngine, method: str) -> None:
    query = pb.Query(question="Who?", context_tokens=2_000_000_000)
    call = getattr(stub, method)(getattr(pb, f"{method}Request")(query=query))
    assert re.match("INVALID_ARGUMENT: .*context_tokens must be at most 32000", await fakes.end_of(call))
    assert not engine.queries
    await stub.Retrieve(pb.RetrieveRequest(query=pb.Query(question="Who?", context_tokens=32_000)))


async def test_the_inside_of_an_unforeseen_error_stays_in_the_log(
    stub: Any, engine: fakes.FakeEngine, caplog: pytest.LogCaptureFixture
) -> None:
    engine.error = ZeroDivisionError("secret path")
    call = stub.Retrieve(pb.RetrieveRequest(query=QUERY), metadata=(("x-request-id", "r-1"),))
    assert re.match("INTERNAL: .*request id r-1", said := await fakes.end_of(call))
    assert "secret" not in said
    assert "ZeroDivisionError: secret path" in caplog.text
    assert "Unexpected" not in caplog.text  # gRPC's own complaint
