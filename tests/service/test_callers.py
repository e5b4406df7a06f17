"""The callers file: what may stand in it, and how its next version is taken up."""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from hirag_dist.client.common import service_stub
from hirag_dist.composition.logs import TextFormatter
from hirag_dist.errors import ConfigError
from hirag_dist.service.callers import Caller, Callers, NoCallers, is_name, read_callers
from hirag_dist.service.file_watch import Lapse, ReloadingValue
from hirag_dist.wire._pb import query_pb2 as pb
from tests.service import fakes

REQUEST = pb.RetrieveRequest(query=pb.Query(question="q"))
UNAUTHENTICATED, UNAVAILABLE = grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.UNAVAILABLE


async def refused(call: Any) -> bool:
    """Whether a call ends because nobody knows who makes it."""
    return (await fakes.end_of(call)).startswith("UNAUTHENTICATED")


async def test_tokens(
    start: fakes.Start, engine: fakes.FakeEngine, callers: fakes.CallersFile, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "hirag_dist.service.access_log")
    caplog.handler.setFormatter(TextFormatter())
    service = await start(engine, callers_file=callers.path)
    channel, stub = service.channel, service.stub
    good = fakes.token("web")
    assert (await stub.Retrieve(REQUEST, metadata=good)).retrieval.local
    parts = [part async for part in stub.Answer(pb.AnswerRequest(query=REQUEST.query), metadata=good)]
    assert parts[-1].answer.text
    (listed,) = [reply async for reply in fakes.list_services(channel, metadata=good)]
    assert [reply async for reply in fakes.list_services(channel, "v1", metadata=good)] == [listed]
    assert "caller=web" in caplog.text
    caplog.clear()
    for bad, reason in ((fakes.token("wrong"), "unknown_token"), ((), "no_token")):
        for call in (
            stub.Retrieve(REQUEST, metadata=bad),
            stub.DescribeIndex(pb.DescribeIndexRequest(), metadata=bad),
            stub.Answer(pb.AnswerRequest(query=REQUEST.query), metadata=bad),
            stub.RetrieveStream(pb.RetrieveStreamRequest(query=REQUEST.query), metadata=bad),
            fakes.list_services(channel, metadata=bad),
            fakes.list_services(channel, "v1", metadata=bad),
        ):
            assert await refused(call)
        assert caplog.text.count("code=UNAUTHENTICATED") == 6
        assert caplog.text.count(f"reason={reason}") == 6
        caplog.clear()
    for header, reason in (
        ("web-token", "no_token"),
        ("Basic web-token", "no_token"),
        ("Bearer", "no_token"),
        ("Bearer ", "no_token"),
        ("Bearer web-token2", "unknown_token"),
        ("Bearer " + "x" * 5000, "unknown_token"),
    ):
        assert await refused(stub.Retrieve(REQUEST, metadata=(("authorization", header),)))
        assert f"reason={reason}" in caplog.text
        assert "caller=" not in caplog.text
        caplog.clear()
    health = health_pb2_grpc.HealthStub(channel)
    assert (await health.Check(health_pb2.HealthCheckRequest())).status == health_pb2.HealthCheckResponse.SERVING
    assert len(engine.queries) == 2


async def test_a_caller_sees_by_its_labels(
    start: fakes.Start, engine: fakes.FakeEngine, callers: fakes.CallersFile
) -> None:
    """Its labels go with every request; that nothing hidden shows then is held by `test_leaks`."""
    callers.add("some", labels=["public", "team:a"]).add("none")
    stub = (await start(engine, callers_file=callers.path, map_reduce=True)).stub
    for name in ("web", "some", "none"):
        token = fakes.token(name)
        await stub.Retrieve(REQUEST, metadata=token)
        stream = stub.RetrieveStream(pb.RetrieveStreamRequest(query=REQUEST.query), metadata=token)
        _ = [part async for part in stream]
        for mode in (pb.MODE_HIRAG, pb.MODE_GRAPHRAG_GLOBAL):
            request = pb.AnswerRequest(query=pb.Query(question="q", mode=mode))
            _ = [part async for part in stub.Answer(request, metadata=token)]
        await stub.DescribeIndex(pb.DescribeIndexRequest(), metadata=token)
    held = [None, {"public", "team:a"}, set()]
    assert [query.reach for query in engine.queries] == [each for each in held for _ in range(4)]
    assert engine.described_to == held


