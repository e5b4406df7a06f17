"""The page's server without a browser: who is let in, what is passed on, and what errors become."""

from __future__ import annotations

import asyncio
import json
import shutil
import ssl
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from hirag_dist.errors import InvalidQuery, ModelUnavailable, RateLimited
from hirag_dist.wire.error_status import QuotaExceeded
from tests.service import fakes

pytestmark = pytest.mark.asyncio(loop_scope="module")

Serve = Callable[..., Any]


async def ask(http: aiohttp.ClientSession, url: str, **body: Any) -> tuple[int, list[Any]]:
    """Status, and the objects of the lines."""
    async with http.post(f"{url}api/ask", json={"question": "Who lit the lamp?"} | body) as response:
        return response.status, [json.loads(line) async for line in response.content]


async def test_an_answer_in_lines(serve: Serve, http: Any) -> None:
    served = await serve()
    status, lines = await ask(http, served.url)
    assert status == 200
    assert [line["type"] for line in lines] == ["retrieval", "text", "text", "answer"]
    assert lines[0]["level"] == "done"
    assert lines[0]["retrieval"]["local"][0]["name"] == "Lighthouse"
    assert lines[0]["retrieval"]["context"] == ""
    assert "".join(line["text"] for line in lines[1:3]) == fakes.ANSWER.text
    cited = {"ref": "E2", "kind": "entity", "id": "e2", "title": "Wärterin", "document_id": "", "uri": "", "places": []}
    assert lines[-1]["answer"]["citations"] == [cited]
    assert "retrieval" not in lines[-1]["answer"]


async def test_everything_asked_reaches_the_engine(serve: Serve, http: Any) -> None:
    served = await serve()
    await ask(
        http,
        served.url,
        mode="bridge",
        top_n=3,
        top_m=4,
        top_c=5,
        community_level="leaf",
        context_tokens=600,
        labels=["a", "b"],
        filter="year = 1843",
        timeout_s=2.0,
    )
    query, deadline_s = served.engine.queries[0], served.engine.deadlines[0]
    assert (query.mode, query.top_n, query.top_m, query.top_c) == ("bridge", 3, 4, 5)
    assert (query.community_level, query.context_tokens, query.labels) == ("leaf", 600, ("a", "b"))
    assert query.filter == "year = 1843"
    assert 1 < deadline_s <= 2


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (InvalidQuery("top_n must be at least 1"), 400, "InvalidQuery"),
        (QuotaExceeded("spent", retry_after_s=7.5), 429, "QuotaExceeded"),
    ],
)
async def test_errors_before_anything_was_found(serve: Serve, http: Any, error: Any, status: int, kind: str) -> None:
    served = await serve()

    async def fails(query: Any, *, deadline_s: float | None = None) -> Any:
        raise error
        yield

    served.engine.answer_stream = fails
    after = getattr(error, "retry_after_s", None)
    async with http.post(f"{served.url}api/ask", json={"question": "q", "timeout_s": 5}) as response:
        assert response.status == status
        assert response.headers.get("Retry-After") == (None if after is None else "8")
        assert (await response.json())["error"] == {"kind": kind, "message": str(error), "retry_after_s": after}


async def test_an_error_after_the_retrieval_is_a_line(serve: Serve, http: Any) -> None:
    served = await serve()
    served.engine.error = RateLimited("the model's endpoint asks for a pause", 7.0)
    status, lines = await ask(http, served.url)
    assert status == 200
    assert [line["type"] for line in lines] == ["retrieval", "error"]
    assert lines[1]["error"] == {
        "kind": "RateLimited",
        "message": "the model's endpoint asks for a pause",
        "retry_after_s": 7.0,
    }
    served.engine.error = ModelUnavailable("out")
    assert (await ask(http, served.url))[1][-1]["error"]["kind"] == "ModelUnavailable"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"{not json", "the request: Invalid JSON"),
        (b'{"question": "q", "vector": [1]}', "vector: Extra inputs"),
        (b'{"question": "\\ud800"}', ""),
    ],
)
async def test_malformed_questions(serve: Serve, http: Any, body: bytes, words: str) -> None:
    served = await serve()
    headers = {"Content-Type": "application/json"}
    async with http.post(f"{served.url}api/ask", data=body, headers=headers) as response:
        assert response.status == 400
        error = (await response.json())["error"]
    assert error["kind"] == "InvalidQuery"
    assert words in error["message"]
    assert not served.engine.queries


async def test_tokens_are_passed_on_one_by_one(serve: Serve, http: Any, tmp_path: Path) -> None:
    callers = fakes.CallersFile(tmp_path / "callers.yaml").add("ada").add("bob")
    url = (await serve(callers_file=callers.path)).url
    for token, status in (("ada-token", 200), ("eve-token", 401), ("bob-token", 200), (None, 401)):
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        async with http.post(f"{url}api/ask", json={"question": "q"}, headers=headers) as response:
            assert response.status == status
            assert response.headers["X-Request-Id"] if status == 200 else True
    for wrong in ("Basic YTpi", "Bearer", "Bearer " + "x" * 5000, "Bearer schlüssel"):
        raw = {"Authorization": wrong.encode().decode("latin-1")}
        async with http.post(f"{url}api/ask", json={"question": "q"}, headers=raw) as response:
            assert response.status == 400


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Host": "localhost:9999"}, 200),  # forwarded by ssh
        ({"Host": "evil.example"}, 421),  # its name was made to resolve to this machine
        ({"Host": "[::1"}, 421),
        ({"Origin": "http://localhost:8000", "Host": "localhost:8000"}, 200),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Content-Type": "text/plain"}, 415),
    ],
)
async def test_requests_that_a_foreign_page_could_make(serve: Serve, http: Any, headers: Any, status: int) -> None:
    served = await serve()
    sent = {"Content-Type": "application/json"} | headers
    async with http.post(f"{served.url}api/ask", data=b'{"question": "q"}', headers=sent) as response:
        assert response.status == status
    assert len(served.engine.queries) == (status == 200)


