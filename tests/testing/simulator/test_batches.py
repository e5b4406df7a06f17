"""Files and batches through the real openai client."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import openai
import pytest
from openai.types import Batch

from hirag_dist.core.prompts.reply_parsing import MalformedReply, usable_text
from hirag_dist.core.prompts.templates import Prompts, describe_request
from hirag_dist.llm.rule_based import reply_to
from hirag_dist.testing.simulator import Simulator, SimulatorOptions
from hirag_dist.testing.simulator.app import Endpoint
from hirag_dist.testing.simulator.handlers import CHAT, EMBEDDINGS
from hirag_dist.types import ChatReply, Message

LOOPBACK = "127.0.0.1:0"
REQUESTS = [
    describe_request(f"Scrooge {i}", "person", [f"Scrooge {i} is a miser.", "He lives in London."], Prompts(), 60)
    for i in range(12)
]


def _body(at: int, **more: Any) -> dict[str, Any]:
    messages = [{"role": message.role, "content": message.content} for message in REQUESTS[at].messages]
    return {"model": "m", "messages": messages, **more}


def _line(at: int, **changes: Any) -> dict[str, Any]:
    return {"custom_id": f"r{at}", "method": "POST", "url": CHAT, "body": _body(at), **changes}


def _jsonl(lines: list[Any]) -> bytes:
    return "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines).encode()


@pytest.fixture
async def simulator() -> AsyncIterator[Simulator]:
    async with Simulator(SimulatorOptions(listen=LOOPBACK)) as running:
        yield running


@pytest.fixture
async def client(simulator: Simulator) -> AsyncIterator[openai.AsyncOpenAI]:
    async with _client(simulator) as made:
        yield made


def _client(simulator: Simulator) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(api_key="any", base_url=simulator.base_url, max_retries=0)


async def _begin(client: openai.AsyncOpenAI, lines: list[Any], endpoint: Any = CHAT) -> Batch:
    stored = await client.files.create(file=("input.jsonl", _jsonl(lines)), purpose="batch")
    return await client.batches.create(
        input_file_id=stored.id, endpoint=endpoint, completion_window="24h", metadata={"run": "one"}
    )


async def _end(client: openai.AsyncOpenAI, batch: Batch) -> Batch:
    async with asyncio.timeout(20):
        while batch.status not in ("completed", "failed", "expired", "cancelled"):
            batch = await client.batches.retrieve(batch.id)
    return batch


async def _lines(client: openai.AsyncOpenAI, file_id: str | None) -> list[dict[str, Any]]:
    if file_id is None:
        return []
    content = await client.files.content(file_id)
    return [json.loads(line) for line in content.text.splitlines()]


async def test_files_are_stored_and_removed(client: openai.AsyncOpenAI) -> None:
    content = b'{"a": 1}\n' * 100_000  # more than one chunk
    stored = await client.files.create(file=("input.jsonl", content), purpose="batch")
    assert (stored.bytes, stored.filename, stored.purpose, stored.object) == (
        len(content),
        "input.jsonl",
        "batch",
        "file",
    )
    assert (await client.files.content(stored.id)).content == content
    assert await client.files.retrieve(stored.id) == stored
    other = await client.files.create(file=("other.txt", b""), purpose="user_data")
    assert [file.id async for file in client.files.list()] == [other.id, stored.id]
    assert [file.id async for file in client.files.list(order="asc", limit=1)] == [stored.id, other.id]
    assert [file.id async for file in client.files.list(purpose="batch")] == [stored.id]
    assert (await client.files.delete(stored.id)).deleted
    for call in (client.files.retrieve, client.files.content, client.files.delete):
        with pytest.raises(openai.NotFoundError, match="No such File object"):
            await call(stored.id)


async def test_wrong_uploads(client: openai.AsyncOpenAI, simulator: Simulator) -> None:
    with pytest.raises(openai.BadRequestError, match="purpose"):
        await client.files.create(file=("input.jsonl", b"{}"), purpose="poetry")  # type: ignore[arg-type]
    async with aiohttp.ClientSession() as http:
        form = aiohttp.FormData({"purpose": "batch"}, default_to_multipart=True)
        for body, said in ((b"{}", "multipart/form-data"), (form, "'file'")):
            async with http.post(f"{simulator.base_url}/files", data=body) as response:
                assert response.status == 400
                assert said in (await response.json())["error"]["message"]
        headers = {"Content-Type": "multipart/form-data"}
        async with http.post(f"{simulator.base_url}/files", data=b"x", headers=headers) as response:
            assert response.status == 400
    assert [file async for file in client.files.list()] == []
    with pytest.raises(openai.BadRequestError, match="limit"):
        await client.files.list(limit=0)
    with pytest.raises(openai.BadRequestError, match="after"):
        await client.files.list(after="file-none")


async def test_a_batch_answers_as_single_calls_do(client: openai.AsyncOpenAI, simulator: Simulator) -> None:
    batch = await _begin(client, [_line(at) for at in range(12)])
    assert (batch.status, batch.object, batch.metadata) == ("validating", "batch", {"run": "one"})
    done = await _end(client, batch)
    assert (done.status, done.error_file_id, done.errors, done.model) == ("completed", None, None, "m")
    assert done.request_counts is not None
    assert (done.request_counts.total, done.request_counts.completed, done.request_counts.failed) == (12, 12, 0)
    times = (done.created_at, done.in_progress_at, done.finalizing_at, done.completed_at)
    assert list(times) == sorted(times, key=lambda at: at or 0)
    lines = await _lines(client, done.output_file_id)
    names = [line["custom_id"] for line in lines]
    assert sorted(names) == sorted(f"r{at}" for at in range(12)) != names
    assert names != [f"r{at}" for at in range(12)]
    for line in lines:
        assert (line["error"], line["response"]["status_code"]) == (None, 200)
        reply = line["response"]["body"]
        text = reply_to(REQUESTS[int(line["custom_id"][1:])].messages, None)
        assert reply["choices"][0]["message"]["content"] == text
    assert done.usage is not None
    assert done.usage.output_tokens == sum(line["response"]["body"]["usage"]["completion_tokens"] for line in lines)
    stats = simulator.endpoint.stats()
    assert (stats["total"]["calls"], stats["batch"]["calls"], stats["batch"]["batches"]) == (0, 12, {"completed": 1})
    assert stats["batch"]["input_tokens"] == done.usage.input_tokens
    output = await client.files.retrieve(done.output_file_id or "")
    assert (output.purpose, output.bytes > 0) == ("batch_output", True)


async def test_a_line_and_a_call_are_the_same_request(client: openai.AsyncOpenAI, simulator: Simulator) -> None:
    body = json.dumps(_body(0), ensure_ascii=False, separators=(",", ":")).encode()
    async with aiohttp.ClientSession() as http, http.post(f"{simulator.base_url}/chat/completions", data=body) as reply:
        assert reply.status == 200
    await _end(client, await _begin(client, [_line(0), _line(1)]))
    assert simulator.endpoint.stats()["batch"]["repeats"] == 1


async def test_a_batch_of_embeddings(client: openai.AsyncOpenAI) -> None:
    lines = [_line(at, url=EMBEDDINGS, body={"model": "e", "input": [f"text {at}", "x"]}) for at in range(3)]
    done = await _end(client, await _begin(client, lines, EMBEDDINGS))
    found = {line["custom_id"]: line["response"]["body"] for line in await _lines(client, done.output_file_id)}
    alone = await client.embeddings.create(model="e", input=["text 1", "x"], encoding_format="float")
    assert [item["embedding"] for item in found["r1"]["data"]] == [item.embedding for item in alone.data]


async def test_lines_that_cannot_be_done_are_in_the_error_file(client: openai.AsyncOpenAI) -> None:
    lines = [
        _line(0),
        _line(1, body=_body(1, stream=True)),
        _line(2, body={"model": "m", "messages": []}),
        _line(3, body={"model": "m", "messages": [{"role": "user", "content": "hello"}]}),
    ]
    done = await _end(client, await _begin(client, lines))
    assert done.status == "completed"
    assert done.request_counts is not None
    assert (done.request_counts.completed, done.request_counts.failed) == (1, 3)
    errors = {line["custom_id"]: line for line in await _lines(client, done.error_file_id)}
    assert set(errors) == {"r1", "r2", "r3"}
    for line, said in (("r1", "streamed"), ("r2", "messages"), ("r3", "needs a language model")):
        assert (errors[line]["error"], errors[line]["response"]["status_code"]) == (None, 400)
        assert said in errors[line]["response"]["body"]["error"]["message"]


BAD_LINES: list[tuple[list[Any], str, int | None]] = [
    ([], "empty_file", None),
    (["", "  "], "empty_file", None),
    ([_line(0), "{", _line(1)], "invalid_json_line", 2),
    (["[]"], "invalid_json_line", 1),
    ([_line(0), _line(1, custom_id="")], "missing_required_parameter", 2),
    ([_line(0, body=None)], "missing_required_parameter", 1),
    ([_line(0, body={"messages": []})], "missing_required_parameter", 1),
    ([_line(0), "", _line(0)], "duplicate_custom_id", 3),
    ([_line(0, method="GET")], "invalid_method", 1),
    ([_line(0, url=EMBEDDINGS)], "url_mismatch", 1),
    ([_line(0), _line(1, body={"model": "another", "messages": []})], "model_mismatch", 2),
]


@pytest.mark.parametrize(("lines", "code", "number"), BAD_LINES)
async def test_an_input_with_faults_fails(
    client: openai.AsyncOpenAI, simulator: Simulator, lines: list[Any], code: str, number: int | None
) -> None:
    done = await _end(client, await _begin(client, lines))
    assert (done.status, done.output_file_id, done.error_file_id) == ("failed", None, None)
    assert done.failed_at is not None
    assert done.errors is not None
    assert [(error.code, error.line) for error in done.errors.data or ()] == [(code, number)]
    assert simulator.endpoint.stats()["batch"]["calls"] == 0


async def test_too_much_in_one_batch(client: openai.AsyncOpenAI) -> None:
    lines = [_line(at, url=EMBEDDINGS, body={"model": "e", "input": ["x"] * 30_000}) for at in range(2)]
    done = await _end(client, await _begin(client, lines, EMBEDDINGS))
    assert done.errors is not None
    assert [(error.code, error.line) for error in done.errors.data or ()] == [("too_many_tasks", 2)]
    small = {"custom_id": "", "method": "POST", "url": CHAT, "body": {"model": "m"}}
    done = await _end(client, await _begin(client, [small | {"custom_id": str(at)} for at in range(50_001)]))
    assert done.errors is not None
    assert [(error.code, error.line) for error in done.errors.data or ()] == [("too_many_tasks", None)]


async def test_requests_that_cannot_be_a_batch(client: openai.AsyncOpenAI) -> None:
    good = await client.files.create(file=("input.jsonl", _jsonl([_line(0)])), purpose="batch")
    other = await client.files.create(file=("input.jsonl", b"{}"), purpose="user_data")
    fine: dict[str, Any] = {"input_file_id": good.id, "endpoint": CHAT, "completion_window": "24h"}
    for change, said in (
        ({"input_file_id": "file-none"}, "No such File object: file-none"),
        ({"input_file_id": other.id}, "purpose is 'user_data'"),
        ({"input_file_id": None}, "'input_file_id'"),
        ({"endpoint": "/v1/responses"}, "/v1/responses"),
        ({"completion_window": "1h"}, "'24h'"),
        ({"metadata": {"k": "v" * 513}}, "metadata"),
        ({"metadata": {str(at): "" for at in range(17)}}, "metadata"),
    ):
        with pytest.raises(openai.BadRequestError, match=said):
            await client.batches.create(**fine | change)
    assert [batch async for batch in client.batches.list()] == []
    with pytest.raises(openai.NotFoundError, match="No batch found"):
        await client.batches.retrieve("batch_none")


async def test_batches_are_listed_newest_first(client: openai.AsyncOpenAI) -> None:
    ids = [(await _begin(client, [_line(0)])).id for _ in range(3)]
    assert [batch.id async for batch in client.batches.list(limit=2)] == ids[::-1]
    with pytest.raises(openai.BadRequestError, match="limit"):
        await client.batches.list(limit=101)


async def test_a_batch_takes_its_time_outside_the_limits_and_can_be_cancelled() -> None:
    options = SimulatorOptions(listen=LOOPBACK, batch_latency_ms=3_600_000.0, rpm=1.0, max_concurrent=1)
    async with Simulator(options) as simulator, _client(simulator) as client:
        batch = await _begin(client, [_line(at) for at in range(3)])
        reply = await client.chat.completions.create(**_body(5))
        assert reply.choices[0].message.content
        assert (await client.batches.retrieve(batch.id)).status == "validating"
        cancelling = await client.batches.cancel(batch.id)
        assert (cancelling.status, cancelling.cancelling_at is not None) == ("cancelling", True)
        done = await _end(client, cancelling)
        assert (done.status, done.output_file_id) == ("cancelled", None)
        errors = await _lines(client, done.error_file_id)
        assert [line["error"]["code"] for line in errors] == ["batch_cancelled"] * 3
        with pytest.raises(openai.ConflictError, match="status 'cancelled'"):
            await client.batches.cancel(batch.id)
        stats = simulator.endpoint.stats()
        assert (stats["batch"]["calls"], stats["total"]["calls"], stats["total"]["rate_limited"]) == (0, 1, 0)


async def test_a_cancelled_batch_keeps_what_was_done() -> None:
    options = SimulatorOptions(listen=LOOPBACK, batch_latency_ms=2000.0)
    async with Simulator(options) as simulator, _client(simulator) as client:
        async with asyncio.timeout(20):
            batch = await _begin(client, [_line(at) for at in range(12)])
            while batch.request_counts is None or batch.request_counts.completed < 2:
                batch = await client.batches.retrieve(batch.id)
            assert batch.status == "in_progress"
            await client.batches.cancel(batch.id)
            done = await _end(client, batch)
            results, errors = [await _lines(client, each) for each in (done.output_file_id, done.error_file_id)]
    assert done.status == "cancelled"
    assert 2 <= len(results) < 12
    assert len(results) + len(errors) == 12


async def test_lines_expire_and_can_be_asked_again() -> None:
    async with Simulator(SimulatorOptions(listen=LOOPBACK, batch_expire_rate=0.5)) as simulator:
        async with _client(simulator) as client:
            left = list(range(12))
            rounds = 0
            while left:
                done = await _end(client, await _begin(client, [_line(at) for at in left]))
                results, errors = [await _lines(client, each) for each in (done.output_file_id, done.error_file_id)]
                assert done.status == ("expired" if errors else "completed")
                assert (done.expired_at is None) == (not errors)
                assert all(line["error"]["code"] == "batch_expired" and line["response"] is None for line in errors)
                assert len(results) + len(errors) == len(left)
                left = sorted(int(line["custom_id"][1:]) for line in errors)
                rounds += 1
                assert rounds < 20
        stats = simulator.endpoint.stats()["batch"]
    assert rounds > 1
    assert (stats["calls"], stats["repeats"]) == (12, 0)
    assert stats["faults"]["expired"] >= 1


async def test_faults_strike_lines() -> None:
    rates = {"fail_rate": 0.3, "malformed_rate": 0.3, "truncate_rate": 0.3, "hang_rate": 0.1}
    async with Simulator(SimulatorOptions(listen=LOOPBACK, seed=2, **rates)) as simulator, _client(simulator) as client:  # type: ignore[arg-type]
        done = await _end(client, await _begin(client, [_line(at) for at in range(12)]))
        results, errors = [await _lines(client, each) for each in (done.output_file_id, done.error_file_id)]
        faults = simulator.endpoint.stats()["batch"]["faults"]
    assert done.status == "completed"
    assert len(errors) == faults["fail"]
    assert {line["response"]["status_code"] for line in errors} <= {500, 502, 503, 529}
    unreadable = 0
    for line in results:
        choice = line["response"]["body"]["choices"][0]
        try:
            usable_text(ChatReply(choice["message"]["content"], choice["finish_reason"]))
        except MalformedReply:
            unreadable += 1
    assert unreadable == faults["malformed"] + faults["truncate"] > 1
    assert set(faults) == {"fail", "malformed", "truncate"}


async def test_a_failure_of_the_model_is_one_line_s(caplog: pytest.LogCaptureFixture) -> None:
    def reply(messages: Sequence[Message], form: str | None, seed: int) -> str:
        return "fine" if "Scrooge 0" in messages[1].content else str(1 / 0)

    options = SimulatorOptions(listen=LOOPBACK)
    async with Simulator(options, Endpoint(options, reply=reply)) as simulator, _client(simulator) as client:
        done = await _end(client, await _begin(client, [_line(0), _line(1)]))
        (error,) = await _lines(client, done.error_file_id)
    assert done.request_counts is not None
    assert (done.status, done.request_counts.completed) == ("completed", 1)
    assert (error["custom_id"], error["response"]["status_code"]) == ("r1", 500)
    assert "ZeroDivisionError" in caplog.text


async def test_a_file_deleted_under_its_batch_fails_it() -> None:
    async with Simulator(SimulatorOptions(listen=LOOPBACK)) as simulator, _client(simulator) as client:
        stored = await client.files.create(file=("input.jsonl", _jsonl([_line(0)])), purpose="batch")
        simulator.endpoint.files.get(stored.id).path.unlink()
        batch = await client.batches.create(input_file_id=stored.id, endpoint=CHAT, completion_window="24h")
        done = await _end(client, batch)
        assert done.status == "failed"
        assert done.errors is not None


async def test_nothing_is_left_on_disk() -> None:
    async with Simulator(SimulatorOptions(listen=LOOPBACK)) as simulator, _client(simulator) as client:
        stored = await client.files.create(file=("input.jsonl", b"{}"), purpose="batch")
        folder: Path = simulator.endpoint.files.get(stored.id).path.parent
        assert folder.is_dir()
    assert not folder.exists()
