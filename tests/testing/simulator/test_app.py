"""The simulated endpoint as its callers see it: the real openai client, and plain HTTP for what is wrong."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

import aiohttp
import openai
import pytest

from hirag_dist.core.prompts.templates import Prompts, describe_request
from hirag_dist.core.text.tokens import counter
from hirag_dist.errors import RateLimited
from hirag_dist.llm.endpoints.hashing import HashingEmbedder
from hirag_dist.llm.endpoints.openai_chat import OpenAiChat
from hirag_dist.llm.endpoints.openai_client import EndpointSettings
from hirag_dist.llm.endpoints.openai_embeddings import OpenAiEmbedder
from hirag_dist.llm.rule_based import reply_to
from hirag_dist.testing.simulator import Simulator, SimulatorOptions
from hirag_dist.testing.simulator.app import Endpoint
from hirag_dist.types import FloatMatrix

REQUEST = describe_request("Scrooge", "person", ["Scrooge is a miser.", "Scrooge lives in London."], Prompts(), 60)
MESSAGES: list[Any] = [{"role": message.role, "content": message.content} for message in REQUEST.messages]
LOOPBACK = "127.0.0.1:0"


@pytest.fixture
async def simulator() -> AsyncIterator[Simulator]:
    async with Simulator(SimulatorOptions(listen=LOOPBACK)) as running:
        yield running


@pytest.fixture
async def client(simulator: Simulator) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(api_key="any", base_url=simulator.base_url, max_retries=0) as made:
        yield made


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


async def test_completes_as_the_model_in_process(client: openai.AsyncOpenAI) -> None:
    reply = await client.chat.completions.create(model="some", messages=MESSAGES)
    text = reply_to(REQUEST.messages, None)
    assert (reply.choices[0].message.content, reply.choices[0].finish_reason) == (text, "stop")
    assert (reply.model, reply.object) == ("some", "chat.completion")
    assert reply.id.startswith("chatcmpl-")
    count = counter("o200k_base")
    assert reply.usage is not None
    assert reply.usage.prompt_tokens == sum(count(message.content) + 4 for message in REQUEST.messages) + 3
    assert reply.usage.completion_tokens == count(text)
    assert reply.usage.prompt_tokens_details is not None
    assert reply.usage.prompt_tokens_details.cached_tokens == 0


BAD_BODIES: list[tuple[str, Any, str]] = [
    ("chat/completions", "{", "parse the JSON"),
    ("chat/completions", {"messages": MESSAGES}, "'model'"),
    ("chat/completions", {"model": "m", "messages": [{"role": "user", "content": 3}]}, "messages[0].content"),
    ("chat/completions", {"model": "m", "messages": MESSAGES, "response_format": {"type": "xml"}}, "response_format"),
    ("embeddings", {"model": "m", "input": [1, 2]}, "input[0]"),
]


@pytest.mark.parametrize(("path", "body", "said"), BAD_BODIES)
async def test_wrong_bodies(simulator: Simulator, http: aiohttp.ClientSession, path: str, body: Any, said: str) -> None:
    data = body if isinstance(body, str) else json.dumps(body)
    async with http.post(f"{simulator.base_url}/{path}", data=data) as response:
        error = (await response.json())["error"]
    assert (response.status, error["type"]) == (400, "invalid_request_error")
    assert said in error["message"]
    assert set(error) == {"message", "type", "param", "code"}


async def test_above_its_limit_it_says_when_to_come_back() -> None:
    options = SimulatorOptions(listen=LOOPBACK, rpm=1.0, tpm=100_000.0)
    async with Simulator(options) as simulator:
        chat = OpenAiChat(EndpointSettings("s", simulator.base_url, "", "m"), len)
        await chat.complete(REQUEST)
        assert chat.rate_limits is not None
        assert (chat.rate_limits.requests, chat.rate_limits.remaining_requests) == (1.0, 0.0)
        with pytest.raises(RateLimited, match="Rate limit reached for requests") as caught:
            await chat.complete(REQUEST)
        assert caught.value.retry_after_s == pytest.approx(60.0, abs=10.0)
        assert simulator.endpoint.stats()["total"]["rate_limited"] == 1
        await chat.close()


class HeldEmbedder(HashingEmbedder):
    """Embeds on release; signals when a caller waits."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting = asyncio.Semaphore(0)
        self.go = asyncio.Event()

    async def embed(self, texts: Sequence[str]) -> FloatMatrix:
        self.waiting.release()
        await self.go.wait()
        return self.embed_now(texts)


async def test_takes_so_many_at_a_time_and_no_more() -> None:
    options = SimulatorOptions(listen=LOOPBACK, max_concurrent=2)
    held = HeldEmbedder()
    async with Simulator(options, Endpoint(options, embedder=held)) as simulator:
        settings = EndpointSettings("s", simulator.base_url, "", "m")
        embedder = OpenAiEmbedder(settings, held.dim, len, lambda text, n_tokens: text)
        calls = [asyncio.create_task(embedder.embed([text])) for text in ("one", "two")]
        for _ in calls:
            await held.waiting.acquire()
        with pytest.raises(RateLimited, match="concurrent requests: limit 2") as caught:
            await embedder.embed(["three"])
        assert caught.value.retry_after_s == 0.05
        held.go.set()
        await asyncio.gather(*calls)
        await embedder.embed(["three"])
        stats = simulator.endpoint.stats()["total"]
        assert (stats["calls"], stats["rate_limited"], stats["most_in_flight"]) == (3, 1, 2)
        await embedder.close()
