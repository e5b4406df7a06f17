"""Endpoints that redirect, and replies that are larger than a reply can be."""

from __future__ import annotations

import json
import resource
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import product
from typing import Any

import httpx2
import pytest
from aiohttp import web

from hirag_dist.errors import HiragError, ModelUnavailable, RequestRejected, UnusableReply
from hirag_dist.llm.endpoints.openai_chat import OpenAiChat
from hirag_dist.llm.endpoints.openai_connection import HttpGuards
from hirag_dist.llm.endpoints.openai_embeddings import OpenAiEmbedder
from hirag_dist.types import ChatRequest, Message
from tests.llm.endpoints.loopback import (
    KEY,
    Events,
    chatting,
    completion,
    count_words,
    first_words,
    read_stream,
    serving,
    settings,
)

PROMPT = "a private document"
REQUEST = ChatRequest("extract", (Message("user", PROMPT),), "u1")


@asynccontextmanager
async def clients(url: str) -> AsyncIterator[tuple[OpenAiChat, OpenAiEmbedder]]:
    endpoint = settings(url, first_token_timeout_s=20.0)
    chat, embedder = OpenAiChat(endpoint, count_words), OpenAiEmbedder(endpoint, 2, count_words, first_words)
    try:
        yield chat, embedder
    finally:
        await chat.close()
        await embedder.close()


async def errors(url: str) -> list[HiragError]:
    """Every kind of call at an endpoint: what each raises."""
    found = []
    async with clients(url) as (chat, embedder):
        for call in (chat.complete(REQUEST), read_stream(chat, REQUEST), embedder.request([PROMPT])):
            with pytest.raises(HiragError) as raised:
                await call
            found.append(raised.value)
    return found


def moved(status: int, where: str) -> web.Response:
    return web.Response(status=status, headers={"Location": where})


async def test_a_redirect_to_another_host_gets_neither_prompt_nor_key() -> None:
    async with (
        serving(lambda body: completion()) as other,
        serving(lambda body: moved(308, f"{other.url}/chat/completions")) as home,
    ):
        found = await errors(home.url)
    assert other.requests == []
    for error in found:
        assert isinstance(error, RequestRejected)
        assert error.fatal
        assert "set base_url" in str(error)
        assert not error.retryable


async def test_a_redirect_on_the_same_host_is_followed_with_its_body_and_key() -> None:
    def move(body: dict[str, Any]) -> web.Response:
        path = home.requests[-1].path
        return moved(308, path.replace("/v1/", "/v2/")) if path.startswith("/v1/") else completion()

    async with serving(move) as home, clients(home.url) as (chat, _):
        assert (await chat.complete(REQUEST)).text == "fine"
    first, second = home.bodies
    assert first == second
    assert PROMPT in str(second)
    assert home.requests[1].path == "/v2/chat/completions"
    assert home.requests[1].headers["Authorization"] == f"Bearer {KEY}"


async def test_a_redirect_that_drops_the_body_is_refused() -> None:
    async with serving(lambda body: moved(303, "http://user:pass@127.0.0.1/v2")) as home:
        error, *_ = await errors(home.url)
    assert "without the request's body" in str(error)
    assert "pass" not in str(error)


@pytest.mark.parametrize(
    ("base", "there", "allowed"),
    [
        ("http://h/v1", "https://h/v1/x", True),
        ("http://h:8000/v1", "https://h/v1/x", False),
        ("https://h/v1", "http://h/v1/x", False),
        ("https://h/v1", "https://h.evil/v1/x", False),
        ("https://h/v1", "https://h@evil/v1/x", False),
        ("https://h/v1", "https://H/v2", True),
    ],
)
async def test_where_requests_may_go(base: str, there: str, allowed: bool) -> None:
    guards = HttpGuards("endpoint mine", base)
    request = httpx2.Request("POST", there)
    if allowed:
        await guards.check_request(request)
        return
    with pytest.raises(RequestRejected, match="redirects to"):
        await guards.check_request(request)


def bomb(n_bytes: int) -> bytes:
    """A reply whose text is n_bytes of one letter, compressed."""
    text = json.dumps({"choices": [{"message": {"content": "@"}}]}).encode()
    head, tail = text.split(b"@")
    packer = zlib.compressobj(1, zlib.DEFLATED, zlib.MAX_WBITS | 16)
    parts = [packer.compress(head)]
    parts += [packer.compress(b"a" * (1 << 20)) for _ in range(n_bytes >> 20)]
    return b"".join([*parts, packer.compress(tail), packer.flush()])


async def test_a_small_reply_that_unpacks_to_gigabytes_is_given_up() -> None:
    packed = bomb(128 << 20)
    assert len(packed) < 1 << 20

    headers = {"Content-Encoding": "gzip", "Content-Type": "application/json"}
    async with serving(lambda body: web.Response(body=packed, headers=headers)) as home:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        found = await errors(home.url)
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for error in found:
        assert isinstance(error, UnusableReply)
        assert "bytes" in str(error)
        assert error.was_sent, "it counts as spent"
    assert (after - before) >> 10 < 100, "MiB"


ODD_EVENTS: list[Any] = [
    [], 7, {"choices": 7}, {"choices": [7]}, {"choices": [{"delta": [1]}]},
    {"choices": {"0": {}}}, {"error": 7}, {"error": {"code": {"a": 1}, "message": [1]}},
]  # fmt: skip


async def test_odd_events_of_a_stream_end_in_an_error_of_ours() -> None:
    said: list[Any] = []
    async with chatting(lambda body: Events(json.dumps(said[-1]).encode(), b"[DONE]")) as (chat, _):
        for event in ODD_EVENTS:
            said.append(event)
            with pytest.raises(ModelUnavailable):
                await read_stream(chat, REQUEST)


DEEP = '{"choices": ' + "[" * 200_000
ODD_BODIES = [
    b"", b"7", b"{", b"<html>", b"{}", b"[]", b"null", b"\xff", b'\xff\xfe{"a"', '{"é": 1}'.encode("latin-1"),
    b'"\\ud800"', DEEP.encode(), b'{"choices": 1e999}', b'{"choices": [{"message": "hi"}]}',
    b'{"choices": [{"message": [1]}]}', b'{"error": {"code": 1e400, "message": {"a": [1]}}}', b'{"error": [[]]}',
    b'{"data": [{"index": "x"}]}', b'{"data": {"0": 1}}', b'{"choices": [' + b"9" * 5000 + b"]}",
]  # fmt: skip


async def test_odd_bodies_end_in_an_error_of_ours() -> None:
    said: list[tuple[int, bytes]] = []

    def answer(body: dict[str, Any]) -> web.Response:
        status, content = said[-1]
        return web.Response(status=status, body=content, content_type="application/json")

    async with serving(answer) as home, clients(home.url) as (chat, embedder):
        for case in product((200, 400, 429, 500), ODD_BODIES):
            said.append(case)
            for call in (chat.complete(REQUEST), embedder.request(["a"])):
                with pytest.raises(HiragError):
                    await call
