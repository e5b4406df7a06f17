"""Every RPC over HTTP: as JSON, and as server-sent events."""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from google.rpc import error_details_pb2

from hirag_dist.errors import BackendUnavailable, InvalidQuery, ModelUnavailable
from hirag_dist.service.request_gate import SERVICE, SERVICE_NAME
from hirag_dist.wire.error_status import Overloaded, QuotaExceeded
from tests.service import fakes

pytestmark = pytest.mark.asyncio(loop_scope="module")
Serve = Callable[..., Any]
ASK = {"query": {"question": "Who lit the lamp?"}}
JSON = {"Content-Type": "application/json"}


def rpc(method: str) -> str:
    return f"{SERVICE_NAME}/{method}"


async def test_retrieve_as_json(served: fakes.Service) -> None:
    asked = {"query": {"question": "Who?", "mode": "MODE_BRIDGE", "topN": 3, "top_m": 4, "labels": ["a"]}}
    headers = {"X-Request-Id": "mine-1", "Connect-Timeout-Ms": "30000"}
    response = await served.post(rpc("Retrieve"), asked, headers=headers)
    assert (response.status, response.content_type) == (200, "application/json")
    assert (response.headers["X-Request-Id"], response.headers["Cache-Control"]) == ("mine-1", "no-store")
    found = (await response.json())["retrieval"]
    assert found["local"][0] == {
        "entityId": "e1",
        "name": "Lighthouse",
        "type": "location",
        "description": "Stands on the rock.",
        "layer": 0,
        "score": 0.75,
        "matched": "name",
    }
    assert found["sources"][0]["start"] == "10", "64-bit numbers are texts, as in all JSON of Protocol Buffers"
    assert found["partial"] == [], "empty fields are there"
    query = served.engine.queries[0]
    assert (query.mode, query.top_n, query.top_m, query.labels) == ("bridge", 3, 4, ("a",))
    assert 10 < served.engine.deadlines[0] < 60, "the page allows 120 s"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"q": 1}', "Unknown field 'q' in RetrieveRequest; known fields: query, omitContext, omitSourceText, index"),
        (b'{"query": {"topN": "a"}}', "query.topN: invalid literal for int() with base 10: 'a'"),
        (
            b'{"query": {"mode": "all"}}',
            "query.mode: Invalid value 'all'; expected one of MODE_UNSPECIFIED, MODE_HIRAG",
        ),
        (b"[]", "it is not a JSON object"),
        (b"{", "Failed to load JSON: "),
    ],
)
async def test_a_request_that_is_none_names_the_field_in_one_line(
    served: fakes.Service, body: bytes, message: str
) -> None:
    response = await served.request("POST", rpc("Retrieve"), data=body, headers=JSON)
    assert response.status == 400
    said = (await response.json())["message"]
    assert said.startswith(f"Invalid RetrieveRequest: {message}")
    assert "\n" not in said


def events_of(text: str) -> list[tuple[str, Any]]:
    """Kind and content of each server-sent event."""
    found = []
    for event in text.split("\n\n")[:-1]:
        fields = dict(line.split(": ", 1) for line in event.split("\n"))
        found.append((fields.get("event", "message"), json.loads(fields["data"])))
    return found


async def test_an_answer_in_events(served: fakes.Service) -> None:
    response = await served.post(rpc("Answer"), ASK)
    assert response.content_type == "text/event-stream"
    kinds, events = zip(*events_of(await response.text()), strict=True)
    assert set(kinds) == {"message"}
    assert [next(iter(event)) for event in events] == ["retrieval", "text", "text", "answer"]
    (citation,) = events[-1]["answer"]["citations"]
    assert {"ref": "E2", "kind": "entity", "id": "e2", "title": "Wärterin"}.items() <= citation.items()


@pytest.mark.parametrize(
    ("error", "status", "code", "after"),
    [
        (InvalidQuery("top_n must be at least 1"), 400, "invalid_argument", None),
        (QuotaExceeded("spent", retry_after_s=7.5), 429, "resource_exhausted", "8"),
        (BackendUnavailable("no Milvus"), 503, "unavailable", None),
    ],
)
async def test_errors(served: fakes.Service, error: Any, status: int, code: str, after: str | None) -> None:
    served.engine.error = error
    response = await served.post(rpc("Retrieve"), ASK)
    assert (response.status, response.headers.get("Retry-After")) == (status, after)
    found = await response.json()
    assert (found["code"], found["message"]) == (code, str(error).replace("top_n", "topN"))  # the name in JSON
    info = next(each for each in found["details"] if each["type"] == "google.rpc.ErrorInfo")
    assert info["debug"]["domain"] == "hirag_dist"
    padded = info["value"] + "=" * (-len(info["value"]) % 4)
    assert error_details_pb2.ErrorInfo.FromString(base64.b64decode(padded)).reason == info["debug"]["reason"]
    assert len(served.engine.queries) == 1, "the client decides whether to ask again"


