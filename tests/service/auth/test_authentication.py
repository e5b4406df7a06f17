"""Authentication by tokens and certificates, and renewed files, over real connections."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from hirag_dist.composition.logs import TextFormatter
from hirag_dist.wire._pb import query_pb2 as pb
from hirag_dist.wire._pb import query_pb2_grpc
from tests.service import fakes

REQUEST = pb.RetrieveRequest(query=pb.Query(question="q"))
NAMES = ("ca.pem", "server.pem", "server.key", "client.pem", "client.key")


async def refused(call: Any) -> grpc.StatusCode:
    """The status of a call that must fail."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        _ = [part async for part in call] if hasattr(call, "__aiter__") else await call
    return caught.value.code()


async def test_tokens(
    start: fakes.Start, engine: fakes.FakeEngine, callers: fakes.CallersFile, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "hirag_dist.service.access_log")
    caplog.handler.setFormatter(TextFormatter())
    service = await start(engine, callers_file=callers.path)
    async with fakes.channel(service) as channel:
        stub = query_pb2_grpc.QueryServiceStub(channel)
        reflect = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo
        reflect_v1 = channel.stream_stream(
            "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
            request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
            response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
        )
        listing = [reflection_pb2.ServerReflectionRequest(list_services="")]
        good = fakes.token("web")
        assert (await stub.Retrieve(REQUEST, metadata=good)).retrieval.local
        parts = [part async for part in stub.Answer(pb.AnswerRequest(query=REQUEST.query), metadata=good)]
        assert parts[-1].answer.text
        (listed,) = [reply async for reply in reflect(iter(listing), metadata=good)]
        assert [reply async for reply in reflect_v1(iter(listing), metadata=good)] == [listed]
        assert "caller=web" in caplog.text
        caplog.clear()
        for bad, reason in ((fakes.token("wrong"), "unknown_token"), ((), "no_token")):
            for call in (
                stub.Retrieve(REQUEST, metadata=bad),
                stub.DescribeIndex(pb.DescribeIndexRequest(), metadata=bad),
                stub.Answer(pb.AnswerRequest(query=REQUEST.query), metadata=bad),
                stub.RetrieveStream(pb.RetrieveStreamRequest(query=REQUEST.query), metadata=bad),
                reflect(iter(listing), metadata=bad),
                reflect_v1(iter(listing), metadata=bad),
            ):
                assert await refused(call) is grpc.StatusCode.UNAUTHENTICATED
            assert caplog.text.count("code=UNAUTHENTICATED") == 6
            assert caplog.text.count(f"reason={reason}") == 6
            caplog.clear()
        health = health_pb2_grpc.HealthStub(channel)
        assert (await health.Check(health_pb2.HealthCheckRequest())).status == health_pb2.HealthCheckResponse.SERVING
    assert len(engine.queries) == 2


@pytest.mark.parametrize(
    "header",
    ["web-token", "Basic web-token", "Bearer ", "Bearer web-token2", "Bearer " + "x" * 5000],
)
async def test_what_is_no_token(
    start: fakes.Start, engine: fakes.FakeEngine, callers: fakes.CallersFile, header: str
) -> None:
    service = await start(engine, callers_file=callers.path)
    async with fakes.channel(service) as channel:
        call = query_pb2_grpc.QueryServiceStub(channel).Retrieve(REQUEST, metadata=(("authorization", header),))
        assert await refused(call) is grpc.StatusCode.UNAUTHENTICATED
    assert not engine.queries


async def test_a_caller_sees_by_its_labels(
    start: fakes.Start, engine: fakes.FakeEngine, callers: fakes.CallersFile
) -> None:
    callers.add("some", labels=["public", "team:a"]).add("none")
    service = await start(engine, callers_file=callers.path)
    async with fakes.channel(service) as channel:
        stub = query_pb2_grpc.QueryServiceStub(channel)
        for name in ("web", "some", "none"):
            await stub.Retrieve(REQUEST, metadata=fakes.token(name))
            _ = [part async for part in stub.Answer(pb.AnswerRequest(query=REQUEST.query), metadata=fakes.token(name))]
    held = [None, None, {"public", "team:a"}, {"public", "team:a"}, set(), set()]
    assert [query.reach for query in engine.queries] == held


@pytest.mark.parametrize("labels", [frozenset(), frozenset({"public"}), None])
async def test_where_nobody_is_known_all_hold_the_same_labels(
    start: fakes.Start, engine: fakes.FakeEngine, labels: frozenset[str] | None
) -> None:
    service = await start(engine, anonymous_labels=labels)
    async with fakes.channel(service) as channel:
        await query_pb2_grpc.QueryServiceStub(channel).Retrieve(REQUEST)
    assert [query.reach for query in engine.queries] == [labels]


