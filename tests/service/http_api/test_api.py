"""The OpenAPI document that the service sends, and what the service sends besides, held against it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import jsonschema
import pytest

from hirag_dist.service.request_gate import SERVICE, SERVICE_NAME
from hirag_dist.wire.error_status import Overloaded

pytestmark = pytest.mark.asyncio(loop_scope="module")
Serve = Callable[..., Any]
ASK = {"query": {"question": "Who lit the lamp?"}}


def schema(document: dict[str, Any], name: str) -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(
        {"$ref": f"#/components/schemas/{name}", "components": document["components"]}
    )


async def test_the_document_describes_what_is_sent(serve: Serve, http: Any) -> None:
    served = await serve()
    async with http.get(f"{served.url}openapi.json") as response:
        document = await response.json()
    assert document["openapi"] == "3.1.0"
    for name in document["components"]["schemas"]:
        jsonschema.Draft202012Validator.check_schema(document["components"]["schemas"][name])
    assert {f"/{SERVICE_NAME}/{method.name}" for method in SERVICE.methods} <= document["paths"].keys()
    described = [field["description"] for field in document["components"]["schemas"]["Query"]["properties"].values()]
    assert all(described), "comments of the .proto file"

    async def reply(path: str, body: Any) -> str:
        method = "GET" if body is None else "POST"
        async with http.request(method, f"{served.url}{path.lstrip('/')}", json=body) as response:
            return await response.text()

    rpc = f"/{SERVICE_NAME}"
    schema(document, "RetrieveRequest").validate(ASK)
    schema(document, "RetrieveResponse").validate(json.loads(await reply(f"{rpc}/Retrieve", ASK)))
    schema(document, "DescribeIndexResponse").validate(json.loads(await reply(f"{rpc}/DescribeIndex", {})))
    for event in (await reply(f"{rpc}/Answer", ASK)).split("\n\n")[:-1]:
        schema(document, "AnswerResponse").validate(json.loads(event.removeprefix("data: ")))
    schema(document, "Error").validate(json.loads(await reply(f"{rpc}/Retrieve", {})))
    schema(document, "ModelList").validate(json.loads(await reply("/v1/models", None)))
    chat = {"model": "hirag", "messages": [{"role": "user", "content": "q"}], "hirag": {"topN": 3, "history": False}}
    schema(document, "ChatCompletionRequest").validate(chat)
    schema(document, "ChatCompletion").validate(json.loads(await reply("/v1/chat/completions", chat)))
    schema(document, "ResponsesRequest").validate({"model": "hirag", "input": "q"})
    schema(document, "Response").validate(json.loads(await reply("/v1/responses", {"model": "hirag", "input": "q"})))
    served.engine.error = Overloaded("busy")
    schema(document, "OpenAiError").validate(json.loads(await reply("/v1/chat/completions", chat)))
    served.engine.error = None
    for name, wrong in (
        ("Retrieve", {}),
        ("Retrieve", {"query": {"question": "q", "top_k": 3}}),
        ("Retrieve", {"query": {"question": ""}}),
        ("Retrieve", {"query": {"question": "q", "topN": 0}}),
        ("GetEntity", {}),
        ("GetDocument", {}),
    ):
        with pytest.raises(jsonschema.ValidationError):
            schema(document, f"{name}Request").validate(wrong)
        schema(document, "Error").validate(json.loads(await reply(f"{rpc}/{name}", wrong)))


async def test_probes(serve: Serve, http: Any) -> None:
    served = await serve()
    for path, text in (("healthz", "alive"), ("readyz", "ready")):
        async with http.get(f"{served.url}{path}", headers={"Host": "10.0.0.7:8080"}) as response:
            assert (response.status, await response.text()) == (200, text)