@pytest.mark.parametrize("labels", [frozenset(), frozenset({"public"}), None])
async def test_where_nobody_is_known_all_hold_the_same_labels(
    start: fakes.Start, engine: fakes.FakeEngine, labels: frozenset[str] | None
) -> None:
    await (await start(engine, anonymous_labels=labels)).stub.Retrieve(REQUEST)
    assert [query.reach for query in engine.queries] == [labels]


async def eventually(stub: Any, metadata: Any, wanted: grpc.StatusCode) -> None:
    """Ask until the status is the wanted one; the test's time-out ends it."""
    while True:
        call = stub.DescribeIndex(pb.DescribeIndexRequest(), metadata=metadata)
        if await call.code() is wanted:
            return


MUTUAL = ("ca.pem", "client.key", "client.pem")


async def mutual(start: fakes.Start, engine: fakes.FakeEngine, files: dict[str, str], **options: Any) -> Any:
    return await start(
        engine, tls_cert=files["server.pem"], tls_key=files["server.key"], tls_client_ca=files["ca.pem"], **options
    )


@asynccontextmanager
async def over_tls(service: fakes.Service, files: dict[str, str], *names: str) -> AsyncIterator[Any]:
    """Ask as a client with authority, key and certificate by their names."""
    credentials = grpc.ssl_channel_credentials(*(Path(files[name]).read_bytes() for name in names or MUTUAL))
    async with grpc.aio.secure_channel(service.address, credentials) as channel:
        yield service_stub(channel)


async def test_mutual_tls(
    start: fakes.Start, engine: fakes.FakeEngine, certificates: dict[str, str], tmp_path: Path
) -> None:
    service = await mutual(start, engine, certificates)
    async with over_tls(service, certificates) as stub:
        assert (await stub.Retrieve(REQUEST)).retrieval.local
    other = fakes.certificates(tmp_path)
    mixed = other | {"ca.pem": certificates["ca.pem"]}
    for wrong in (
        over_tls(service, certificates, "ca.pem"),  # no certificate
        over_tls(service, mixed),  # one of another authority
        over_tls(service, other),  # the service is not the one that the client trusts
    ):
        async with wrong as stub:
            assert await stub.Retrieve(REQUEST, timeout=30).code() is UNAVAILABLE
    assert len(engine.queries) == 1


async def test_a_certificate_says_who_calls(
    start: fakes.Start, engine: fakes.FakeEngine, certificates: dict[str, str], callers: fakes.CallersFile
) -> None:
    callers.add("machine", certificates=["client"], labels=["public"])
    service = await mutual(start, engine, certificates, callers_file=callers.path, poll_s=0.01)
    async with over_tls(service, certificates) as stub:
        await stub.Retrieve(REQUEST)
        await stub.Retrieve(REQUEST, metadata=fakes.token("web"))  # a token counts before a certificate
        assert await refused(stub.Retrieve(REQUEST, metadata=fakes.token("wrong")))  # which does not make up for it
        callers.callers["machine"]["certificates"] = ["another"]
        callers.write()
        await eventually(stub, (), UNAUTHENTICATED)
    assert [query.reach for query in engine.queries] == [{"public"}, None]


async def test_new_connections_get_renewed_certificates(
    start: fakes.Start, engine: fakes.FakeEngine, certificates: dict[str, str], tmp_path: Path
) -> None:
    names = [Path(path).name for path in certificates.values()]
    used, renewed = tmp_path / "used", tmp_path / "renewed"
    shutil.copytree(Path(certificates["ca.pem"]).parent, used)
    renewed.mkdir()
    fakes.certificates(renewed)
    files = {name: str(used / name) for name in names}
    service = await mutual(start, engine, files, poll_s=0.01)
    async with over_tls(service, certificates) as before:
        assert (await before.Retrieve(REQUEST)).retrieval.local
        for name in names:
            os.replace(renewed / name, used / name)
        renewal = False
        while not renewal:  # until a client that trusts the new authority alone gets in, with a certificate from it
            async with over_tls(service, files) as stub:
                renewal = await stub.Retrieve(REQUEST, timeout=30).code() is grpc.StatusCode.OK
        async with over_tls(service, certificates) as stub:
            assert await stub.Retrieve(REQUEST, timeout=30).code() is UNAVAILABLE
        assert (await before.Retrieve(REQUEST)).retrieval.local


