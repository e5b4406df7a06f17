"""The window of a model as servers tell it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from hirag_dist.llm.capabilities import ModelWindow, find_model_window
from hirag_dist.llm.endpoints.openai_chat import ReplyLimit
from hirag_dist.llm.endpoints.openai_client import EndpointSettings
from hirag_dist.llm.endpoints.openai_connection import refused_window
from tests.llm.endpoints.loopback import count_words, failure, loopback


@asynccontextmanager
async def serving(answers: Mapping[str, Any]) -> AsyncIterator[EndpointSettings]:
    """Serve JSON by path; 404 elsewhere."""

    async def answer(request: web.Request) -> web.Response:
        found = answers.get(request.path)
        return failure(404) if found is None else web.json_response(found)

    async with loopback(answer) as url:
        yield EndpointSettings("mine", f"{url}/v1", "", "small")


def models(*entries: dict[str, Any]) -> dict[str, Any]:
    return {"object": "list", "data": list(entries)}


LLAMA = models({"id": "small.gguf", "owned_by": "llamacpp", "meta": {"n_ctx_train": 8192}})
PROPS = {"default_generation_settings": {"n_ctx": 4096, "params": {}}, "total_slots": 2}
OLLAMA = models({"id": "small:latest", "owned_by": "library"}, {"id": "other", "owned_by": "library"})
SHOWN = {"model_info": {"llama.context_length": 8192}}


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ({"/v1/models": LLAMA, "/props": PROPS}, ModelWindow(4096, 2, "/props")),
        ({"/v1/models": LLAMA}, ModelWindow(8192, None, "/v1/models", is_upper_bound=True)),
        (
            {"/v1/models": models({"id": "big", "max_model_len": 9}, {"id": "small", "max_model_len": 32768})},
            ModelWindow(32768, None, "/v1/models"),
        ),
        (
            {
                "/v1/models": OLLAMA,
                "/api/ps": {"models": [{"name": "small:latest", "context_length": 4096}]},
                "/api/show": SHOWN,
            },
            ModelWindow(4096, None, "/api/ps"),
        ),
        (
            {"/v1/models": OLLAMA, "/api/ps": {"models": []}, "/api/show": SHOWN},
            ModelWindow(8192, None, "/api/show", is_upper_bound=True),
        ),
        ({"/v1/models": [], "/props": 7, "/api/ps": {"models": 3}, "/api/show": {"model_info": []}}, None),
    ],
)
async def test_reads_the_window_that_a_server_tells(answers: Mapping[str, Any], expected: ModelWindow | None) -> None:
    async with serving(answers) as settings:
        assert await find_model_window(settings) == expected


async def test_a_server_that_is_down_tells_nothing() -> None:
    assert await find_model_window(EndpointSettings("mine", "http://127.0.0.1:9/v1", "", "small")) is None


PROMPT = ["instructions " * 100, "a text of the user " * 100]  # 608 tokens, with those of the template


def test_prompt_and_reply_fit_a_known_window() -> None:
    limit = ReplyLimit(1024, count_words)
    room = limit.of(PROMPT, None)
    assert room is not None
    assert 608 * 1.25 + room <= 1024
    assert (limit.of(PROMPT, 5000), limit.of(PROMPT, 50)) == (room, 50)
    limit.learn(PROMPT, 608 * 3 // 2)  # the model counts more tokens than we do
    shorter = limit.of(PROMPT, None)
    assert shorter is not None
    assert 608 * 1.5 + shorter <= 1024
    without = ReplyLimit(None, count_words)
    assert (without.of(PROMPT, 5000), without.of(PROMPT, None)) == (5000, None), "the request decides"


REFUSALS: list[tuple[str, int | None, int | None, int, dict[str, Any]]] = [  # server, window, prompt, status, detail
    ("OpenAI, prompt and reply", 8192, 9200, 400, {"message": "This model's maximum context length is 8192 tokens. "
     "However, you requested 10200 tokens (9200 in the messages, 1000 in the completion)."}),
    ("OpenAI, without numbers", None, None, 400, {"code": "context_length_exceeded", "message": "Your input exceeds "
     "the context window of this model. Please adjust your input and try again."}),
    ("vLLM", 4096, 1200, 400, {"message": "'max_tokens' or 'max_completion_tokens' is too large: 5000. This model's "
     "maximum context length is 4096 tokens and your request has 1200 input tokens (5000 > 4096 - 1200)."}),
    ("vLLM, prompt alone", 4096, 5012, 400, {"message": "The decoder prompt (length 5012) is longer than the maximum "
     "model length of 4096."}),
    ("llama.cpp", 4096, 5023, 400, {"code": 400, "type": "exceed_context_size_error", "n_prompt_tokens": 5023,
     "n_ctx": 4096, "message": "the request exceeds the available context size, try increasing it"}),
    ("llama.cpp, embeddings", 512, 730, 500, {"message": "input (730 tokens) is too large to process. increase the "
     "physical batch size (current batch size: 512)"}),
    ("Ollama", None, None, 400, {"message": "the input length exceeds the context length"}),
    ("Mistral", 32768, 40123, 400, {"message": "Prompt contains 40123 tokens and 0 draft tokens, too large for model "
     "with 32768 maximum context length"}),
    ("Anthropic, prompt and reply", 200_000, 190_000, 400, {"message": "input length and `max_tokens` exceed context "
     "limit: 190000 + 20000 > 200000, decrease input length or `max_tokens` and try again"}),
    ("Gemini", 1_048_576, 1_200_000, 400, {"message": "The input token count (1200000) exceeds the maximum number of "
     "tokens allowed (1048576)."}),
    ("TGI", 4097, 4000, 422, {"message": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4097. "
     "Given: 4000 `inputs` tokens and 500 `max_new_tokens`"}),
    ("LM Studio", 4096, 5021, 400, {"message": "Trying to keep the first 5021 tokens when context the overflows. "
     "However, the model is loaded with context length of only 4096 tokens, which is not enough."}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("window_tokens", "prompt_tokens", "status", "detail"),
    [row[1:] for row in REFUSALS],
    ids=[row[0] for row in REFUSALS],
)
def test_a_refused_prompt_names_the_window(
    window_tokens: int | None, prompt_tokens: int | None, status: int, detail: dict[str, Any]
) -> None:
    codes = [str(detail[key]) for key in ("code", "type") if key in detail]
    assert refused_window(status, detail, codes, detail["message"]) == (window_tokens, prompt_tokens)


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (400, "max_tokens is too large: 100000. This model supports at most 16384 completion tokens"),
        (400, "Invalid value for context_length: expected an integer"),
        (429, "Too many tokens: prompt is too long for the limit of tokens per minute"),
    ],
)
def test_other_refusals_are_not_about_the_window(status: int, said: str) -> None:
    assert refused_window(status, {"message": said}, (), said) is None