async def eventually(stub: Any, metadata: Any, wanted: grpc.StatusCode) -> None:
    """Ask until the status is the wanted one; the test's time-out ends it."""
    while True:
        call = stub.DescribeIndex(pb.DescribeIndexRequest(), metadata=metadata)
        if await call.code() is wanted:
            return


def credentials(files: dict[str, str], *names: str) -> grpc.ChannelCredentials:
    """A client's, from authority, key and certificate by their names."""
    return grpc.ssl_channel_credentials(*(Path(files[name]).read_bytes() for name in names))


MUTUAL = ("ca.pem", "client.key", "client.pem")


async def mutual(start: fakes.Start, engine: fakes.FakeEngine, files: dict[str, str], **options: Any) -> Any:
    return await start(
        engine, tls_cert=files["server.pem"], tls_key=files["server.key"], tls_client_ca=files["ca.pem"], **options
    )


async def test_mutual_tls(
    start: fakes.Start, engine: fakes.FakeEngine, certificates: dict[str, str], tmp_path: Path
) -> None:
    service = await mutual(start, engine, certificates)
    async with grpc.aio.secure_channel(service.address, credentials(certificates, *MUTUAL)) as channel:
        assert (await query_pb2_grpc.QueryServiceStub(channel).Retrieve(REQUEST)).retrieval.local
    other = fakes.certificates(tmp_path)
    mixed = other | {"ca.pem": certificates["ca.pem"]}
    for wrong in (
        credentials(certificates, "ca.pem"),  # no certificate
        credentials(mixed, *MUTUAL),  # one of another authority
        credentials(other, *MUTUAL),  # the service is not the one that the client trusts
    ):
        async with grpc.aio.secure_channel(service.address, wrong) as channel:
            call = query_pb2_grpc.QueryServiceStub(channel).Retrieve(REQUEST, timeout=30)
            assert await refused(call) is grpc.StatusCode.UNAVAILABLE
    assert len(engine.queries) == 1


async def test_a_certificate_says_who_calls(
    start: fakes.Start, engine: fakes.FakeEngine, certificates: dict[str, str], callers: fakes.CallersFile
) -> None:
    callers.add("machine", certificates=["client"], labels=["public"])
    service = await mutual(start, engine, certificates, callers_file=callers.path, poll_s=0.01)
    async with grpc.aio.secure_channel(service.address, credentials(certificates, *MUTUAL)) as channel:
        stub = query_pb2_grpc.QueryServiceStub(channel)
        await stub.Retrieve(REQUEST)
        await stub.Retrieve(REQUEST, metadata=fakes.token("web"))  # a token counts before a certificate
        wrong = stub.Retrieve(REQUEST, metadata=fakes.token("wrong"))  # which does not make up for it
        assert await refused(wrong) is grpc.StatusCode.UNAUTHENTICATED
        callers.callers["machine"]["certificates"] = ["another"]
        callers.write()
        await eventually(stub, (), grpc.StatusCode.UNAUTHENTICATED)
    assert [query.reach for query in engine.queries] == [{"public"}, None]


async def test_new_connections_get_renewed_certificates(
    start: fakes.Start, engine: fakes.FakeEngine, certificates: dict[str, str], tmp_path: Path
) -> None:
    used, renewed = tmp_path / "used", tmp_path / "renewed"
    used.mkdir()
    renewed.mkdir()
    for name in NAMES:
        (used / name).write_bytes(Path(certificates[name]).read_bytes())
    after = fakes.certificates(renewed)
    files = {name: str(used / name) for name in NAMES}
    service = await mutual(start, engine, files, poll_s=0.01)
    async with grpc.aio.secure_channel(service.address, credentials(certificates, *MUTUAL)) as before:
        assert (await query_pb2_grpc.QueryServiceStub(before).Retrieve(REQUEST)).retrieval.local
        for name in NAMES:
            os.replace(after[name], used / name)
        while True:  # until a client that trusts the new authority alone gets in, with a certificate of its own from it
            async with grpc.aio.secure_channel(service.address, credentials(files, *MUTUAL)) as channel:
                call = query_pb2_grpc.QueryServiceStub(channel).Retrieve(REQUEST, timeout=30)
                if await call.code() is grpc.StatusCode.OK:
                    break
        async with grpc.aio.secure_channel(service.address, credentials(certificates, *MUTUAL)) as channel:
            call = query_pb2_grpc.QueryServiceStub(channel).Retrieve(REQUEST, timeout=30)
            assert await refused(call) is grpc.StatusCode.UNAVAILABLE
        assert (await query_pb2_grpc.QueryServiceStub(before).Retrieve(REQUEST)).retrieval.local