OPEN, OTHER = (hashlib.sha256(text).hexdigest() for text in (b"open sesame", b"other"))
NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "callers.yaml"


def read(path: Path, text: str) -> Callers:
    path.write_text(text)
    return read_callers(str(path))


def test_all_that_a_caller_may_have(path: Path) -> None:
    callers = read(
        path,
        f"""
callers:
  web:
    tokens:
      - sha256: "{OPEN.upper()}"
        expires: 2026-12-31T00:00:00+01:00
      - sha256: "{OTHER}"
        expires: "2027-12-31T00:00:00Z"
    labels: [public, "team:a"]
    rate: {{per_second: 5, burst: 10}}
    quota_per_day: 1000
    max_concurrent: 4
    indexes: [acme, "team-*"]
  ops:
    certificates: [ops.example]
    labels: all
    rate: {{per_second: 0.5}}
""",
    )
    web = Caller("web", frozenset({"public", "team:a"}), 5.0, 10.0, 1000, 4, ("acme", "team-*"))
    assert callers.tokens == {
        bytes.fromhex(OPEN): (web, datetime(2026, 12, 30, 23, tzinfo=UTC)),
        bytes.fromhex(OTHER): (web, datetime(2027, 12, 31, tzinfo=UTC)),
    }
    ops = Caller("ops", None, 0.5, 1.0, None, None, ())  # a burst below one request would let nothing through
    assert callers.certificates == {"ops.example": ops}
    assert callers.next_expiry(NOW) == datetime(2026, 12, 30, 23, tzinfo=UTC)
    assert callers.next_expiry(datetime(2027, 6, 1, tzinfo=UTC)) == datetime(2027, 12, 31, tzinfo=UTC)
    assert callers.next_expiry(datetime(2028, 6, 1, tzinfo=UTC)) is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("callers: {}", "has no callers"),
        ("callers: {a: {labels: all}}", "a has neither tokens nor certificates; `hirag-dist serve token a` makes"),
        ("callers: {a: {tokens: [{sha256: secret}]}}", "tokens.0.sha256: give the SHA-256 of the token as 64"),
        ("callers: {a: {certificates: [x]}, a: {certificates: [y]}}", "a occurs twice in line 1"),
        ("callers: {a: {certificates: [x], labels: 7}}", "callers.a.labels: give a list of labels, or the word all$"),
        ("callers: {a: {certificates: [x], rat: 7}}", "unknown key callers.a.rat; a caller has tokens, certificates,"),
        ("callers: {a: {certificates: [x], rate: {per_second: 0}}}", "rate.per_second: .*greater than 0"),
        ("callers: {a: {certificates: [x]}, b: {certificates: [x]}}", "a and b both have certificate 'x'"),
        ("callers: {'a b': {certificates: [x]}}", "'a b' is not a valid caller name"),
        ("a: [", "is not YAML: .* in line 1, column 5"),
        (
            f"callers: {{a: {{tokens: [{{sha256: '{OPEN}', expires: 2027-01-01T00:00:00}}]}}}}",
            "give a time with its zone",
        ),
        (
            f"callers: {{a: {{tokens: [{{sha256: '{OPEN}', expires: 2027-02-30T00:00:00Z}}]}}}}",
            "a value that cannot be read .*day",
        ),
        (
            f"callers: {{a: {{tokens: [{{sha256: '{OPEN}'}}]}}, b: {{tokens: [{{sha256: '{OPEN}'}}]}}}}",
            "a and b have the same token",
        ),
    ],
)
def test_a_wrong_file(path: Path, text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        read(path, text)
    assert str(path) in str(caught.value)
    assert "secret" not in str(caught.value)  # what was put where the hash belongs may be the token itself


@pytest.mark.parametrize(
    ("token", "known", "good"),
    [("open sesame", True, True), ("other", True, False), ("open sesam", False, False), ("\ud800", False, False)],
)
def test_whose_token(token: str, known: bool, good: bool) -> None:
    web = Caller("web")
    callers = Callers({bytes.fromhex(OPEN): (web, NOW + timedelta(seconds=1)), bytes.fromhex(OTHER): (web, NOW)})
    assert callers.of_token(token, NOW) == (web if known else None, good)


def test_whose_certificate() -> None:
    web, ops = Caller("web"), Caller("ops")
    callers = Callers(certificates={"web.example": web, "web.internal": web, "ops.example": ops})
    assert callers.of_certificate(["CN", "web.example"]) is web
    assert callers.of_certificate(["web.example", "web.internal"]) is web
    assert callers.of_certificate(["CN"]) is None
    assert callers.of_certificate(["web.example", "ops.example"]) is None  # it would be a guess


def test_what_is_no_name() -> None:
    assert not [name for name in ("", "a b", "a\nb", "-a", "a" * 65, "ä", "a=b") if is_name(name)]


def test_a_file_is_read_again_when_it_changes(path: Path) -> None:
    path.write_text("one")
    value = ReloadingValue([str(path)], path.read_text)
    assert not value.refresh()
    path.write_text("another")
    assert value.refresh()
    assert value.value == "another"
    assert not value.refresh()
    replacement = path.with_suffix(".new")  # of the same size and time
    replacement.write_text("renamed")
    os.utime(replacement, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns))
    replacement.replace(path)
    assert value.refresh()
    assert value.value == "renamed"


