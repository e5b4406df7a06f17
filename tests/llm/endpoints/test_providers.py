"""The configurations of docs/how-to/connect-a-provider.md against stand-ins that follow each provider's wire."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from hirag_dist.config.loader import load_config
from hirag_dist.config.model import Config
from hirag_dist.errors import ContextLengthExceeded, HiragError, ModelUnavailable, RateLimited, RequestRejected
from hirag_dist.llm.endpoints.factory import make_chat_model, make_embedder
from hirag_dist.types import ChatRequest, Message
from tests.llm.endpoints.loopback import loopback, read_stream

GUIDE = Path(__file__).parents[3] / "docs" / "how-to" / "connect-a-provider.md"
KEY = "key-of-the-test"
REQUEST = ChatRequest("extract", (Message("system", "Task: x"), Message("user", "Read this.")), "u1", max_tokens=50)
TEXT = "Two words"


@dataclass(frozen=True)
class Provider:
    """The wire of a provider, by its documentation.

    Attributes:
        heading: of its section in the guide.
        path: of its API, in front of /chat/completions.
        header: that carries the key; empty where the server needs no key.
        query: that every request must have.
        message: of a chat reply.
        usage: of a chat reply; None where it has none.
        more: other fields of a chat reply.
        stream: lines of a stream.
        refusals: body of an error and its status → the class and words that a user sees.
    """

    heading: str
    path: str = "/v1"
    header: str = "Authorization"
    query: str = ""
    message: dict[str, Any] = field(default_factory=lambda: {"role": "assistant", "content": TEXT})
    usage: dict[str, Any] | None = field(default_factory=lambda: {"prompt_tokens": 9, "completion_tokens": 2})
    more: dict[str, Any] = field(default_factory=dict)
    stream: tuple[str, ...] = ()
    refusals: tuple[tuple[int, Any, type[HiragError], str], ...] = ()


def chunk(text: str = "", finish: str | None = None, **delta: Any) -> str:
    choice = {"index": 0, "delta": {"content": text} | delta, "finish_reason": finish}
    return "data: " + json.dumps({"object": "chat.completion.chunk", "choices": [choice]})


DONE = "data: [DONE]"
PROVIDERS = (
    Provider(
        "llama.cpp",
        header="",
        more={"system_fingerprint": "b7500", "timings": {"prompt_n": 9, "predicted_n": 2}},
        stream=(chunk(role="assistant", content=None), chunk("Two "), chunk("words"), chunk("", "stop"), DONE),
        refusals=(
            (400, {"error": {"code": 400, "message": "the request exceeds the available context size",
                             "type": "exceed_context_size_error", "n_prompt_tokens": 5023, "n_ctx": 4096}},
             ContextLengthExceeded, "context"),
            (503, {"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}}, ModelUnavailable,
             "Loading model"),
        ),
    ),
    Provider(
        "Ollama",
        more={"system_fingerprint": "fp_ollama"},
        usage={"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11},
        stream=(chunk("Two ", role="assistant"), chunk("words"), chunk("", "stop"), DONE),
        refusals=(
            (404, {"error": {"message": 'model "qwen3:8b" not found, try pulling it first', "type": "api_error",
                             "param": None, "code": None}}, RequestRejected, "try pulling it first"),
        ),
    ),
    Provider(
        "vLLM",
        message={"role": "assistant", "content": TEXT, "reasoning_content": "Two words, then.", "refusal": None,
                 "tool_calls": []},
        more={"prompt_logprobs": None, "kv_transfer_params": None},
        usage={"prompt_tokens": 9, "total_tokens": 11, "completion_tokens": 2, "prompt_tokens_details": None},
        stream=(chunk("", role="assistant"), chunk(reasoning_content="The user"), chunk("Two "), chunk("words", "stop"),
                'data: {"choices": [], "usage": {"prompt_tokens": 9}}', DONE),
        refusals=(
            (401, {"error": "Unauthorized"}, RequestRejected, "check api_key"),
        ),
    ),
    Provider(
        "Azure OpenAI with an API version",
        path="/openai/deployments/my-chat-deployment",
        header="api-key",
        query="api-version=2024-10-21",
        stream=(chunk("Two words", "stop"), DONE),
        refusals=((404, {"error": {"code": "404", "message": "Resource not found"}}, RequestRejected, "base_url"),),
    ),
    Provider(
        "OpenRouter",
        path="/api/v1",
        message={"role": "assistant", "content": TEXT, "refusal": None, "reasoning": None},
        more={"provider": "OpenAI"},
        stream=(": OPENROUTER PROCESSING", "", ": OPENROUTER PROCESSING", "", chunk("Two "), ": OPENROUTER PROCESSING",
                "", chunk("words", "stop"), DONE),
        refusals=(
            (402, {"error": {"code": 402, "message": "Insufficient credits"}}, RequestRejected, "balance"),
            (200, {"error": {"code": 502, "message": "Provider returned error", "metadata": {"provider_name": "X"}}},
             ModelUnavailable, "Provider returned error"),
        ),
    ),
    Provider(
        "Amazon Bedrock",
        message={"role": "assistant", "content": f"<reasoning>The user wants two words.</reasoning>{TEXT}"},
        stream=(chunk("Two words", "stop"), DONE),
        refusals=(
            (403, {"message": "The security token of the request is invalid"}, RequestRejected, "what api_key"),
            (429, {"error": {"message": "Too many tokens per day", "type": "rate_limit"}}, RateLimited, "Too many"),
        ),
    ),
)  # fmt: skip


def configured(provider: Provider, host: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Config:
    """Return the guide's configuration of a provider, with the stand-in's address in place of the provider's."""
    section = GUIDE.read_text("utf-8").partition(f"# {provider.heading}\n")[2]
    found = re.search(r"```yaml\n(.*?)```", section, re.DOTALL)
    assert found, f"the guide has no section {provider.heading}"
    data = yaml.safe_load(found[1])
    for name in re.findall(r"\$\{(\w+)\}", found[1]):
        monkeypatch.setenv(name, KEY)
    for endpoint in data["llm"]["endpoints"].values():
        assert endpoint["base_url"].endswith(provider.path) or endpoint is not data["llm"]["endpoints"]["main"]
        endpoint["base_url"] = re.sub(r"^https?://[^/]+", host, endpoint["base_url"])
        endpoint["first_token_timeout_s"] = 20
        endpoint["dim"] = endpoint.get("dim") and 2
    path = tmp_path / "hirag.yaml"
    path.write_text(yaml.safe_dump(data), "utf-8")
    return load_config(str(path), dict.fromkeys(re.findall(r"\$\{(\w+)\}", found[1]), KEY)).config


