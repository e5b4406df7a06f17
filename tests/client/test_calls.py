"""Both clients against a real service."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hirag_dist import errors
from hirag_dist.client import AsyncHiragClient, ClientOptions, Unauthenticated
from hirag_dist.client.common import CallArguments, TokenFile
from hirag_dist.errors import ConfigError, InvalidQuery, NotFound, RateLimited, ServiceError
from hirag_dist.types import AccessScope, Query
from hirag_dist.wire import error_status
from tests.client.conftest import both_clients
from tests.service import fakes


@pytest.fixture
async def client(start: fakes.Start, engine: fakes.FakeEngine, connect: Any) -> Any:
    return connect((await start(engine)).address)


async def test_retrieve_returns_what_the_engine_gave(client: Any, engine: fakes.FakeEngine) -> None:
    assert await client.call("retrieve", "Who lit the lamp?") == engine.whole
    query = Query("q", mode="flat", top_n=3, top_m=2, top_c=1, community_level="leaf", context_tokens=200)
    for vector in (np.array([[1.0, -2.0, 0.0, 4.0]], dtype=np.float32), [1, -2.0, 0.0, 4.0]):
        await client.call("retrieve", replace(query, vector=vector))
        assert engine.queries[-1].vector.tolist() == [1.0, -2.0, 0.0, 4.0]
        assert replace(engine.queries[-1], vector=None, reach=None) == query
    short = await client.call("retrieve", "q", omit_context=True, omit_source_text=True)
    assert short == replace(engine.whole, context="", sources=(replace(engine.whole.sources[0], text=""),))


@both_clients
async def test_streams_and_the_answer(client: Any, engine: fakes.FakeEngine) -> None:
    levels = await client.collect("retrieve_stream", "q")
    assert [level for level, _ in levels] == ["local", "global", "bridge", "sources", "done"]
    assert levels[-1][1] == engine.whole
    assert await client.collect("answer_stream", "q") == [engine.whole, *fakes.PIECES, fakes.ANSWER]
    assert await client.call("answer", "q") == fakes.ANSWER
    assert await client.call("describe") == engine.info
    await client.call("describe", filter="draft", as_of="2024")
    assert engine.described_with[-2:] == [("", ""), ("draft", "2024")]


async def test_look_ups(client: Any, engine: fakes.FakeEngine) -> None:
    assert await client.call("get_entity", "Wärterin", max_relations=3, labels=("a", "b")) == fakes.ENTITY
    assert await client.call("find_path", "e1", "e2") == fakes.PATH
    assert await client.call("get_community", "c1", max_members=4) == fakes.COMMUNITY
    assert (
        await client.call("get_document", "d1", start=3, max_chars=9, labels=["a"], filter="x = 1", as_of="2024")
        == fakes.DOCUMENT
    )
    nothing = frozenset[str]()
    assert engine.lookups == [
        ("get_entity", ("Wärterin",), AccessScope(("a", "b"), reach=nothing), {"max_relations": 3, "max_sources": 10}),
        ("find_path", ("e1", "e2"), AccessScope(reach=nothing), {}),
        ("get_community", ("c1",), AccessScope(reach=nothing), {"max_members": 4}),
        ("get_document", ("d1",), AccessScope(("a",), "x = 1", "2024", nothing), {"start": 3, "max_chars": 9}),
    ]
    with pytest.raises(InvalidQuery, match="valid Unicode"):
        await client.call("get_entity", "half \ud83d")
    with pytest.raises(InvalidQuery, match="out of range"):
        await client.call("get_document", "d1", start=2**70)
    with pytest.raises(TypeError, match="did you mean labels"):
        await client.call("get_entity", "x", label=["a"])
    engine.error = NotFound("entity: none; the closest names: 'x'")
    with pytest.raises(NotFound, match="closest names: 'x'"):
        await client.call("get_entity", "y")


async def test_what_will_not_pass_is_raised_here_and_not_asked_again(client: Any, engine: fakes.FakeEngine) -> None:
    """One error for all: `test_error_status` sends each of them."""
    engine.error = errors.ModelUnavailable("the oven is cold")
    for attempt in (client.call("retrieve", "q"), client.call("answer", "q"), client.collect("retrieve_stream", "q")):
        with pytest.raises(errors.ModelUnavailable, match=r"^the oven is cold$"):
            await attempt
    assert len(engine.queries) == 3


async def test_an_error_names_its_call_in_the_log_and_when_to_ask_again(client: Any, engine: fakes.FakeEngine) -> None:
    engine.error = RateLimited("wait", 77.0)
    with pytest.raises(RateLimited) as caught:
        await client.call("retrieve", "q", request_id="job-7.3", timeout_s=5)  # no retry fits in it
    error = caught.value
    assert (error.request_id, error.retry_after_s, error.retry_delay_s) == ("job-7.3", 77.0, 77.0)
    assert len(engine.queries) == 1
    engine.error = InvalidQuery("no")
    with pytest.raises(InvalidQuery) as other:
        await client.call("answer", "q")
    assert other.value.request_id
    assert other.value.retry_delay_s is None


async def test_a_moment_of_trouble_is_retried(client: Any, engine: fakes.FakeEngine) -> None:
    asked = 0

    async def retrieve(query: Query, *, deadline_s: float | None = None) -> Any:
        nonlocal asked
        asked += 1
        if asked == 1:
            raise RateLimited("wait", 0.01)
        return engine.whole

    engine.retrieve = retrieve
    assert await client.call("retrieve", "q") == engine.whole
    assert asked == 2


@pytest.mark.parametrize(
    ("wrong", "error", "words"),
    [
        ("", InvalidQuery, "question must not be"),
        (Query("q", mode="fast"), InvalidQuery, "fast"),
        (None, TypeError, "expected a text or a Query, got NoneType"),
    ],
)
async def test_a_wrong_query_does_not_leave_the_client(
    client: Any, engine: fakes.FakeEngine, wrong: Any, error: type[Exception], words: str
) -> None:
    for ask in (client.call("retrieve", wrong), client.call("answer", wrong), client.collect("answer_stream", wrong)):
        with pytest.raises(error, match=words):
            await ask
    assert not engine.queries


async def test_nobody_there(connect: Any, free_address: str) -> None:
    target = free_address
    client = connect(target, retries=False)
    words = f"^no service answers at {target}; start one with `hirag-dist serve`"
    with pytest.raises(ServiceError, match=words):
        await client.call("describe")
    with pytest.raises(ServiceError, match=words):
        await client.collect("answer_stream", "q")
    with pytest.raises(ServiceError, match=f"no service answers at {target} within 0.2 s"):
        await client.call("wait_ready", 0.2)


async def test_another_service_there(connect: Any) -> None:
    import grpc

    server = grpc.aio.server()
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    with pytest.raises(ServiceError, match="is no hirag-dist service"):
        await connect(f"127.0.0.1:{port}").call("describe")
    await server.stop(0)


async def test_a_deadline(client: Any, engine: fakes.FakeEngine) -> None:
    await client.call("describe")  # connected, so that the deadline is that of the retrieval alone
    engine.gate = asyncio.Event()
    partial = await client.call("retrieve", "q", timeout_s=0.8)
    assert partial.partial == ("global", "bridge", "sources")
    assert partial.local == engine.whole.local
    with pytest.raises(error_status.DeadlinePassed, match=r"more time|timeout_s"):
        await client.collect("retrieve_stream", "q", timeout_s=0.3)


@both_clients
async def test_closing_a_stream_stops_the_work(client: Any, engine: fakes.FakeEngine) -> None:
    engine.gate = asyncio.Event()
    assert (await client.first("answer_stream", "q")) == engine.whole
    if engine.started.is_set():  # else the call was over before the engine went on
        await engine.cancelled.wait()


async def test_waiting_until_a_snapshot_is_loaded(start: fakes.Start, engine: fakes.FakeEngine, connect: Any) -> None:
    service = await start(engine, load=False)
    client = connect(service.address)
    with pytest.raises(ServiceError, match=r"had no snapshot loaded within 0\.2 s"):
        await client.call("wait_ready", 0.2)
    waiting = asyncio.create_task(client.call("wait_ready", 20))
    await service.load()
    await waiting
    assert (await client.call("describe")).snapshot_id == "s1"


async def test_mutual_tls(
    start: fakes.Start, engine: fakes.FakeEngine, connect: Any, certificates: dict[str, str]
) -> None:
    files = {"tls_cert": "server.pem", "tls_key": "server.key", "tls_client_ca": "ca.pem"}
    address = (await start(engine, **{name: certificates[file] for name, file in files.items()})).address
    ca, own = certificates["ca.pem"], {"certificate": certificates["client.pem"], "key": certificates["client.key"]}
    assert (await connect(address, root_certificates=ca, **own).call("retrieve", "q")) == engine.whole
    named = connect(address, root_certificates=ca, server_name="localhost", **own)
    assert (await named.call("retrieve", "q")) == engine.whole
    with pytest.raises(ServiceError, match=r"server_name \(--server-name\) be a name in it"):
        await connect(address, root_certificates=ca, server_name="elsewhere", retries=False, **own).call("describe")
    for without in ({}, {"root_certificates": ca}):
        with pytest.raises(ServiceError, match=r"\(--ca\) or tls \(--tls\), .* certificate and key \(--cert, --key\)"):
            await connect(address, retries=False, **without).call("describe")


async def test_a_rolling_restart_loses_no_request(start: fakes.Start) -> None:
    engines = [fakes.FakeEngine(f"s{number}") for number in range(4)]
    services = [await start(engines[0], reuse_port=True)]
    target, over, seen = services[0].address, asyncio.Event(), set()

    async def ask(client: AsyncHiragClient) -> None:
        while not over.is_set():
            seen.add((await client.retrieve("q")).snapshot_id)

    async with AsyncHiragClient(target) as one, AsyncHiragClient(target) as other:
        callers = [asyncio.create_task(ask(client)) for client in (one, other) for _ in range(4)]
        for engine in engines[1:]:
            services.append(await start(engine, reuse_port=True, listen=target))
            await services[-2].server.stop(30)
            await engine.started.wait()
        over.set()
        await asyncio.gather(*callers)
    assert seen >= {"s1", "s2", "s3"}


async def test_unknown_keyword_arguments_are_errors(client: Any, engine: fakes.FakeEngine, connect: Any) -> None:
    with pytest.raises(TypeError, match="unknown keyword argument 'timeout'; did you mean timeout_s"):
        await client.call("retrieve", "q", timeout=5)
    with pytest.raises(
        TypeError, match="unknown keyword argument 'deadline'; a call takes timeout_s, request_id, token"
    ):
        await client.collect("answer_stream", "q", deadline=5)
    for name, value in (("top_n", 3), ("mode", "local")):
        with pytest.raises(TypeError, match=rf"'{name}'; it is a field of Query: Query\(question, {name}=…\)"):
            await client.call("retrieve", "q", **{name: value})
    with pytest.raises(TypeError, match=r"'topn'; did you mean Query\(question, top_n=…\)\?"):
        await client.call("retrieve", "q", topn=3)
    with pytest.raises(TypeError, match="unknown keyword argument 'timeout'; did you mean timeout_s"):
        connect("127.0.0.1:1", timeout=5)
    with pytest.raises(TypeError, match=r"unknown keyword argument 'secret'; .*token"):
        connect("127.0.0.1:1", secret="x")
    assert not engine.queries


async def test_a_token_is_rotated_under_a_client(
    start: fakes.Start, engine: fakes.FakeEngine, connect: Any, tmp_path: Path
) -> None:
    service = await start(engine, callers_file=fakes.CallersFile(tmp_path / "callers.yaml").add("old").add("new").path)
    mine = tmp_path / "token"
    mine.write_text("old-token\n")
    client = connect(service.address, token_file=mine)
    assert await client.call("retrieve", "q") == engine.whole
    mine.write_text("a wrong one\n")
    for ask in (client.call("retrieve", "q"), client.collect("answer_stream", "q")):
        with pytest.raises(Unauthenticated, match="bearer token"):
            await ask
    mine.write_text("new-token\n")
    assert await client.call("retrieve", "q") == engine.whole
    assert (await client.collect("answer_stream", "q"))[0] == engine.whole


async def test_one_client_asks_on_behalf_of_several(
    start: fakes.Start, engine: fakes.FakeEngine, connect: Any, tmp_path: Path
) -> None:
    service = await start(engine, callers_file=fakes.CallersFile(tmp_path / "callers.yaml").add("ada").path)
    client = connect(service.address, token="nobody")
    for name in ("retrieve", "answer"):
        assert await client.call(name, "q", token="ada-token")
        with pytest.raises(Unauthenticated):
            await client.call(name, "q")
    assert (await client.call("describe", token="ada-token")) == engine.info


def test_a_token_file_that_is_gone_for_a_moment_keeps_its_last_token(tmp_path: Path) -> None:
    path, other = tmp_path / "token", tmp_path / "other"
    path.write_text(" one \n")
    held = TokenFile(path)
    path.unlink()
    assert held.token() == "one"
    path.write_text("")
    assert held.token() == "one"
    path.write_text("two")
    assert held.token() == "two"
    other.write_text("new")  # of the same size and time
    os.utime(other, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns))
    other.rename(path)  # as Kubernetes and careful programs do
    assert held.token() == "new"


@pytest.mark.parametrize(("content", "words"), [(b"", "is empty"), (b"\xff\xfe", "is no text"), (b"a\nb", "one line")])
def test_tokens_that_cannot_be_sent(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "token"
    path.write_bytes(content)
    for options, said in (
        ({"token_file": path}, words),
        ({"token_file": tmp_path / "missing"}, "cannot be read: No such file"),
        ({"token_file": path, "token": "a"}, "either token or token_file"),
        ({"token": "a\r\nx-other: b"}, "one line of ASCII"),
    ):
        with pytest.raises(ConfigError, match=said):
            ClientOptions(**options)
    with pytest.raises(ConfigError, match="one line of ASCII"):
        CallArguments(ClientOptions()).of({"token": "Schlüssel"})
    assert "sesame" not in repr(ClientOptions(token="open-sesame"))