def test_a_link_that_moves_is_a_change(tmp_path: Path) -> None:
    for version in ("v1", "v2"):  # as Kubernetes mounts a secret: file → ..data/file, ..data → a folder by its time
        (tmp_path / version).mkdir()
        (tmp_path / version / "file").write_text(version)
        os.utime(tmp_path / version / "file", (1, 1))
    (tmp_path / "..data").symlink_to("v1")
    (tmp_path / "file").symlink_to("..data/file")
    value = ReloadingValue([str(tmp_path / "file")], (tmp_path / "file").read_text)
    assert value.value == "v1"
    (tmp_path / "..next").symlink_to("v2")
    (tmp_path / "..next").replace(tmp_path / "..data")
    assert value.refresh()
    assert value.value == "v2"


def test_a_broken_version_leaves_the_old_one_and_is_logged_once(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    faults: list[Exception] = []

    def load() -> str:
        if faults:
            raise faults[0]
        return path.read_text()

    path.write_text("first")
    value = ReloadingValue([str(path)], load)
    for fault in (ConfigError("it is wrong"), ZeroDivisionError("whatever it is")):
        caplog.clear()
        faults[:] = [fault]
        path.write_text(f"{value.value}, then {fault}")
        assert [value.refresh(), value.refresh(), value.value] == [False, False, "first"]
        (record,) = caplog.records
        assert re.match(f".*{fault}.*; what was read before stays in force", record.getMessage())
    faults.clear()
    assert value.refresh()
    assert value.value == path.read_text()


@pytest.mark.parametrize("gone", [None, "callers:\n"])
def test_a_file_without_callers_refuses_all_of_them_after_a_while(
    path: Path, gone: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    path.write_text("callers: {a: {certificates: [x]}}")
    now = [0.0]
    lapse = Lapse(NoCallers, Callers(), 60.0, "every caller is refused")
    value = ReloadingValue([str(path)], lambda: read_callers(str(path)), lapse=lapse, clock=lambda: now[0])
    path.unlink() if gone is None else path.write_text(gone)
    assert not value.refresh()
    assert value.failed
    now[0] = 59.0
    assert not value.refresh()
    assert len(value.value) == 1
    assert "stays in force for 60 s" in caplog.text
    now[0] = 60.0
    assert value.refresh()
    assert len(value.value) == 0
    assert "every caller is refused" in caplog.text
    now[0] = 100.0
    assert not value.refresh()
    assert len(caplog.records) == 2, "each is logged once"
    path.write_text("callers: {a: {certificates: [x]}}")
    assert value.refresh()
    assert len(value.value) == 1
    assert not value.failed


async def test_a_deleted_callers_file_refuses_all_callers_until_it_is_back(
    start: fakes.Start, engine: fakes.FakeEngine, callers: fakes.CallersFile
) -> None:
    service = await start(engine, callers_file=callers.path, callers_grace_s=0.2, poll_s=0.05)
    stub = service.stub
    async with asyncio.timeout(60):
        await eventually(stub, fakes.token("web"), grpc.StatusCode.OK)
        Path(callers.path).unlink()
        await eventually(stub, fakes.token("web"), UNAUTHENTICATED)
        callers.write()
        await eventually(stub, fakes.token("web"), grpc.StatusCode.OK)
