"""Faults and the counts as callers see them, through the real openai client."""

from __future__ import annotations

import asyncio
from typing import Any

import openai
import pytest

from hirag_dist.core.prompts.reply_parsing import MalformedReply, parse_extraction
from hirag_dist.core.prompts.templates import Prompts, describe_request, extraction_request
from hirag_dist.llm.rule_based import reply_to
from hirag_dist.testing.simulator import Simulator, SimulatorOptions
from hirag_dist.testing.simulator.handlers import CHAT
from hirag_dist.types import ChatReply

LOOPBACK = "127.0.0.1:0"
DESCRIBE = describe_request("Scrooge", "person", ["Scrooge is a miser.", "Scrooge lives in London."], Prompts(), 60)
EXTRACT = extraction_request(
    "extract-graph",
    "Ebenezer Scrooge owns a counting house in London. Bob Cratchit works for Ebenezer Scrooge in London.",
    Prompts(),
    ["person", "location"],
    None,
)


def _messages(request: Any) -> list[Any]:
    return [{"role": message.role, "content": message.content} for message in request.messages]


DESCRIBE_MESSAGES, EXTRACT_MESSAGES = _messages(DESCRIBE), _messages(EXTRACT)


def _client(url: str, timeout: float = 20.0) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(api_key="any", base_url=url, max_retries=0, timeout=timeout)


async def _outcome(client: openai.AsyncOpenAI, model: str, stream: bool = False) -> str:
    """Ask once; return what came: a text's finish_reason, or the error's name and status."""
    try:
        if stream:
            pieces = await client.chat.completions.create(model=model, messages=DESCRIBE_MESSAGES, stream=True)
            return [choice.finish_reason async for piece in pieces for choice in piece.choices][-1] or "unfinished"
        reply = await client.chat.completions.create(model=model, messages=DESCRIBE_MESSAGES)
        return reply.choices[0].finish_reason
    except openai.APIStatusError as error:
        return f"{type(error).__name__} {error.status_code} {error.response.headers.get('retry-after')}"
    except openai.APIError as error:
        return type(error).__name__


async def test_failures_are_of_several_kinds_and_repeat() -> None:
    found = []
    for _ in range(2):
        async with Simulator(SimulatorOptions(listen=LOOPBACK, fail_rate=1.0)) as simulator:
            async with _client(simulator.base_url) as client:
                found.append([await _outcome(client, f"m{i}") for i in range(24)])
            stats = simulator.endpoint.stats()["total"]
            assert (stats["calls"], stats["errors"], stats["faults"]) == (0, 24, {"fail": 24})
            assert stats["output_tokens"] == 0
    assert found[0] == found[1]
    assert set(found[0]) == {
        *("InternalServerError 500 None", "InternalServerError 502 None"),
        *("InternalServerError 503 None", "InternalServerError 503 1"),
        *("InternalServerError 529 None", "InternalServerError 529 1"),
    }


async def test_malformed_replies_are_paid_for_and_cannot_be_read() -> None:
    options = SimulatorOptions(listen=LOOPBACK, malformed_rate=1.0)
    texts = set()
    async with Simulator(options) as simulator, _client(simulator.base_url) as client:
        for i in range(30):
            reply = await client.chat.completions.create(model=f"m{i}", messages=EXTRACT_MESSAGES)
            assert reply.usage is not None
            text = reply.choices[0].message.content
            assert text is not None
            texts.add(text)
            with pytest.raises(MalformedReply):
                parse_extraction(ChatReply(text, reply.choices[0].finish_reason))
        again = await client.chat.completions.create(model="m0", messages=EXTRACT_MESSAGES)
        assert again.choices[0].message.content is not None
        stats = simulator.endpoint.stats()["endpoints"][CHAT]
    assert len(texts) >= 6
    assert (stats["calls"], stats["repeats"]) == (31, 1)
    assert stats["input_tokens"] > 0


async def test_truncated_replies_say_so_streamed_or_not() -> None:
    whole = reply_to(DESCRIBE.messages, None)
    options = SimulatorOptions(listen=LOOPBACK, truncate_rate=1.0)
    async with Simulator(options) as simulator, _client(simulator.base_url) as client:
        reply = await client.chat.completions.create(model="m", messages=DESCRIBE_MESSAGES)
        text = reply.choices[0].message.content or ""
        assert reply.choices[0].finish_reason == "length"
        assert whole.startswith(text)
        assert len(text) < len(whole)
        assert await _outcome(client, "m", stream=True) == "length"


async def test_calls_that_hang_last_until_the_caller_goes_or_the_endpoint_stops() -> None:
    async with asyncio.timeout(20):
        async with Simulator(SimulatorOptions(listen=LOOPBACK, hang_rate=1.0)) as simulator:
            async with _client(simulator.base_url, timeout=0.2) as client:
                asked = [_outcome(client, f"m{i}") for i in range(4)]
                assert await asyncio.gather(*asked) == ["APITimeoutError"] * 4
            n_before = simulator.endpoint.stats()["total"]["faults"].get("hang", 0)  # those that arrived in time
            async with _client(simulator.base_url) as client:
                waiting = [asyncio.create_task(_outcome(client, f"m{i}")) for i in range(4)]
                while simulator.endpoint.stats()["total"]["faults"].get("hang", 0) < n_before + 4:
                    await asyncio.sleep(0)
                while simulator.endpoint.stats()["total"]["in_flight"] > 4:
                    await asyncio.sleep(0.01)  # the first four are seen to have gone
                await simulator.__aexit__(None, None, None)
                assert set(await asyncio.gather(*waiting)) == {"APIConnectionError"}
        assert simulator.endpoint.stats()["total"]["in_flight"] == 0
