"""The OpenAI backends against small handlers on loopback: what is sent, what is read, and every error in our words."""

from __future__ import annotations

import asyncio
import base64
import json
import pickle
import traceback
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from aiohttp import web

from hirag_dist.core.prompts.reply_validation import REPETITION, RepeatedReply, usable_text
from hirag_dist.core.prompts.templates import reply_schema
from hirag_dist.errors import ConfigError, HiragError, ModelUnavailable, RateLimited, RequestRejected, UnusableReply
from hirag_dist.llm.embedding import PaidEmbedder
from hirag_dist.llm.endpoints.openai_chat import OpenAiChat
from hirag_dist.llm.endpoints.openai_client import retry_after_s
from hirag_dist.llm.endpoints.openai_embeddings import OpenAiEmbedder
from hirag_dist.types import ChatReply, ChatRequest, Message
from tests.llm.endpoints.loopback import (
    KEY,
    Events,
    Script,
    chatting,
    completion,
    count_words,
    embedding,
    event,
    failure,
    first_words,
    read_stream,
    settings,
)

REQUEST = ChatRequest("extract", (Message("system", "Task: x"), Message("user", "four words are here")), "u1")
FORMED = replace(REQUEST, form="extract-graph")


async def raised(script: Script, **changes: Any) -> HiragError:
    """The error that `complete` raises, seen from `stream` too."""
    async with chatting(script, **changes) as (chat, _):
        with pytest.raises(HiragError) as caught:
            await chat.complete(REQUEST)
        with pytest.raises(type(caught.value)):
            await read_stream(chat, REQUEST)
    return caught.value


# What is sent


async def test_sends_the_request_in_the_endpoints_words() -> None:
    changes = {"max_tokens_field": "max_completion_tokens", "extra_body": {"top_p": 0.5}}
    async with chatting(lambda body: completion(), **changes) as (chat, stub):
        await chat.complete(replace(FORMED, max_tokens=7))
    assert stub.bodies == [
        {
            "model": "model-1",
            "messages": [{"role": "system", "content": "Task: x"}, {"role": "user", "content": "four words are here"}],
            "temperature": 0.0,
            "max_completion_tokens": 7,
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "extract-graph", "strict": True, "schema": reply_schema(FORMED)},
            },
            "top_p": 0.5,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
    ]
    assert stub.requests[0].headers["Authorization"] == f"Bearer {KEY}"
    assert stub.requests[0].headers["Content-Type"] == "application/json"


async def test_a_lone_surrogate_is_sent_as_a_question_mark() -> None:
    async with chatting(lambda body: completion(body["messages"][0]["content"])) as (chat, _):
        reply = await chat.complete(ChatRequest("answer", (Message("user", "a\ud800é"),), "u"))
    assert reply.text == "a?é"


# What is read


async def test_reads_text_reason_model_and_usage() -> None:
    usage = {"prompt_tokens": 11, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 8}}
    more = {"usage": usage, "model": "m-2", "message": {"reasoning_content": "hm"}}
    async with chatting(lambda body: completion("hi", "length", **more)) as (chat, _):
        reply = await chat.complete(REQUEST)
    assert replace(reply, reasoning_tokens=0) == ChatReply("hi", "length", "m-2", 11, 8, 3)


@pytest.mark.parametrize(
    ("answer", "text", "finish_reason"),
    [
        (lambda: completion(None, message={"refusal": "I will not"}), "I will not", "refusal"),
        (lambda: completion([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]), "ab", "stop"),
        (lambda: completion("fine", "MAX_TOKENS"), "fine", "length"),
        (lambda: completion("fine", None), "fine", "stop"),
        (lambda: failure(400, "filtered", code="content_filter"), "", "content_filter"),
    ],
)
async def test_refusals_parts_and_reasons(answer: Callable[[], web.Response], text: str, finish_reason: str) -> None:
    async with chatting(lambda body: answer()) as (chat, _):
        reply = await chat.complete(REQUEST)
    assert (reply.text, reply.finish_reason) == (text, finish_reason)


# Structured outputs


KEPT = {"ok": True, "sure": "yes", "percent": 99, "words": ["wet"]}


def no_forms(body: dict[str, Any]) -> web.Response:
    if "response_format" in body:
        return failure(400, "This response_format type is unavailable now")
    return completion("{}")


