"""Habits of real endpoints, each played by a small server: what a build and an answer make of them."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from aiohttp import web

from hirag_dist.core.prompts.reply_validation import InvalidJson, next_attempt, usable_text
from hirag_dist.errors import EndpointUnreachable, ModelUnavailable, RequestRejected, TimedOut
from hirag_dist.llm.call import PricedModel
from hirag_dist.llm.chat import EndpointPool
from hirag_dist.llm.embedding import LedgerEmbedder, PricedEmbedder, TextsRefused
from hirag_dist.llm.endpoints.openai_chat import OpenAiChat
from hirag_dist.llm.reply_store import Ledger
from hirag_dist.storage.store import Store
from hirag_dist.types import ChatRequest, Message, Rejected
from tests.llm.calls import at_once, calls, text_of
from tests.llm.endpoints.loopback import (
    Events,
    Script,
    chatting,
    completion,
    embedding,
    event,
    failure,
    read_stream,
    settings,
)

REQUEST = ChatRequest("answer", (Message("user", "Who lit the lamp?"),), "u1")
FORMED = replace(REQUEST, form="extract-graph")
ANSWER = ["The keeper ", "lit the ", "lamp [S1]."]
TEXT = "".join(ANSWER)


def whole(text: object, finish_reason: str | None = "stop") -> web.Response:
    return completion(text, finish_reason, usage={"prompt_tokens": 9, "completion_tokens": 7})


def streamed(*events: bytes, pause: asyncio.Event | None = None) -> Script:
    return lambda body: Events(*events, b"[DONE]", pause=pause)


# Streams

SAID = [event(text) for text in ANSWER]
STOP = event("", "stop")
THOUGHT = [event("<think>"), event("Who was it? The "), event("keeper.</th"), event("ink>\n\n")]
CHANNELS = [
    event("<|channel|>analysis<|message|>Who was it?<|end|>"),
    event("<|start|>assistant<|channel|>final<|message|>"),
]
FIELD = [event(None, reasoning_content="Who was it?"), event(None, reasoning="Hm.")]
STREAMS: dict[str, tuple[list[bytes], str, str]] = {
    "think": ([*THOUGHT, *SAID, STOP], TEXT, "stop"),
    "think, opened in the prompt": (
        [event("Who was it? The keeper."), event("</think>\n\n"), *SAID, STOP],
        TEXT,
        "stop",
    ),
    "channels": ([*CHANNELS, *SAID, STOP], TEXT, "stop"),
    "a field of reasoning": ([*FIELD, *SAID, STOP], TEXT, "stop"),
    "cut": ([*SAID[:2], event("", "MAX_TOKENS")], "The keeper lit the", "length"),
    "nothing": ([STOP], "", "stop"),
    "only reasoning": ([event(None, "length", reasoning_content="Who was it?")], "", "length"),
    "an empty finish reason": ([event(text, "") for text in ANSWER], TEXT, "stop"),
}


@pytest.mark.parametrize("stream", STREAMS.values(), ids=STREAMS)
async def test_what_a_stream_says_and_why_it_ends(stream: tuple[list[bytes], str, str]) -> None:
    events, text, finish_reason = stream
    async with chatting(streamed(*events)) as (chat, _):
        pieces, reply = await read_stream(chat, REQUEST)
        complete = await chat.complete(REQUEST)
    assert pieces.rstrip() == reply.text == complete.text.rstrip() == text
    assert reply.finish_reason == complete.finish_reason == finish_reason
    thinks = any(b"Who was it" in each for each in events)
    assert (reply.reasoning_tokens > 0) == (complete.reasoning_tokens > 0) == thinks
    assert reply.output_tokens >= reply.reasoning_tokens


async def test_a_model_whose_prompt_opens_its_thinking_is_known_by_its_first_answer() -> None:
    """The second answer begins with what is no thinking by its words."""
    answers = iter((["Who was it?</think>"], ["The keeper was in the tower that night, it says. ", "</think>"]))

    def answer(body: dict[str, Any]) -> web.StreamResponse:
        return Events(*(event(text) for text in next(answers)), *SAID, STOP, b"[DONE]")

    async with chatting(answer) as (chat, _):
        for _ in range(2):
            assert (await read_stream(chat, REQUEST))[1].text == TEXT


@pytest.mark.parametrize(
    ("field", "status", "message"),
    [
        ("stream_options", 400, "Unrecognized request argument supplied: stream_options"),
        ("stream", 422, "stream is not supported by this model"),
    ],
)
async def test_an_endpoint_that_refuses_streams_is_asked_without(field: str, status: int, message: str) -> None:
    async with chatting(lambda body: failure(status, message) if body.get(field) else whole(TEXT)) as (chat, stub):
        assert (await chat.complete(REQUEST)).text == TEXT
        assert len(stub.bodies) == 2
        assert (await chat.complete(REQUEST)).text == TEXT
        assert (await read_stream(chat, REQUEST))[1].text == TEXT
    assert len(stub.bodies) == 4


@pytest.mark.parametrize(
    ("sent", "limits", "message", "is_alive"),
    [
        (SAID, {"silence_timeout_s": 0.5}, r"3 tokens were received in \S+ s, then none for 0.5 s", True),
        ([event("")], {"silence_timeout_s": 0.01, "first_token_timeout_s": 0.4}, r"nothing came in 0\.4 s", False),
    ],
    ids=["after tokens, which is no outage", "before the first token"],
)
async def test_silence_has_a_limit_before_the_first_token_and_another_after(
    sent: list[bytes], limits: dict[str, float], message: str, is_alive: bool
) -> None:
    release = asyncio.Event()
    async with chatting(streamed(*sent, pause=release), **limits) as (chat, _):
        with pytest.raises(TimedOut, match=message) as caught:
            await chat.complete(REQUEST)
        release.set()
    assert caught.value.is_alive == is_alive


# Replies


async def test_a_reply_that_the_server_withholds_since_it_is_no_json_is_a_reply() -> None:
    withheld = {"code": "json_validate_failed", "failed_generation": '{"a": '}
    async with chatting(lambda body: failure(400, "the model made no valid JSON", **withheld)) as (chat, _):
        reply = await chat.complete(FORMED)
    assert reply.text == '{"a": '
    with pytest.raises(InvalidJson) as refusal:
        usable_text(reply)
    again = next_attempt(FORMED, FORMED, reply, refusal.value)
    assert again.messages == FORMED.messages, "the same question at another temperature"
    assert again.temperature != FORMED.temperature


@pytest.mark.parametrize("message", ["Invalid schema: 'maxLength' is not permitted", "failed to parse grammar"])
async def test_keywords_that_a_server_refuses_are_left_out(message: str) -> None:
    def answer(body: dict[str, Any]) -> web.StreamResponse:
        if "maxLength" in json.dumps(body.get("response_format")):
            return failure(400, message)
        return whole(json.dumps({"ok": True, "sure": "yes", "percent": 100, "words": []}))

    async with chatting(answer) as (chat, stub):
        assert await chat.supports_forms() is True
        assert len(stub.bodies) == 2
        assert "maxLength" in chat.refused_keywords
        await chat.complete(FORMED)
    assert len(stub.bodies) == 3
    assert "json_schema" in stub.bodies[2]["response_format"]


async def test_a_web_page_in_place_of_an_answer_names_base_url() -> None:
    async with chatting(lambda body: web.Response(text=" <html>It works!", content_type="text/html")) as (chat, _):
        with pytest.raises(ModelUnavailable, match=r"not JSON: <html>It works!; check base_url$"):
            await chat.complete(REQUEST)


# Refusals of one text


@pytest.mark.parametrize("page", [True, False], ids=["a firewall's page", "moderation"])
async def test_a_403_about_one_text_is_a_dead_letter_where_others_are_answered(page: bool) -> None:
    def answer(body: dict[str, Any]) -> web.StreamResponse:
        if "Noether" not in str(body["messages"]):
            return whole(TEXT)
        blocked = web.Response(status=403, text="<html>Blocked</html>", content_type="text/html")
        return blocked if page else failure(403, "your input was flagged", code=403)

    async with chatting(answer) as (chat, _):
        pool = EndpointPool({"answer": [PricedModel("e", chat)]}, None, calls(sleep=at_once), len)
        flagged = replace(REQUEST, messages=(Message("user", "Who was Noether?"),))
        found = await pool.ask(flagged, text_of)
        assert isinstance(found, Rejected)
        assert "other requests are answered" in found.reason
        assert await pool.ask(REQUEST, text_of) == TEXT


async def test_a_403_for_every_request_ends_the_run() -> None:
    async with chatting(lambda body: failure(403, "no access")) as (chat, _):
        pool = EndpointPool({"answer": [PricedModel("e", chat)]}, None, calls(sleep=at_once), len)
        with pytest.raises(RequestRejected) as caught:
            await pool.ask(REQUEST, text_of)
    assert caught.value.fatal


@pytest.mark.parametrize("refuses", [True, False], ids=["status 500", "null for a vector"])
async def test_a_text_without_a_vector_is_named_and_all_others_have_theirs(refuses: bool, store: Store) -> None:
    def answer(body: dict[str, Any]) -> web.StreamResponse:
        rows = [None if "Noether" in text else [1.0, float(len(text))] for text in body["input"]]
        if refuses and None in rows:
            return failure(500, "failed to encode response: json: unsupported value: NaN")
        return web.json_response({"data": [{"index": at, "embedding": row} for at, row in enumerate(rows)]})

    async with embedding(answer, 2, batch_size=4) as (inner, _):  # a refused text in each of two requests
        ledger = Ledger(store)
        embedder = LedgerEmbedder(PricedEmbedder("e", inner), ledger, calls(outage_timeout_s=5.0, sleep=at_once))
        texts = ["x" * number for number in range(1, 10)]
        texts[1] = "Noether's theorem"
        texts[5] = texts[7] = "Emmy Noether was a mathematician."
        texts[8] = " "
        with pytest.raises(TextsRefused) as caught:
            await embedder.embed(texts)
        await ledger.close()
    assert sorted(caught.value.reasons) == [1, 5, 7]
    assert "begins 'Emmy Noether was a mathematician.'" in caught.value.reasons[7]
    assert "change that text" in caught.value.reasons[7]
    expected = np.array([[1.0, number] for number in range(1, 10)])
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    expected[[1, 5, 7, 8]] = 0
    np.testing.assert_allclose(caught.value.vectors, expected, atol=1e-6)


async def test_base64_that_is_refused_in_other_words_is_done_without() -> None:
    def answer(body: dict[str, Any]) -> web.StreamResponse:
        if "encoding_format" in body:
            return failure(400, "This model does not support base64")
        return web.json_response({"data": [{"index": 0, "embedding": [3.0, 4.0]}]})

    async with embedding(answer, 2) as (embedder, stub):
        for _ in range(2):
            np.testing.assert_allclose((await embedder.request(["a"])).value, [[0.6, 0.8]])
    assert ["encoding_format" in body for body in stub.bodies] == [True, False, False]


# No connection


async def test_who_refuses_connections_is_asked_whether_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Proxies of the environment are not used for this machine."""
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    async with chatting(streamed(*SAID, STOP)) as (chat, stub):
        assert (await chat.complete(REQUEST)).text == TEXT
    gone = OpenAiChat(settings(stub.url), len)
    with pytest.raises(EndpointUnreachable, match=f"connection refused at {stub.url}: is the server running"):
        await gone.complete(REQUEST)
    await gone.close()