async def test_an_error_after_the_first_event_is_the_last_event(served: fakes.Service) -> None:
    served.engine.error = ModelUnavailable("out")
    response = await served.post(rpc("Answer"), ASK)
    assert response.status == 200
    first, last = events_of(await response.text())
    assert "retrieval" in first[1]
    assert (last[0], last[1]["code"]) == ("error", "unavailable")
    response = await served.post(rpc("Answer"), {})
    assert response.status == 400, "an error before the first event has a status of its own"
    assert (await response.json())["code"] == "invalid_argument"


async def test_requests_of_another_form(served: fakes.Service) -> None:
    for method, name, headers, status in (
        ("GET", "Retrieve", {}, 405),
        ("POST", "Nothing", {}, 404),
        ("POST", "Retrieve", {"Content-Type": "text/plain"}, 415),
        ("POST", "Retrieve", {"Content-Type": "application/connect+json"}, 415),
        ("POST", "Answer", {"Content-Type": "application/proto"}, 415),
        ("POST", "Retrieve", {"Connect-Timeout-Ms": "soon"}, 400),
        ("POST", "Retrieve", {"Connect-Timeout-Ms": "0"}, 504),
        ("POST", "Retrieve", {"Content-Encoding": "compress"}, 501),
    ):
        response = await served.request(method, rpc(name), data=json.dumps(ASK), headers=JSON | headers)
        assert response.status == status, (method, name, headers)
        assert (await response.json())["code"]
    assert not served.engine.queries


async def test_a_large_or_a_slow_body(serve: Serve) -> None:
    served = await serve(page={"body_s": 0.3, "max_api_body_bytes": 1000})

    async def slow() -> Any:
        yield b"{"
        await asyncio.sleep(30)
        yield b"}"

    async def large() -> Any:
        for _ in range(3):
            yield b" " * 500

    bomb = {"Content-Encoding": "gzip"}
    for data, headers, status in (
        (b" " * 1001, {}, 413),
        (large(), {}, 413),
        (gzip.compress(b" " * 1_000_000)[:900], bomb, 413),
        (slow(), {}, 504),
    ):
        response = await served.request("POST", rpc("Retrieve"), data=data, headers=JSON | headers)
        assert response.status == status
        await response.json()


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "zstd"])
@pytest.mark.parametrize("path", [rpc("Retrieve"), "v1/chat/completions", "v1/responses"])
async def test_a_body_that_cannot_be_decompressed_is_the_clients_error(
    served: fakes.Service, caplog: pytest.LogCaptureFixture, path: str, coding: str
) -> None:
    response = await served.request("POST", path, data=b"xx", headers=JSON | {"Content-Encoding": coding})
    assert response.status in (400, 501)
    if coding in ("gzip", "deflate"):  # others are refused before a handler has the request
        found = await response.json()
        assert f"Content-Encoding ({coding})" in found.get("error", found)["message"]
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


CHAT = {"model": "hirag", "messages": [{"role": "user", "content": "Who lit the lamp?"}]}


@pytest.mark.parametrize(
    ("path", "body", "streams"),
    [
        (f"{SERVICE_NAME}/Retrieve", ASK, False),
        (f"{SERVICE_NAME}/Answer", ASK, True),
        ("v1/chat/completions", CHAT, False),
        ("v1/chat/completions", CHAT | {"stream": True}, True),
    ],
)
async def test_a_client_that_disconnects_stops_the_work(serve: Serve, path: str, body: Any, streams: bool) -> None:
    served = await serve()
    asking = await served.engine.held(served.http.post(f"{served.url}{path}", json=body))
    if streams:
        (await asking).close()
    else:
        asking.cancel()
    await asyncio.wait_for(served.engine.cancelled.wait(), 10)


async def test_requests_that_a_foreign_page_could_make(serve: Serve, tmp_path: Path) -> None:
    callers = fakes.CallersFile(tmp_path / "callers.yaml").add("ada")
    page = {"origins": ("https://chat.example",)}
    token = {"Authorization": "Bearer ada-token"}
    open_to_all, with_callers = await serve(page=page), await serve(callers_file=callers.path, page=page)
    for headers, anonymous, known in (
        ({}, 200, 200),
        ({"Host": "localhost:9999"}, 200, 200),  # forwarded by ssh
        ({"Host": "evil.example"}, 421, 200),  # its name was made to resolve here; a browser has no token of it
        ({"Host": "[::1"}, 421, 200),
        ({"Origin": "http://evil.example"}, 403, 403),
        ({"Origin": "null"}, 403, 403),
        ({"Origin": "http://localhost:8000", "Host": "localhost:8000"}, 200, 200),
        ({"Origin": "https://chat.example"}, 200, 200),
        ({"Origin": "https://chat.example", "Sec-Fetch-Site": "cross-site"}, 200, 200),
        ({"Sec-Fetch-Site": "cross-site"}, 403, 403),
    ):
        for served, wanted in ((open_to_all, anonymous), (with_callers, known)):
            served.engine.queries.clear()
            response = await served.post(rpc("Retrieve"), ASK, headers=token | headers)
            assert response.status == wanted, headers
            allowed = response.headers.get("Access-Control-Allow-Origin")
            assert allowed == ("https://chat.example" if "chat" in headers.get("Origin", "") else None)
            assert len(served.engine.queries) == (wanted == 200)


