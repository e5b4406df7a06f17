"""Faults, the log and the counts as callers see them, through the real openai client."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import aiohttp
import openai
import pytest

from hirag_dist.core.prompts.reply_parsing import MalformedReply, parse_extraction
from hirag_dist.core.prompts.templates import Prompts, describe_request, extraction_request
from hirag_dist.errors import ConfigError
from hirag_dist.llm.rule_based import reply_to
from hirag_dist.testing.simulator import Simulator, SimulatorOptions, SimulatorThread
from hirag_dist.testing.simulator.app import Endpoint
from hirag_dist.testing.simulator.handlers import CHAT, EMBEDDINGS
from hirag_dist.types import ChatReply, Message

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


async def test_limits_and_waits_need_not_be_told() -> None:
    for options in (
        SimulatorOptions(listen=LOOPBACK, fail_rate=1.0, limit_headers=False, rpm=1e6),
        SimulatorOptions(listen=LOOPBACK, storm_rate=1.0, limit_headers=False),
        SimulatorOptions(listen=LOOPBACK, rpm=1e-6, limit_headers=False),
    ):
        async with Simulator(options) as simulator, aiohttp.ClientSession() as http:
            for i in range(20):
                body = {"model": f"m{i}", "messages": DESCRIBE_MESSAGES}
                async with http.post(f"{simulator.base_url}/chat/completions", json=body) as response:
                    names = {name.lower() for name in response.headers}
                    assert not {name for name in names if "ratelimit" in name or "retry" in name}


async def test_a_fault_may_strike_again_and_is_bounded() -> None:
    options = SimulatorOptions(listen=LOOPBACK, fail_rate=1.0, max_faults_per_request=2)
    async with Simulator(options) as simulator, _client(simulator.base_url) as client:
        said = [(await _outcome(client, "m")).split()[0] for _ in range(4)]
    assert said == ["InternalServerError", "InternalServerError", "stop", "stop"]


async def test_asking_again_with_what_was_wrong_is_the_same_request() -> None:
    options = SimulatorOptions(listen=LOOPBACK, malformed_rate=1.0, max_faults_per_request=2)
    again = [{"role": "user", "content": "That reply cannot be used."}]
    said = [{"role": "assistant", "content": "something"}]
    async with Simulator(options) as simulator, _client(simulator.base_url) as client:
        for more in ([], said + again, again, said + again + said + again):
            await client.chat.completions.create(model="m", messages=[*DESCRIBE_MESSAGES, *more])
        assert simulator.endpoint.stats()["total"]["faults"] == {"malformed": 2}
        await client.chat.completions.create(model="m", messages=EXTRACT_MESSAGES)
        assert simulator.endpoint.stats()["total"]["faults"] == {"malformed": 3}


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
    assert (stats["calls"], stats["repeats"], stats["repeats_of_faulty"]) == (31, 0, 1)
    assert stats["input_tokens"] > 0


async def test_the_probe_for_schemas_is_never_damaged() -> None:
    schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}}
    described: Any = {"type": "json_schema", "json_schema": {"name": "probe", "strict": True, "schema": schema}}
    options = SimulatorOptions(listen=LOOPBACK, malformed_rate=0.5, truncate_rate=0.5)
    async with Simulator(options) as simulator, _client(simulator.base_url) as client:
        for _ in range(8):
            reply = await client.chat.completions.create(
                model="m", messages=[{"role": "user", "content": "?"}], response_format=described
            )
            assert reply.choices[0].message.content == '{"ok":true}'
        assert simulator.endpoint.stats()["total"]["faults"] == {}


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


@pytest.mark.parametrize("stream", [False, True])
async def test_dropped_connections(stream: bool) -> None:
    async with Simulator(SimulatorOptions(listen=LOOPBACK, drop_rate=1.0)) as simulator:
        async with aiohttp.ClientSession() as http:
            kinds = set()
            for i in range(12):
                body = {"model": f"m{i}", "messages": DESCRIBE_MESSAGES, "stream": stream}
                try:
                    async with http.post(f"{simulator.base_url}/chat/completions", json=body) as response:
                        await response.read()
                except aiohttp.ServerDisconnectedError:
                    kinds.add("before any byte")
                except aiohttp.ClientPayloadError:
                    kinds.add("in the middle")
        async with _client(simulator.base_url) as client:
            if not stream:
                assert {await _outcome(client, f"m{i}") for i in range(6)} == {"APIConnectionError"}
        stats = simulator.endpoint.stats()["total"]
        assert (stats["calls"], stats["abandoned"], stats["in_flight"]) == (0, 0, 0)
    assert kinds == {"before any byte", "in the middle"}


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


async def test_storms_are_429s_that_count_as_no_attempt() -> None:
    options = SimulatorOptions(listen=LOOPBACK, storm_rate=0.3, fail_rate=0.5, seed=5)
    async with Simulator(options) as simulator, _client(simulator.base_url) as client:
        said = [(await _outcome(client, "m")) for _ in range(60)]
        stats = simulator.endpoint.stats()["total"]
    kinds = Counter(each.split()[0] for each in said)
    assert kinds["RateLimitError"] == stats["rate_limited"] == stats["faults"]["storm"] > 5
    async with (
        Simulator(SimulatorOptions(listen=LOOPBACK, fail_rate=0.5, seed=5)) as fair,
        _client(fair.base_url) as client,
    ):
        unstormed = [each for each in said if not each.startswith("RateLimitError")]
        assert unstormed == [await _outcome(client, "m") for _ in unstormed]


async def test_a_prompt_that_came_before_is_reported_as_cached() -> None:
    instructions = "Task: describe\n\n" + "Keep every fact and say each once. " * 200
    messages: list[Any] = [{"role": "system", "content": instructions}, DESCRIBE_MESSAGES[1]]

    async def cached(simulator: Simulator) -> list[int]:
        async with _client(simulator.base_url) as client:
            found = []
            for ending in (" One.", " Two."):
                last = {"role": "user", "content": messages[1]["content"] + ending}
                reply = await client.chat.completions.create(model="m", messages=[messages[0], last])  # type: ignore[list-item]
                assert reply.usage is not None
                assert reply.usage.prompt_tokens_details is not None
                found.append(reply.usage.prompt_tokens_details.cached_tokens or 0)
            return found

    async with Simulator(SimulatorOptions(listen=LOOPBACK)) as simulator:
        first, second = await cached(simulator)
        assert first == 0
        assert second >= 1024
        assert second % 128 == 0
        assert simulator.endpoint.stats()["total"]["cached_tokens"] == second
    async with Simulator(SimulatorOptions(listen=LOOPBACK, prompt_cache=False)) as simulator:
        assert await cached(simulator) == [0, 0]


async def test_what_was_answered_before_is_counted_and_costs_no_work() -> None:
    asked = []

    def reply(messages: Sequence[Message], form: str | None, seed: int) -> str:
        asked.append(messages)
        return "a reply"

    options = SimulatorOptions(listen=LOOPBACK)
    async with Simulator(options, Endpoint(options, reply=reply)) as simulator, _client(simulator.base_url) as client:
        replies = [await client.chat.completions.create(model="m", messages=DESCRIBE_MESSAGES) for _ in range(3)]
        await client.chat.completions.create(model="another", messages=DESCRIBE_MESSAGES)
        await client.embeddings.create(model="e", input=["one", "two", "one"])
        await client.embeddings.create(model="e", input=["two", "three"])
        await client.embeddings.create(model="another", input=["two"])
        stats = simulator.endpoint.stats()["endpoints"]
    assert len(asked) == 2
    assert len({each.id for each in replies}) == 3
    assert len({each.choices[0].message.content for each in replies}) == 1
    assert (stats[CHAT]["calls"], stats[CHAT]["repeats"]) == (4, 2)
    assert (stats[EMBEDDINGS]["texts"], stats[EMBEDDINGS]["repeated_texts"]) == (6, 2)


async def test_a_reply_nobody_waits_for_is_abandoned_and_its_repeat_told_apart(tmp_path: Path) -> None:
    options = SimulatorOptions(listen=LOOPBACK, log=str(tmp_path / "log"))

    def reply(messages: Sequence[Message], form: str | None, seed: int) -> str:
        impatient.close()  # the caller goes while the model works
        return "a reply"

    endpoint = Endpoint(options, reply=reply)
    async with Simulator(options, endpoint) as simulator:
        host, port = simulator.base_url.removeprefix("http://").removesuffix("/v1").split(":")
        impatient = socket.create_connection((host, int(port)))
        body = json.dumps({"model": "m", "messages": DESCRIBE_MESSAGES}).encode()
        head = f"POST {CHAT} HTTP/1.1\r\nHost: h\r\nContent-Length: {len(body)}\r\n\r\n"
        impatient.sendall(head.encode() + body)
        async with asyncio.timeout(10):
            while not endpoint.stats()["total"]["abandoned"]:
                await asyncio.sleep(0)
        async with aiohttp.ClientSession() as http:
            for _ in range(2):
                async with http.post(f"{simulator.base_url}/chat/completions", data=body) as response:
                    assert response.status == 200
        chat = endpoint.stats()["endpoints"][CHAT]
    assert (chat["calls"], chat["abandoned"], chat["repeats_of_abandoned"], chat["repeats"]) == (2, 1, 1, 1)
    assert chat["abandoned_tokens"] == (chat["input_tokens"] + chat["output_tokens"]) / 2
    lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert [(line["abandoned"], line["status"], line["attempt"]) for line in lines] == [
        *((True, None, 0), (False, 200, 1), (False, 200, 2)),
    ]


async def test_the_log_tells_every_call(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    options = SimulatorOptions(listen=LOOPBACK, log=str(path), rpm=2.0)
    async with Simulator(options) as simulator, _client(simulator.base_url) as client:
        await client.chat.completions.create(model="m", messages=DESCRIBE_MESSAGES)
        await client.embeddings.create(model="e", input=["one text"])
        with pytest.raises(openai.RateLimitError):
            await client.chat.completions.create(model="m", messages=DESCRIBE_MESSAGES)
        with pytest.raises(openai.BadRequestError):
            await client.embeddings.create(model="e", input=[])
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(line["path"], line["status"], line["attempt"], line["in_flight"]) for line in lines] == [
        *((CHAT, 200, 0, 1), (EMBEDDINGS, 200, 0, 1), (CHAT, 429, None, 0), (EMBEDDINGS, 400, None, 0)),
    ]
    assert lines[0]["request"] == lines[2]["request"] != lines[1]["request"]
    assert lines[0]["input_tokens"] > lines[0]["output_tokens"] > 0 == lines[2]["input_tokens"]
    assert all(line["time"] > 1e9 and line["seconds"] >= 0 and line["fault"] is None for line in lines)


async def test_the_log_is_written_while_calls_come(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    async with Simulator(SimulatorOptions(listen=LOOPBACK, log=str(path))) as simulator:
        async with _client(simulator.base_url) as client:
            await client.embeddings.create(model="e", input=["one text"])
        async with asyncio.timeout(2.0):
            while not path.read_text():
                await asyncio.sleep(0.01)
    assert len(path.read_text().splitlines()) == 1


def test_a_log_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot write the log"):
        Endpoint(SimulatorOptions(log=os.fspath(tmp_path / "missing" / "log")))


def test_a_thread_tells_its_counts_while_it_runs_and_after() -> None:
    thread = SimulatorThread(SimulatorOptions(listen=LOOPBACK))
    with thread as url, openai.OpenAI(api_key="any", base_url=url, max_retries=0) as client:
        for done in range(1, 21):
            client.embeddings.create(model="e", input=["one text"])
            assert thread.stats()["total"]["calls"] == done
    assert thread.stats()["total"]["repeated_texts"] == 19
