"""The window of a model as servers tell it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from hirag_dist.llm.capabilities import ModelWindow, find_model_window
from hirag_dist.llm.endpoints.openai_client import EndpointSettings
from tests.llm.endpoints.loopback import loopback


@asynccontextmanager
async def serving(answers: Mapping[str, Any]) -> AsyncIterator[EndpointSettings]:
    """Serve JSON by path; 404 elsewhere."""

    async def answer(request: web.Request) -> web.Response:
        found = answers.get(request.path)
        return (
            web.json_response({"error": {"message": "no"}}, status=404) if found is None else web.json_response(found)
        )

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
