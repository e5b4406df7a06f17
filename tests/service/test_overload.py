"""More than the service takes, more than a caller may, and callers who do not read."""

from __future__ import annotations

import asyncio
import re
import time
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2
from grpc_status import rpc_status

from hirag_dist.client.common import service_stub
from hirag_dist.service import request_gate
from hirag_dist.wire._pb import query_pb2 as pb
from tests.service import fakes

QUERY = pb.Query(question="q")
REQUEST = pb.RetrieveRequest(query=QUERY)
EXHAUSTED = grpc.StatusCode.RESOURCE_EXHAUSTED


async def details(call: Any, *kinds: Any) -> list[Any]:
    """Return the details of a status, one of each kind."""
    found = [kind() for kind in kinds]
    packed = (await rpc_status.aio.from_call(call)).details
    assert all(any(each.Unpack(detail) for each in packed) for detail in found)
    return found


async def test_a_place_is_not_kept_while_a_model_answers_or_a_stream_is_read(
    start: fakes.Start, engine: fakes.FakeEngine
) -> None:
    stub = (await start(engine, max_concurrent_retrievals=1)).stub
    engine.gate = asyncio.Event()
    answers = [stub.Answer(pb.AnswerRequest(query=QUERY)) for _ in range(3)]
    for answer in answers:  # each has its retrieval, and waits for its model
        assert (await answer.read()).retrieval.local
    engine.gate.set()
    streams = [stub.RetrieveStream(pb.RetrieveStreamRequest(query=QUERY)) for _ in range(3)]
    for stream in streams:
        await stream.read()  # and no more
    assert (await stub.Retrieve(REQUEST)).retrieval.local
    for call in (*answers, *streams):
        call.cancel()


async def test_a_caller_has_a_quota(start: fakes.Start, engine: fakes.FakeEngine, callers: fakes.CallersFile) -> None:
    callers.add("few", quota_per_day=2)
    stub = (await start(engine, callers_file=callers.path)).stub
    for _ in range(2):
        await stub.Retrieve(REQUEST, metadata=fakes.token("few"))
    call = stub.Retrieve(REQUEST, metadata=fakes.token("few"))
    assert re.match("RESOURCE_EXHAUSTED: .*few has used its 2 requests of today", await fakes.end_of(call))
    quota, retry, info = await details(
        call, error_details_pb2.QuotaFailure, error_details_pb2.RetryInfo, error_details_pb2.ErrorInfo
    )
    assert quota.violations[0].subject == "caller:few"
    assert 0 < retry.retry_delay.ToTimedelta().total_seconds() <= 86_400
    assert info.metadata["reason"] == "quota"
    assert (await stub.Retrieve(REQUEST, metadata=fakes.token("web"))).retrieval.local
    assert len(engine.queries) == 3


async def test_who_asks_again_at_once_does_not_take_the_time_of_all(
    start: fakes.Start, engine: fakes.FakeEngine
) -> None:
    stub = (await start(engine, max_concurrent_requests=1)).stub
    first = await engine.held(stub.Retrieve(REQUEST))
    started = time.perf_counter()
    assert await stub.Retrieve(REQUEST).code() is EXHAUSTED
    assert time.perf_counter() - started >= 0.1
    engine.gate.set()
    await first


async def test_a_stream_that_is_not_read_is_dropped_and_holds_up_nobody(start: fakes.Start) -> None:
    engine = fakes.FakeEngine(whole=fakes.replace(fakes.WHOLE, context="c" * 8_000_000))
    service = await start(engine, max_concurrent_requests=1, send_timeout_s=0.3)
    options = [("grpc.http2.lookahead_bytes", 64_000), ("grpc.http2.bdp_probe", 0), ("grpc.enable_retries", 0)]
    options.append(("grpc.max_receive_message_length", -1))
    async with grpc.aio.insecure_channel(service.address, options=options) as channel:
        stub = service_stub(channel)
        lazy = stub.RetrieveStream(pb.RetrieveStreamRequest(query=QUERY))
        await anext(aiter(lazy))
        request = pb.RetrieveRequest(query=QUERY, omit_context=True)
        while await service.stub.Retrieve(request).code() is not grpc.StatusCode.OK:  # until the lazy one is out
            pass
        assert re.match("ABORTED: nothing of the reply was read for", await fakes.end_of(lazy))


async def test_a_question_has_a_longest_length(start: fakes.Start, engine: fakes.FakeEngine) -> None:
    call = (await start(engine)).stub.Retrieve(pb.RetrieveRequest(query=pb.Query(question="q" * 40_000)))
    assert re.match("INVALID_ARGUMENT: .*at most 32768 characters, got 40000", await fakes.end_of(call))
    (bad,) = await details(call, error_details_pb2.BadRequest)
    assert bad.field_violations[0].field == "query.question"
    assert not engine.queries


async def test_nothing_of_a_strangers_request_is_read(
    start: fakes.Start, engine: fakes.FakeEngine, callers: fakes.CallersFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[bytes] = []
    monkeypatch.setattr(request_gate, "read_request", lambda method, raw: read.append(raw) or REQUEST)
    stub = (await start(engine, callers_file=callers.path)).stub
    assert await stub.Retrieve(REQUEST).code() is grpc.StatusCode.UNAUTHENTICATED
    assert not read
    assert (await stub.Retrieve(REQUEST, metadata=fakes.token("web"))).retrieval.local
    assert read == [REQUEST.SerializeToString()]


async def test_a_worker_without_a_snapshot_charges_nobody(
    start: fakes.Start, engine: fakes.FakeEngine, callers: fakes.CallersFile
) -> None:
    callers.add("few", quota_per_day=1)
    service = await start(engine, load=False, callers_file=callers.path)
    for _ in range(3):
        code = await service.stub.Retrieve(REQUEST, metadata=fakes.token("few")).code()
        assert code is grpc.StatusCode.UNAVAILABLE
    await service.load()
    assert (await service.stub.Retrieve(REQUEST, metadata=fakes.token("few"))).retrieval.local