async def test_an_endpoint_without_schemas_is_told_in_words_from_then_on() -> None:
    async with chatting(no_forms) as (chat, stub):
        await chat.complete(FORMED)
        await chat.complete(FORMED)
        assert await chat.supports_forms() is False
    assert ["response_format" in body for body in stub.bodies] == [True, False, False]
    assert json.dumps(reply_schema(FORMED)) in stub.bodies[2]["messages"][0]["content"]


@pytest.mark.parametrize(
    ("script", "supported"),
    [
        (lambda body: completion(json.dumps(KEPT)), True),
        (lambda body: completion("Yes, water is wet."), False),
        (lambda body: completion(json.dumps(KEPT | {"because": "…"})), False),
        (no_forms, False),
    ],
    ids=["keeps to it", "ignores it", "adds to it", "refuses it"],
)
async def test_probes_for_schemas_once(script: Script, supported: bool) -> None:
    async with chatting(script) as (chat, stub):
        found = await asyncio.gather(*(chat.supports_forms() for _ in range(3)))
    assert found == [supported] * 3
    assert len(stub.bodies) == 1


@pytest.mark.parametrize(("structured", "supported"), [("json_schema", True), ("none", False)])
async def test_what_is_configured_is_not_probed(structured: str, supported: bool) -> None:
    async with chatting(no_forms, structured=structured) as (chat, stub):
        assert await chat.supports_forms() is supported
        if supported:
            with pytest.raises(RequestRejected, match="response_format"):
                await chat.complete(FORMED)
        assert len(stub.bodies) == int(supported)


# Streams


LONG = "The keeper of the harbour lit the lamp at dusk."


async def test_streams_pieces() -> None:
    usage = json.dumps({"choices": [], "usage": {"prompt_tokens": 12, "completion_tokens": 30}}).encode()
    events = [event(LONG), event(""), event("b"), event(None, "stop"), usage, b"[DONE]"]
    async with chatting(lambda body: Events(*events)) as (chat, _):
        pieces, reply = await read_stream(chat, REQUEST)
        whole = await chat.complete(REQUEST)
    assert pieces == f"{LONG}b"
    assert reply == whole == ChatReply(f"{LONG}b", "stop", "model-1", input_tokens=12, output_tokens=30)


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_reply_that_repeats_itself_is_read_no_further(streamed: bool) -> None:
    record = '{"id": 1, "name": "Ada", "type": "person", "description": "Wrote the first program."}, '

    class Loop(Events):
        async def write_eof(self, data: bytes = b"") -> None:
            while True:  # until the client hangs up
                await asyncio.sleep(0)
                await self.write(b"".join(b"data: " + event(word) + b"\n\n" for word in record.split(" ")))

    async with chatting(lambda body: Loop()) as (chat, _):
        shown, reply = await read_stream(chat, REQUEST) if streamed else ("", await chat.complete(REQUEST))
    assert 4500 <= len(reply.text) < 100_000
    assert reply.output_tokens > 0
    if streamed:
        assert (shown.rstrip(), reply.finish_reason) == (reply.text, REPETITION)
        return
    with pytest.raises(RepeatedReply):
        usable_text(reply)


async def test_a_stream_that_ends_early_is_no_reply() -> None:
    async with chatting(lambda body: Events(event("a"))) as (chat, _):
        with pytest.raises(ModelUnavailable, match="broke off"):
            await read_stream(chat, REQUEST)


# Errors


@pytest.mark.parametrize(("status", "hint"), [(400, ""), (401, "api_key"), (404, "base_url"), (500, "")])
async def test_trouble_that_stays_or_may_pass(status: int, hint: str) -> None:
    error = await raised(lambda body: failure(status, "bad"))
    assert isinstance(error, ModelUnavailable if status == 500 else RequestRejected)
    assert error.retryable == (status == 500)
    assert f"endpoint mine (model-1) answered {status}: bad" in str(error)
    assert hint in str(error)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


