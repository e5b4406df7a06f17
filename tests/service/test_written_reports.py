"""Reports that answers have written: a right in the callers file, the caller whose budget pays."""

from __future__ import annotations

import grpc
import pytest

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