@pytest.mark.parametrize("provider", PROVIDERS, ids=lambda provider: provider.heading.replace(" ", "-"))
async def test_a_recipe_speaks_the_wire_of_its_provider(
    provider: Provider, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen: list[tuple[str, dict[str, Any]]] = []
    refusal: list[tuple[int, Any]] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        body = await request.json()
        seen.append((request.path, body))
        assert request.query_string == provider.query
        given = request.headers.get(provider.header, "")
        assert not provider.header or given.removeprefix("Bearer ") not in ("", "none")
        if provider.header not in ("Authorization", ""):
            assert "Authorization" not in request.headers
        if refusal:
            return web.json_response(refusal[0][1], status=refusal[0][0])
        if request.path.endswith("/embeddings"):
            data = [{"object": "embedding", "index": at, "embedding": [1.0, 0.5]} for at in range(len(body["input"]))]
            return web.json_response({"object": "list", "data": data, "model": body["model"]})
        if body.get("stream"):
            response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
            await response.prepare(request)
            await response.write("".join(f"{line}\n\n" for line in provider.stream).encode())
            return response
        reply: dict[str, Any] = {"id": "x", "object": "chat.completion", "model": body["model"]} | provider.more
        reply["choices"] = [{"index": 0, "message": provider.message, "finish_reason": "stop", "logprobs": None}]
        return web.json_response(reply | ({} if provider.usage is None else {"usage": provider.usage}))

    async with loopback(answer) as host:
        config = configured(provider, host, monkeypatch, tmp_path)
        chat = make_chat_model("main", config)
        try:
            reply = await chat.complete(REQUEST)
            assert reply.text.endswith(TEXT)
            assert reply.input_tokens > 0
            assert reply.output_tokens > 0  # counted here where the reply does not say
            assert (await read_stream(chat, REQUEST))[1].text == TEXT  # in spite of keep-alives
            path, body = seen[0]
            assert path == f"{provider.path}/chat/completions"
            endpoint = config.llm.endpoints["main"]
            assert body[endpoint.max_tokens_field] == 50
            assert body.items() >= endpoint.extra_body.items()
            for status, said, error, words in provider.refusals:
                refusal[:] = [(status, said)]
                with pytest.raises(error, match=re.escape(words)):
                    await chat.complete(REQUEST)
            refusal.clear()
            if "vectors" in config.llm.endpoints and config.llm.roles.embed == "vectors":
                embedder: Any = make_embedder(config)
                vectors = await embedder.embed(["one", "two"])
                await embedder.close()
                assert vectors.shape == (2, 2)
                assert seen[-1][0].endswith("/embeddings")
        finally:
            await chat.close()