@pytest.mark.parametrize(
    ("headers", "wait_s", "kind"),
    [
        ({"Retry-After": "7"}, 7.0, ""),
        ({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "250ms"}, 0.25, "requests"),
    ],
)
async def test_too_many_requests(headers: dict[str, str], wait_s: float, kind: str) -> None:
    error = await raised(lambda body: failure(429, "slow down", headers, code="rate_limit_exceeded"))
    assert isinstance(error, RateLimited)
    assert (error.retry_after_s, error.kind) == (wait_s, kind)


async def test_no_money_is_no_rate_limit() -> None:
    error = await raised(lambda body: failure(429, "quota", {"Retry-After": "1"}, code="insufficient_quota"))
    assert isinstance(error, RequestRejected)
    assert "billing" in str(error)


@pytest.mark.parametrize(
    ("headers", "wait_s"),
    [
        ({}, None),
        ({"retry-after": "7", "retry-after-ms": "1500"}, 1.5),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 100.0),
        ({"retry-after": "soon"}, None),
        ({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "250ms"}, 0.25),
        (
            {f"x-ratelimit-remaining-{kind}": "0" for kind in ("tokens", "requests")}
            | {"x-ratelimit-reset-tokens": "1h2m3.5s", "x-ratelimit-reset-requests": "20ms"},
            3723.5,
        ),
    ],
)
def test_how_long_to_wait(headers: dict[str, str], wait_s: float | None) -> None:
    now = 1445412480.0 - 100.0
    assert retry_after_s(headers, now) == wait_s