async def test_every_reply_says_how_it_may_be_used(serve: Serve, http: Any) -> None:
    url = (await serve()).url
    for method, path, status in (
        ("GET", "", 200),
        ("GET", "static/app.js", 200),
        ("GET", "static/../run.py", 404),
        ("GET", "static/%2e%2e%2frun.py", 404),
        ("GET", "nowhere", 404),
        ("GET", "api/ask", 405),
        ("POST", "api/ask", 400),
    ):
        options = {"data": b"", "headers": {"Content-Type": "application/json"}} if method == "POST" else {}
        async with http.request(method, f"{url}{path}", **options) as response:
            assert response.status == status, path
            policy = response.headers["Content-Security-Policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert response.headers["X-Frame-Options"] == "DENY"
            assert response.headers["X-Content-Type-Options"] == "nosniff"
            assert response.headers["Server"] == "hirag-dist"
            assert "Access-Control-Allow-Origin" not in response.headers


async def test_the_page_refers_to_its_own_files_only(serve: Serve, http: Any) -> None:
    url = (await serve()).url
    async with http.get(url) as response:
        text = await response.text()
    assert "http:" not in text
    assert "https:" not in text
    assert "<style" not in text
    assert " style=" not in text
    assert " onclick" not in text


async def test_a_visitor_who_leaves_stops_the_work(serve: Serve, http: Any) -> None:
    served = await serve()
    served.engine.gate = asyncio.Event()
    async with http.post(f"{served.url}api/ask", json={"question": "q"}) as response:
        await response.content.readline()
        await served.engine.started.wait()
        assert not served.engine.cancelled.is_set()
    async with asyncio.timeout(10):
        await served.engine.cancelled.wait()
    assert served.engine.at_work == 0


async def test_a_visitor_who_does_not_read(serve: Serve, http: Any, caplog: Any) -> None:
    long = replace(fakes.WHOLE.sources[0], text="x" * 12_000_000)
    served = await serve(
        fakes.FakeEngine(whole=replace(fakes.WHOLE, sources=(long,))), page={"stall_s": 0.05, "max_streams": 1}
    )
    host, port = served.url.removeprefix("http://").rstrip("/").split(":")
    body = b'{"question": "q"}'
    head = (
        f"POST /api/ask HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    )
    _, writer = await asyncio.open_connection(host, int(port), limit=1024)
    writer.write(head.encode() + b"\r\n" + body)
    async with asyncio.timeout(20):
        while "which does not read" not in caplog.text:
            await asyncio.sleep(0)
    writer.transport.abort()
    served.engine.whole = fakes.WHOLE
    assert (await ask(http, served.url))[0] == 200  # the place is free again


async def test_the_page_asks_for_nobody_in_its_own_name(
    serve: Serve, http: Any, certificates: dict[str, str], tmp_path: Path
) -> None:
    own = {"tls_cert": certificates["server.pem"], "tls_key": certificates["server.key"]}
    own["tls_client_ca"] = certificates["ca.pem"]
    client = {"client_cert": certificates["client.pem"], "client_key": certificates["client.key"]}
    callers = fakes.CallersFile(tmp_path / "callers.yaml").add("ada").add("page", certificates=["client"], labels="all")
    served = await serve(page=own | client | {"callers": True}, callers_file=callers.path, **own)
    trust = ssl.create_default_context(cafile=certificates["ca.pem"])
    trust.load_cert_chain(certificates["client.pem"], certificates["client.key"])
    for token, status in ((None, 401), ("eve-token", 401), ("ada-token", 200)):
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        async with http.post(f"{served.url}api/ask", json={"question": "q"}, headers=headers, ssl=trust) as response:
            assert response.status == status
    assert [query.reach for query in served.engine.queries] == [frozenset()]  # ada's, not the certificate's


async def test_a_new_certificate_is_taken_up(
    serve: Serve, http: Any, certificates: dict[str, str], tmp_path: Path, caplog: Any
) -> None:
    paths = {"tls_cert": str(tmp_path / "cert.pem"), "tls_key": str(tmp_path / "key.pem")}
    shutil.copy(certificates["server.pem"], paths["tls_cert"])
    shutil.copy(certificates["server.key"], paths["tls_key"])
    served = await serve(page=paths, tls_cert=certificates["server.pem"], tls_key=certificates["server.key"])

    async def works(authority: str) -> bool:
        trust = ssl.create_default_context(cafile=authority)
        try:
            async with http.get(served.url, ssl=trust, headers={"Connection": "close"}) as response:
                return bool(response.status == 200)
        except aiohttp.ClientConnectorCertificateError:
            return False

    other = tmp_path / "other"
    other.mkdir()
    renewed = fakes.certificates(other)
    assert await works(certificates["ca.pem"])
    Path(paths["tls_cert"]).write_text("half a certifi")
    for _ in range(2):
        assert not served.page.renew()
    assert [record.levelname for record in caplog.records if "stays in force" in record.message] == ["ERROR"]
    assert await works(certificates["ca.pem"])
    shutil.copy(renewed["server.pem"], paths["tls_cert"])
    shutil.copy(renewed["server.key"], paths["tls_key"])
    assert served.page.renew()
    assert await works(renewed["ca.pem"])
    assert not await works(certificates["ca.pem"])
