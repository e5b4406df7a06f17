"""Reports that answers have written: a right in the callers file, the caller whose budget pays, hits of communities."""

from __future__ import annotations

from pathlib import Path

import grpc
import pytest

from hirag_dist.storage.report_hits import read_hits
from hirag_dist.wire._pb import query_pb2 as pb
from hirag_dist.wire._pb import query_pb2_grpc
from tests.service import fakes

WRITING = pb.Query(question="Who lit the lamp?", write_reports=True)


async def test_a_caller_needs_the_right_and_pays(
    start: fakes.Start, engine: fakes.FakeEngine, callers: fakes.CallersFile
) -> None:
    callers.add("shop", labels="all", write_reports=True)
    service = await start(engine, callers_file=callers.path)
    async with fakes.channel(service) as channel:
        stub = query_pb2_grpc.QueryServiceStub(channel)
        with pytest.raises(grpc.aio.AioRpcError, match="may not have reports written") as refused:
            [_ async for _ in stub.Answer(pb.AnswerRequest(query=WRITING), metadata=fakes.token("web"))]
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert not engine.queries
        [_ async for _ in stub.Answer(pb.AnswerRequest(query=WRITING), metadata=fakes.token("shop"))]
    assert [(query.write_reports, query.caller) for query in engine.queries] == [(True, "shop")]


async def test_hits_of_communities_are_written_when_the_service_stops(
    start: fakes.Start, engine: fakes.FakeEngine, tmp_path: Path
) -> None:
    service = await start(engine, hits_file=str(tmp_path / "hits.jsonl"))
    async with fakes.channel(service) as channel:
        stub = query_pb2_grpc.QueryServiceStub(channel)
        for _ in range(2):
            await stub.Retrieve(pb.RetrieveRequest(query=pb.Query(question="Who lit the lamp?")))
    await service.server.stop(1.0)
    ids = [item.community_id for item in engine.whole.communities]
    assert read_hits(tmp_path / "hits.jsonl") == dict.fromkeys(ids, 2)
