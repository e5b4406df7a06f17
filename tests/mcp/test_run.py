"""The server over streamable HTTP and stdio: callers, hosts and origins, by a client that speaks bare JSON-RPC too."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from hirag_dist.api.index import AsyncIndex
from hirag_dist.errors import ConfigError, SnapshotNotFound
from hirag_dist.llm.usage import UsageMeter
from hirag_dist.mcp import Caller, IndexBackend, run
from hirag_dist.mcp.run import HttpOptions
from hirag_dist.mcp.tools import ServerSettings, make_server
from tests.leaky_builds import HIDDEN, NOBODY, Indexes, corpus
from tests.service import fakes

ACCEPT = {"Accept": "application/json, text/event-stream"}
ROOT = Path(__file__).parents[2]
Call = Callable[..., Awaitable[dict[str, Any]]]  # of a tool


class Wire:
    """A client of the handshake protocol that knows HTTP and JSON only."""

    def __init__(self, session: aiohttp.ClientSession, url: str, **headers: str) -> None:
        self._session = session
        self._url = url
        self.headers = ACCEPT | headers
        self._number = 0

    async def begin(self) -> dict[str, Any]:
        client = {"name": "wire", "version": "1"}
        options = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client}
        result = await self.ask("initialize", **options)
        self.headers["MCP-Protocol-Version"] = str(result["protocolVersion"])
        await self._post({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return result

    async def ask(self, method: str, **params: Any) -> dict[str, Any]:
        self._number += 1
        status, replies = await self._post({"jsonrpc": "2.0", "id": self._number, "method": method, "params": params})
        assert status == 200, replies
        (reply,) = [reply for reply in replies if reply.get("id") == self._number]
        return reply["result"]

    async def tool(self, name: str, **arguments: Any) -> dict[str, Any]:
        return await self.ask("tools/call", name=name, arguments=arguments)

    async def status(self, method: str = "tools/list") -> int:
        return (await self._post({"jsonrpc": "2.0", "id": 99, "method": method}))[0]

    async def _post(self, message: dict[str, Any]) -> tuple[int, list[Any]]:
        async with self._session.post(self._url, json=message, headers=self.headers) as response:
            text = await response.text()
            if own := response.headers.get("Mcp-Session-Id"):
                self.headers["Mcp-Session-Id"] = own
        if response.content_type == "text/event-stream":
            return response.status, [
                json.loads(line[5:]) for line in text.splitlines() if line.startswith("data:") and line[5:].strip()
            ]
        return response.status, [json.loads(text)] if text and response.content_type == "application/json" else []


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


@pytest.fixture
async def labelled(made: Indexes, start: fakes.Start, backend_of: Any, serve: Any, tmp_path: Path) -> str:
    """URL of a server over a service whose callers visitor and agent see different documents."""
    callers = fakes.CallersFile(tmp_path / "callers.yaml").add("visitor", labels=[]).add("agent", labels=["secret"])
    service = await start(made(corpus(1)), callers_file=callers.path)
    return str(await serve(backend_of(service.address)))


def of_kind(reply: dict[str, Any], kind: str) -> list[str]:
    return [each["id"] for each in reply["structuredContent"]["references"] if each["kind"] == kind]


async def replies(call: Call) -> dict[str, Any]:
    """Return the replies of all tools about public words."""
    found = {
        "search": await call("search", question="wordaa wordbb", top_n=40),
        "answer": await call("answer", question="wordaa wordbb"),
        "describe_index": await call("describe_index"),
        "entity": await call("entity", entity="wordaa", context_tokens=8000),
    }
    found["path"] = await call("path_between", source="wordaa", target=of_kind(found["entity"], "entity")[1])
    found["document"] = await call("document", document_id=of_kind(found["search"], "chunk")[0])
    for community in of_kind(found["entity"], "community")[:1]:
        found["report"] = await call("report", community_id=community)
    assert not [reply for reply in found.values() if reply.get("isError")]
    return found


async def check_reach(owner: Call, visitor: Call) -> None:
    """Check that the tools show a visitor nothing of the hidden documents, which they show their owner."""
    whole, seen = await replies(owner), await replies(visitor)
    assert "report" in whole
    assert HIDDEN in str(whole)
    assert HIDDEN not in str(seen)
    counts = [found["describe_index"]["structuredContent"]["counts"]["documents"] for found in (whole, seen)]
    assert counts == [30, 20]
    hidden, absent = [await visitor("entity", entity=word) for word in (f"{HIDDEN}aa", "yyyaa")]
    assert hidden["isError"]
    assert str(hidden).replace(f"{HIDDEN}aa", "yyyaa") == str(absent)
    assert not (await owner("entity", entity=f"{HIDDEN}aa")).get("isError")


async def test_each_caller_sees_what_its_token_shows(labelled: str, session: aiohttp.ClientSession) -> None:
    agent, visitor = [Wire(session, labelled, Authorization=f"Bearer {name}-token") for name in ("agent", "visitor")]
    for wire in (agent, visitor):
        assert (await wire.begin())["serverInfo"]["name"] == "hirag-dist"
    await check_reach(agent.tool, visitor.tool)


async def test_a_session_belongs_to_its_token(labelled: str, session: aiohttp.ClientSession) -> None:
    agent = Wire(session, labelled, Authorization="Bearer agent-token")
    await agent.begin()
    assert await agent.status() == 200
    for other in ("Bearer visitor-token", ""):
        agent.headers["Authorization"] = other
        assert await agent.status() == 404


async def test_only_callers_of_the_service_begin_sessions(
    labelled: str, session: aiohttp.ClientSession, backend_of: Any, serve: Any
) -> None:
    for headers in ({"Authorization": "Bearer made-up"}, {"Authorization": "Bearer no\xa0token"}, {}):
        assert await Wire(session, labelled, **headers).status("initialize") == 401
    assert await Wire(session, await serve(backend_of("127.0.0.1:1"))).status("initialize") == 503


async def test_other_hosts_and_origins(backend: Any, serve: Any, session: aiohttp.ClientSession) -> None:
    url = await serve(backend)
    port = url.split(":")[2].split("/")[0]
    for headers, status in (
        ({}, 200),
        ({"Host": f"localhost:{port}"}, 200),
        ({"Origin": f"http://localhost:{port}"}, 200),
        ({"Host": "localhost:1"}, 421),
        ({"Host": f"evil.example:{port}"}, 421),
        ({"Host": f"localhost:{port}.evil.example"}, 421),
        ({"Origin": "http://localhost:3000"}, 403),
        ({"Origin": f"http://localhost:{port}@evil.example"}, 403),
        ({"Origin": f"https://localhost:{port}"}, 403),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
    ):
        wire = Wire(session, url, **headers)
        if status == 200:
            await wire.begin()
        assert await wire.status() == status, headers


async def test_beyond_loopback_every_request_has_a_token() -> None:
    reached: list[Any] = []
    replies: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        reached.append(scope)

    async def send(message: Any) -> None:
        replies.append(message)

    async def admit(token: str | None) -> None:
        assert token == "own-token"

    guarded = run._CallerMiddleware(app, admit, required=True)
    scope = {"type": "http", "method": "POST", "path": "/mcp", "headers": []}
    await guarded(scope, None, send)
    assert not reached
    assert replies[0]["status"] == 401
    assert (b"www-authenticate", b"Bearer") in replies[0]["headers"]
    await guarded(scope | {"headers": [(b"authorization", b"Bearer own-token")]}, None, send)
    assert "own-token" not in str(vars(reached[0]["user"].access_token)), "the SDK logs users"


async def test_the_sdk_over_http(backend: Any, serve: Any, engine: fakes.FakeEngine) -> None:
    url = await serve(backend)
    for mode in ("auto", "legacy"):
        async with Client(streamable_http_client(url), mode=mode) as client:
            seen: list[float] = []

            async def report(done: float, total: float | None, message: str | None) -> None:
                seen.append(done)  # noqa: B023 - awaited before the next client

            result = await client.call_tool("answer", {"question": "q"}, progress_callback=report)
            assert result.structured_content["citations"]
            assert seen == sorted(set(seen))
            assert len(seen) >= 3
            calling = await engine.held(client.call_tool("search", {"question": "q"}))
            calling.cancel()
            await asyncio.wait_for(engine.cancelled.wait(), 20)
            await asyncio.gather(calling, return_exceptions=True)
            engine.gate = None


@pytest.mark.integration
async def test_stdio(start: fakes.Start) -> None:
    """A process, by lines of JSON: nothing but the protocol is on stdout, and it ends with its client or a signal."""
    address = (await start(fakes.FakeEngine())).address
    command = [sys.executable, "-m", "hirag_dist", "mcp", "--server", address]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), asyncio.subprocess.PIPE)
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    for end in ("eof", "signal"):
        process = await asyncio.create_subprocess_exec(*command, env=environment, **pipes)
        assert process.stderr is not None
        client = {"name": "wire", "version": "1"}
        begin = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client}
        for message in (
            {"id": 1, "method": "initialize", "params": begin},
            {"method": "notifications/initialized"},
            {"id": 2, "method": "tools/call", "params": {"name": "entity", "arguments": {"entity": "灯台守"}}},
        ):
            process.stdin.write(json.dumps({"jsonrpc": "2.0"} | message).encode() + b"\n")
        process.stdin.write(b"this is no JSON\n")
        replies = {}
        while 2 not in replies:
            reply = json.loads(await asyncio.wait_for(process.stdout.readline(), 60))
            replies[reply.get("id")] = reply
        assert replies[1]["result"]["capabilities"]["tools"] == {"listChanged": False}
        assert replies[2]["result"]["structuredContent"]["entity_id"] == "e2"
        if end == "eof":
            process.stdin.close()
        else:
            process.send_signal(signal.SIGINT)
        rest, said = await asyncio.wait_for(process.communicate(), 60)
        assert process.returncode == 0
        assert all(json.loads(line)["jsonrpc"] == "2.0" for line in rest.splitlines())
        assert b"Traceback" not in said


@asynccontextmanager
async def tools_of(made: Indexes, reach: frozenset[str] | None) -> AsyncIterator[Call]:
    """Call the tools of a server that reads an index itself."""
    opening: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    opening.set_result(AsyncIndex(made(corpus(1)), "index", UsageMeter()))
    async with Client(make_server(IndexBackend(opening, reach), ServerSettings())) as client:
        assert "list_indexes" not in {tool.name for tool in (await client.list_tools()).tools}

        async def call(name: str, **arguments: Any) -> dict[str, Any]:
            return dict((await client.call_tool(name, arguments)).model_dump(by_alias=True))

        yield call


async def test_tools_read_the_index_within_a_reach(made: Indexes) -> None:
    async with tools_of(made, None) as owner, tools_of(made, NOBODY) as visitor:
        await check_reach(owner, visitor)
        other = await visitor("describe_index", index="other")
        assert other["_meta"]["hirag-dist/reason"] == "INVALID_QUERY"


async def test_calls_wait_for_an_index_that_is_being_opened() -> None:
    opening: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    backend = IndexBackend(opening)
    with pytest.raises(TimeoutError):
        await backend.describe(Caller(timeout_s=0.01))
    assert not opening.done()
    await backend.close()
    assert opening.cancelled()


async def test_an_index_that_cannot_be_opened() -> None:
    opening: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    opening.set_exception(SnapshotNotFound("holds no index"))
    backend = IndexBackend(opening)
    async with Client(make_server(backend, ServerSettings())) as client:
        result = await client.call_tool("describe_index", {})
    assert (result.is_error, result.content[0].text) == (True, "holds no index")
    await backend.close()


TLS = {"tls_cert": "a.pem", "tls_key": "b.pem"}


@pytest.mark.parametrize("listen", ["127.0.0.1:0", "localhost:8765", "[::1]:1", "127.8.8.8:1"])
def test_loopback_needs_nothing(listen: str) -> None:
    assert not HttpOptions(listen).is_open
    assert HttpOptions(listen, ("mcp.example.org",), identifies=True).is_open, "through a proxy"


@pytest.mark.parametrize(
    ("listen", "given", "message"),
    [
        ("8765", {}, "must be HOST:PORT"),
        ("127.0.0.1:1", {"tls_cert": "a.pem"}, "both --tls-cert and --tls-key"),
        ("0.0.0.0:1", TLS, "opens the whole index"),
        ("10.0.0.7:1", {"identifies": True, "names": ("a",)}, "in the clear"),
        ("[::]:1", {"identifies": True, **TLS}, "--http-name"),
    ],
)
def test_addresses_that_are_refused(listen: str, given: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        HttpOptions(listen, **given)  # type: ignore[arg-type]


def test_exact_names_and_ports_lead_to_the_server() -> None:
    names = ("mcp.example.org", "other.example.org:8443")
    options = HttpOptions("0.0.0.0:9000", names, identifies=True, **TLS)
    security = options.security(9000)
    assert options.is_open
    assert {host for host in security.allowed_hosts if "example" in host} == {
        "mcp.example.org",
        "mcp.example.org:443",
        "mcp.example.org:9000",
        "other.example.org:8443",
    }
    assert "https://mcp.example.org" in security.allowed_origins
    assert all(origin.startswith("https://") for origin in security.allowed_origins)
    assert not any("*" in each for each in (*security.allowed_hosts, *security.allowed_origins))