async def test_a_preflight(serve: Serve) -> None:
    served = await serve(page={"origins": ("https://chat.example",)})
    asks = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization,content-type"}
    headers = {"Origin": "https://chat.example"} | asks
    response = await served.request("OPTIONS", rpc("Retrieve"), headers=headers)
    assert response.status == 204
    assert response.headers["Access-Control-Allow-Origin"] == "https://chat.example"
    assert response.headers["Access-Control-Allow-Headers"] == "authorization,content-type"
    assert "POST" in response.headers["Access-Control-Allow-Methods"]
    evil = headers | {"Origin": "https://evil.example"}
    for other, sent in ((served, evil), (await serve(), headers)):  # none is allowed unless the operator names it
        response = await other.request("OPTIONS", rpc("Retrieve"), headers=sent)
        assert response.status == 403
        assert "Access-Control-Allow-Origin" not in response.headers


async def test_the_apis_are_served_without_the_page(serve: Serve) -> None:
    served = await serve(page={"page": False})
    assert (await served.request("GET", "")).status == 404
    assert (await served.post(rpc("Retrieve"), ASK)).status == 200


def schema(document: dict[str, Any], name: str) -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(
        {"$ref": f"#/components/schemas/{name}", "components": document["components"]}
    )


async def test_the_document_describes_what_is_sent(served: fakes.Service) -> None:
    document = await (await served.request("GET", "openapi.json")).json()
    assert document["openapi"] == "3.1.0"
    schemas = document["components"]["schemas"]
    for each in schemas.values():
        jsonschema.Draft202012Validator.check_schema(each)
    assert {f"/{rpc(method.name)}" for method in SERVICE.methods} <= document["paths"].keys()
    described = [field["description"] for field in schemas["Query"]["properties"].values()]
    assert all(described), "comments of the .proto file"

    async def reply(path: str, body: Any) -> Any:
        return await (await served.post(path, body)).json()

    for method, asked in (
        ("Retrieve", ASK),
        ("DescribeIndex", {}),
        ("GetEntity", {"entity": "Lighthouse", "maxRelations": 5}),
        ("FindPath", {"source": "Lighthouse", "target": "e2"}),
        ("GetCommunity", {"communityId": "c1"}),
        ("GetDocument", {"documentId": "d1", "maxChars": "100"}),
    ):
        schema(document, f"{method}Request").validate(asked)
        schema(document, f"{method}Response").validate(await reply(rpc(method), asked))
    assert [(name, *keys) for name, keys, *_ in served.engine.lookups] == [
        ("get_entity", "Lighthouse"),
        ("find_path", "Lighthouse", "e2"),
        ("get_community", "c1"),
        ("get_document", "d1"),
    ]
    for _, event in events_of(await (await served.post(rpc("Answer"), ASK)).text()):
        schema(document, "AnswerResponse").validate(event)
    schema(document, "ModelList").validate(await (await served.request("GET", "v1/models")).json())
    chat = CHAT | {"hirag": {"topN": 3, "history": False}}
    schema(document, "ChatCompletionRequest").validate(chat)
    schema(document, "ChatCompletion").validate(await reply("v1/chat/completions", chat))
    responses = {"model": "hirag", "input": "q"}
    schema(document, "ResponsesRequest").validate(responses)
    schema(document, "Response").validate(await reply("v1/responses", responses))
    served.engine.error = Overloaded("busy")
    schema(document, "OpenAiError").validate(await reply("v1/chat/completions", chat))
    served.engine.error = None
    for method, wrong in (
        ("Retrieve", {}),
        ("Retrieve", {"query": {"question": "q", "top_k": 3}}),
        ("Retrieve", {"query": {"question": ""}}),
        ("Retrieve", {"query": {"question": "q", "topN": 0}}),
        ("GetEntity", {}),
        ("GetDocument", {}),
    ):
        with pytest.raises(jsonschema.ValidationError):
            schema(document, f"{method}Request").validate(wrong)
        schema(document, "Error").validate(await reply(rpc(method), wrong))


async def test_probes(served: fakes.Service) -> None:
    for path, text in (("healthz", "alive"), ("readyz", "ready")):
        response = await served.request("GET", path, headers={"Host": "10.0.0.7:8080"})
        assert (response.status, await response.text()) == (200, text)