async def test_the_connection_breaks() -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    async with server:
        chat = OpenAiChat(settings(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"), count_words)
        with pytest.raises(ModelUnavailable, match="broke off"):
            await chat.complete(REQUEST)
        await chat.close()


@pytest.mark.parametrize("reason", ["error", "abort", "insufficient_system_resource", "network_error"])
async def test_a_reply_that_its_server_gave_up_is_no_reply(reason: str) -> None:
    async with chatting(lambda body: completion("half a", reason)) as (chat, _):
        with pytest.raises(UnusableReply, match="broke off its reply") as caught:
            await chat.complete(REQUEST)
        assert caught.value.was_sent  # and may be on the bill
        with pytest.raises(UnusableReply, match="broke off its reply"):
            _ = [piece async for piece in chat.stream(REQUEST)]


@pytest.mark.parametrize("key", [KEY, "abc"])
async def test_the_key_is_never_shown(key: str) -> None:
    async with chatting(lambda body: failure(401, f"Incorrect API key: {key}, Bearer {key}"), api_key=key) as (chat, _):
        assert key not in repr(chat.settings)
        with pytest.raises(RequestRejected) as caught:
            await chat.complete(REQUEST)
    shown = "".join(traceback.format_exception(caught.value))
    assert "Incorrect API key: ***" in shown
    assert f" {key}" not in shown


# Embeddings


def vector_of(text: str) -> list[float]:
    return [float(len(text)), 1.0, 0.0]


def vectors(body: dict[str, Any], as_float: bool = False) -> web.Response:
    items = []
    for index, text in enumerate(body["input"]):
        row: Any = vector_of(text)
        if body.get("encoding_format") == "base64" and not as_float:
            row = base64.b64encode(np.array(row, dtype="<f4").tobytes()).decode()
        items.append({"index": index, "embedding": row})
    usage = {"prompt_tokens": len(items)}
    return web.json_response({"data": items[::-1], "usage": usage})


def unit(text: str) -> np.ndarray[Any, np.dtype[np.float32]]:
    row = np.array(vector_of(text), dtype=np.float32)
    return row / np.linalg.norm(row)


@pytest.mark.parametrize("as_float", [False, True], ids=["base64", "ignores base64"])
async def test_embeds_in_order_and_in_batches(as_float: bool) -> None:
    texts = ["a", "", "bbb", " \n", "cc", "dddd", "eeeee"]
    async with embedding(lambda body: vectors(body, as_float), 3, batch_size=2) as (embedder, stub):
        rows = await embedder.embed(texts)
    assert rows.dtype == np.float32
    expected = np.stack([unit(text) if text.strip() else np.zeros(3) for text in texts])
    np.testing.assert_allclose(rows, expected, rtol=1e-6)
    assert [body["input"] for body in stub.bodies] == [["a", "bbb"], ["cc", "dddd"], ["eeeee"]]


async def test_long_texts_are_cut_and_large_batches_split() -> None:
    async with embedding(vectors, 3, text_tokens=4, batch_tokens=6) as (embedder, stub):
        await embedder.embed(["one two three four five six", "ab", "cd", "abcdefgh"])
        assert embedder.fitted("one two three four five six") == ("one two three four", 4)
    assert [body["input"] for body in stub.bodies] == [["one two three four", "ab", "cd"], ["abcdefgh"]]


def answering(usage: dict[str, Any]) -> Script:
    return lambda body: web.json_response({"data": [{"embedding": vector_of("a")}] * len(body["input"])} | usage)


@pytest.mark.parametrize(
    ("usage", "used"),
    [({"usage": {"prompt_tokens": 12, "total_tokens": 12}}, 12), ({"usage": {"prompt_tokens": 0}}, None)],
)
async def test_a_request_says_what_the_endpoint_counted(usage: dict[str, Any], used: int | None) -> None:
    async with embedding(answering(usage), 3, batch_size=1) as (embedder, stub):
        found = await embedder.request(["a", "b"])
        assert isinstance(embedder, PaidEmbedder), "else it would be asked without ledger and limits"
    assert found.input_tokens == used
    assert found.value.shape == (2, 3)
    assert len(stub.bodies) == 1, "a request is one request, whatever it holds"


async def test_vectors_of_another_size_say_what_to_set() -> None:
    async with embedding(vectors, 5) as (embedder, _):
        with pytest.raises(ConfigError, match="size 3, not 5: set its dim to 3"):
            await embedder.embed(["a"])


@pytest.mark.parametrize(
    ("items", "error"),
    [
        ([], ModelUnavailable),
        ([{"index": 0, "embedding": None}], RequestRejected),
        ([{"index": 0, "embedding": "AADAfwAAgD8AAIA/"}], RequestRejected),
        ([{"embedding": [1e30, 0.0, 1e30]}], RequestRejected),
        ([{"embedding": [1e-30, 0.0, 1e-30]}], RequestRejected),
        ([{"embedding": [1e300, 0.0, 1e300]}], RequestRejected),
    ],
)
async def test_vectors_that_are_none(items: list[Any], error: type[HiragError]) -> None:
    async with embedding(lambda body: web.json_response({"data": items}), 3) as (embedder, _):
        with pytest.raises(error):
            await embedder.embed(["a"])


def all_alike(row: list[float]) -> Script:
    return lambda body: web.json_response({"data": [{"embedding": row}] * len(body["input"])})


@pytest.mark.parametrize(
    ("row", "said"), [([0.0, 0.0, 0.0], "vectors of zeros"), ([1.0, 2.0, 3.0], "one and the same vector")]
)
async def test_vectors_that_are_all_equal_mean_nothing(row: list[float], said: str) -> None:
    async with embedding(all_alike(row), 3, batch_size=20) as (embedder, _):
        await embedder.embed(["a", "b"])  # two texts that a tokenizer does not know may have the same
        with pytest.raises(RequestRejected, match=said) as caught:
            await embedder.embed([f"text {number}" for number in range(12)])
    assert caught.value.fatal
    assert "for different texts" not in str(caught.value)


@pytest.mark.parametrize(
    ("extra", "identity"),
    [
        ({}, "model-1"),
        ({"dimensions": 3, "encoding_format": "float", "user": "me"}, "model-1"),
        ({"input_type": "passage"}, 'model-1 {"input_type": "passage"}'),
        ({"dimensions": 256}, 'model-1 {"dimensions": 256}'),
    ],
)
def test_what_decides_vectors_is_in_their_key(extra: dict[str, Any], identity: str) -> None:
    embedder = OpenAiEmbedder(settings("http://h/v1", extra_body=extra), 3, count_words, first_words)
    assert (embedder.name, embedder.identity) == ("model-1", identity)


@pytest.mark.parametrize("url", ["https://me:secret@h/v1", "ftp://me:secret@h/v1", "localhost:8000"])
def test_addresses_that_cannot_work_are_refused_without_their_secrets(url: str) -> None:
    with pytest.raises(ConfigError, match="endpoint mine") as caught:
        settings(url)
    assert "secret" not in str(caught.value)
    with pytest.raises(ConfigError, match="endpoint mine"):
        settings("http://h/v1", api_key="a\n")
