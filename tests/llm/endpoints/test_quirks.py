"""Habits of real endpoints, each played by a small server: what a build and an answer make of them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from aiohttp import web

from hirag_dist.core.prompts.reply_validation import InvalidJson, next_attempt, usable_text
from hirag_dist.errors import EndpointUnreachable, RequestRejected, TimedOut
from hirag_dist.llm.call import PricedModel
from hirag_dist.llm.chat import EndpointPool
from hirag_dist.llm.embedding import LedgerEmbedder, PricedEmbedder, TextsRefused
from hirag_dist.llm.endpoints.openai_chat import OpenAiChat
from hirag_dist.llm.endpoints.openai_client import EndpointSettings
from hirag_dist.llm.endpoints.openai_embeddings import OpenAiEmbedder
from hirag_dist.llm.limits.adaptive import EndpointLimits
from hirag_dist.llm.limits.coordinator import QuotaCoordinator
from hirag_dist.llm.limits.rate_limiter import RateLimiter
from hirag_dist.llm.reply_store import Ledger
from hirag_dist.llm.retry import RetriedCalls, RetryPolicy
from hirag_dist.storage.store import Store
from hirag_dist.types import ChatReply, ChatRequest, Message, Rejected
from tests.llm.endpoints.loopback import loopback

REQUEST = ChatRequest("answer", (Message("user", "Who lit the lamp?"),), "u1")
FORMED = replace(REQUEST, form="extract-graph")
ANSWER = ["The keeper ", "lit the ", "lamp [S1]."]
TEXT = "".join(ANSWER)
Answer = Callable[[web.Request, dict[str, Any]], Any]


@asynccontextmanager
async def serving(answer: Answer, **changes: Any) -> AsyncIterator[EndpointSettings]:
    """Serve what a function of the body answers; yield the settings of a client."""

    async def handle(request: web.Request) -> web.StreamResponse:
        return await answer(request, await request.json())

    async with loopback(handle) as url:
        yield EndpointSettings("mine", f"{url}/v1", "", "small", **changes)


@asynccontextmanager
async def chatting(answer: Answer, **changes: Any) -> AsyncIterator[OpenAiChat]:
    async with serving(answer, **changes) as settings:
        chat = OpenAiChat(settings, lambda text: len(text.split()))
        try:
            yield chat
        finally:
            await chat.close()


def refused(status: int, message: str, **more: Any) -> web.Response:
    return web.json_response({"error": {"message": message} | more}, status=status)


def whole(text: object, finish_reason: str | None = "stop", **message: Any) -> web.Response:
    choice = {"message": {"role": "assistant", "content": text} | message, "finish_reason": finish_reason}
    return web.json_response({"choices": [choice], "usage": {"prompt_tokens": 9, "completion_tokens": 7}})


def event(content: object, reason: str | None = None, **delta: Any) -> bytes:
    choice = {"index": 0, "delta": {"content": content} | delta, "finish_reason": reason}
    return b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n"


def streamed(*events: bytes, pause: asyncio.Event | None = None) -> Answer:
    async def answer(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        reply = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await reply.prepare(request)
        for each in events:
            await reply.write(each)
            await asyncio.sleep(0)
        if pause is not None:
            await pause.wait()
        await reply.write(b"data: [DONE]\n\n")
        return reply

    return answer


# Streams

SAID = [event(text) for text in ANSWER]
STREAMS: dict[str, tuple[list[bytes], str, str]] = {
    "think": (
        [
            event("<think>"),
            event("Who was it? The "),
            event("keeper.</th"),
            event("ink>\n\n"),
            *SAID,
            event("", "stop"),
        ],
        TEXT,
        "stop",
    ),
    "think, opened in the prompt": (
        [event("Who was it? The keeper."), event("</think>\n\n"), *SAID, event("", "stop")],
        TEXT,
        "stop",
    ),
    "channels": (
        [
            event("<|channel|>analysis<|message|>Who was it?<|end|>"),
            event("<|start|>assistant<|channel|>final<|message|>"),
            *SAID,
            event("", "stop"),
        ],
        TEXT,
        "stop",
    ),
    "a field of reasoning": (
        [event(None, reasoning_content="Who was it?"), event(None, reasoning="Hm."), *SAID, event("", "stop")],
        TEXT,
        "stop",
    ),
    "cut": ([*SAID[:2], event("", "MAX_TOKENS")], "The keeper lit the", "length"),
    "nothing": ([event("", "stop")], "", "stop"),
    "only reasoning": ([event(None, "length", reasoning_content="Who was it?")], "", "length"),
    "an empty finish reason": ([event(text, "") for text in ANSWER], TEXT, "stop"),
}


@pytest.mark.parametrize("stream", STREAMS.values(), ids=STREAMS)
async def test_what_a_stream_says_and_why_it_ends(stream: tuple[list[bytes], str, str]) -> None:
    events, text, finish_reason = stream
    async with chatting(streamed(*events)) as chat:
        *pieces, reply = [each async for each in chat.stream(REQUEST)]
        complete = await chat.complete(REQUEST)
    assert isinstance(reply, ChatReply)
    assert "".join(map(str, pieces)).rstrip() == reply.text == complete.text.rstrip() == text
    assert reply.finish_reason == complete.finish_reason == finish_reason
    thinks = any(b"Who was it" in each for each in events)
    assert (reply.reasoning_tokens > 0) == (complete.reasoning_tokens > 0) == thinks
    assert reply.output_tokens >= reply.reasoning_tokens


async def test_a_model_whose_prompt_opens_its_thinking_is_known_by_its_first_answer() -> None:
    """The second answer begins with what is no thinking by its words."""
    answers = iter((["Who was it?</think>"], ["The keeper was in the tower that night, it says. ", "</think>"]))

    async def answer(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        thought = [event(text) for text in next(answers)]
        return await streamed(*thought, *SAID, event("", "stop"))(request, body)

    async with chatting(answer) as chat:
        for _ in range(2):
            *_, reply = [each async for each in chat.stream(REQUEST)]
            assert isinstance(reply, ChatReply)
            assert reply.text == TEXT


@pytest.mark.parametrize(
    ("refusal", "n_requests"),
    [
        ((400, "Unrecognized request argument supplied: stream_options"), 2),
        ((422, "stream is not supported by this model"), 2),
    ],
)
async def test_an_endpoint_that_refuses_streams_is_asked_without(refusal: tuple[int, str], n_requests: int) -> None:
    asked: list[dict[str, Any]] = []
    field = "stream_options" if "stream_options" in refusal[1] else "stream"

    async def answer(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        asked.append(body)
        return refused(*refusal) if body.get(field) else whole(TEXT)

    async with chatting(answer) as chat:
        assert (await chat.complete(REQUEST)).text == TEXT
        assert len(asked) == n_requests
        assert (await chat.complete(REQUEST)).text == TEXT
        *_, reply = [each async for each in chat.stream(REQUEST)]
    assert len(asked) == n_requests + 2
    assert isinstance(reply, ChatReply)
    assert reply.text == TEXT


async def test_silence_after_tokens_says_what_came_and_is_no_outage() -> None:
    release = asyncio.Event()
    async with chatting(streamed(*SAID, pause=release), silence_timeout_s=0.5) as chat:
        with pytest.raises(TimedOut, match=r"3 tokens were received in \S+ s, then none for 0.5 s") as caught:
            await chat.complete(REQUEST)
        release.set()
    assert caught.value.is_alive


async def test_silence_before_the_first_token_has_a_limit_of_its_own() -> None:
    release = asyncio.Event()
    limits = {"silence_timeout_s": 0.01, "first_token_timeout_s": 0.2}
    async with chatting(streamed(event("", role="assistant"), pause=release), **limits) as chat:
        with pytest.raises(TimedOut, match=r"nothing came in 0\.2 s") as caught:
            await chat.complete(REQUEST)
        release.set()
    assert not caught.value.is_alive


# Replies


@pytest.mark.parametrize(("reason", "normalised"), [("MAX_TOKENS", "length"), (None, "stop")])
async def test_a_cut_reply_is_one_whatever_the_reason_is_called(reason: str | None, normalised: str) -> None:
    async def answer(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        return whole(TEXT, reason)

    async with chatting(answer) as chat:
        assert (await chat.complete(REQUEST)).finish_reason == normalised


async def test_a_reply_that_the_server_withholds_since_it_is_no_json_is_a_reply() -> None:
    async def answer(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        return refused(400, "the model made no valid JSON", code="json_validate_failed", failed_generation='{"a": ')

    async with chatting(answer) as chat:
        reply = await chat.complete(FORMED)
    assert reply.text == '{"a": '
    with pytest.raises(InvalidJson) as refusal:
        usable_text(reply)
    again = next_attempt(FORMED, FORMED, reply, refusal.value)
    assert again.messages == FORMED.messages, "the same question at another temperature"
    assert again.temperature != FORMED.temperature


@pytest.mark.parametrize("message", ["Invalid schema: 'maxLength' is not permitted", "failed to parse grammar"])
async def test_keywords_that_a_server_refuses_are_left_out(message: str) -> None:
    asked: list[str] = []

    async def answer(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        asked.append(json.dumps(body.get("response_format")))
        if "maxLength" in asked[-1]:
            return refused(400, message)
        return whole(json.dumps({"ok": True, "sure": "yes", "percent": 100, "words": []}))

    async with chatting(answer) as chat:
        assert await chat.supports_forms() is True
        assert len(asked) == 2
        assert "maxLength" in chat.refused_keywords
        await chat.complete(FORMED)
    assert len(asked) == 3
    assert "json_schema" in asked[2]


# Refusals of one text


async def nothing(seconds: float) -> None:
    await asyncio.sleep(0)


def caller(**policy: Any) -> RetriedCalls:
    limiter = RateLimiter(QuotaCoordinator({"e": EndpointLimits(None, None, 4)}))
    return RetriedCalls(limiter, RetryPolicy(**policy), sleep=nothing)


@pytest.mark.parametrize("page", [True, False], ids=["a firewall's page", "moderation"])
async def test_a_403_about_one_text_is_a_dead_letter_where_others_are_answered(page: bool) -> None:
    async def answer(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        if "Noether" not in str(body["messages"]):
            return whole(TEXT)
        blocked = web.Response(status=403, text="<html>Blocked</html>", content_type="text/html")
        return blocked if page else refused(403, "your input was flagged", code=403)

    async with chatting(answer) as chat:
        pool = EndpointPool({"answer": [PricedModel("e", chat)]}, None, caller(), len)
        flagged = replace(REQUEST, messages=(Message("user", "Who was Noether?"),))
        found = await pool.ask(flagged, lambda reply: reply.text)
        assert isinstance(found, Rejected)
        assert "other requests are answered" in found.reason
        assert await pool.ask(REQUEST, lambda reply: reply.text) == TEXT


async def test_a_403_for_every_request_ends_the_run() -> None:
    async def answer(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        return refused(403, "no access")

    async with chatting(answer) as chat:
        pool = EndpointPool({"answer": [PricedModel("e", chat)]}, None, caller(), len)
        with pytest.raises(RequestRejected) as caught:
            await pool.ask(REQUEST, lambda reply: reply.text)
    assert caught.value.fatal


async def nan(texts: list[str], body: Mapping[str, Any]) -> web.Response | None:
    marked = any("Noether" in text for text in texts)
    return refused(500, "failed to encode response: json: unsupported value: NaN") if marked else None


async def null(texts: list[str], body: Mapping[str, Any]) -> web.Response | None:
    data = [{"index": at, "embedding": None if "Noether" in text else [1.0, at]} for at, text in enumerate(texts)]
    return web.json_response({"data": data})


@pytest.mark.parametrize("quirk", [nan, null])
async def test_a_text_without_a_vector_is_named_and_all_others_have_theirs(quirk: Any, tmp_path: Path) -> None:
    async def answer(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        texts = body["input"]
        reply: web.Response | None = await quirk(texts, body)
        if reply is None:
            reply = web.json_response({"data": [{"index": at, "embedding": [1.0, at]} for at in range(len(texts))]})
        return reply

    async with serving(answer) as settings:
        ledger = Ledger(Store(str(tmp_path)))
        inner = OpenAiEmbedder(settings, 2, lambda text: len(text.split()), lambda text, limit: text)
        embedder = LedgerEmbedder(PricedEmbedder("e", inner), ledger, caller(outage_timeout_s=5.0))
        texts = [f"text {number}" for number in range(9)]
        texts[5] = "Emmy Noether was a mathematician."
        with pytest.raises(TextsRefused) as caught:
            await embedder.embed(texts)
        await embedder.close()
        await ledger.close()
    assert list(caught.value.reasons) == [5]
    assert "begins 'Emmy Noether was a mathematician.'" in caught.value.reasons[5]
    assert np.linalg.norm(caught.value.vectors, axis=1).round(5).tolist() == [1.0] * 5 + [0.0] + [1.0] * 3


async def test_base64_that_is_refused_in_other_words_is_done_without() -> None:
    asked: list[bool] = []

    async def answer(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        asked.append("encoding_format" in body)
        if asked[-1]:
            return refused(400, "This model does not support base64")
        return web.json_response({"data": [{"index": 0, "embedding": [3.0, 4.0]}]})

    async with serving(answer) as settings:
        embedder = OpenAiEmbedder(settings, 2, len, lambda text, limit: text)
        for _ in range(2):
            np.testing.assert_allclose((await embedder.request(["a"])).vectors, [[0.6, 0.8]])
        await embedder.close()
    assert asked == [True, False, False]


# No connection


async def test_who_refuses_connections_is_asked_whether_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Proxies of the environment are not used for this machine."""
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    async with chatting(streamed(*SAID, event("", "stop"))) as chat:
        assert (await chat.complete(REQUEST)).text == TEXT
        url = chat.settings.base_url
    gone = OpenAiChat(EndpointSettings("mine", url, "", "small"), len)
    with pytest.raises(EndpointUnreachable, match=f"connection refused at {url}: is the server running"):
        await gone.complete(REQUEST)
    await gone.close()
