"""An HTTP server on loopback whose only handler is a function of the test, and clients of OpenAI's API that ask it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from typing import Any, TypeVar

from aiohttp import web

from hirag_dist.llm.endpoints.openai_chat import OpenAiChat
from hirag_dist.llm.endpoints.openai_client import EndpointSettings
from hirag_dist.llm.endpoints.openai_embeddings import OpenAiEmbedder
from hirag_dist.llm.endpoints.rerank import RerankEndpoint
from hirag_dist.protocols import ChatModel
from hirag_dist.types import ChatReply, ChatRequest

KEY = "sk-secret-0123456789"
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Client = TypeVar("Client", OpenAiChat, OpenAiEmbedder, RerankEndpoint)
Script = Callable[[dict[str, Any]], web.StreamResponse | Awaitable[web.StreamResponse]]


@asynccontextmanager
async def loopback(handle: Handler) -> AsyncIterator[str]:
    """Serve every path and method by a function; yield scheme, host and port."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def settings(url: str, **changes: Any) -> EndpointSettings:
    return replace(EndpointSettings("mine", url, KEY, "model-1", first_token_timeout_s=5.0), **changes)


def count_words(text: str) -> int:
    return len(text.split())


def first_words(text: str, n_words: int) -> str:
    return " ".join(text.split()[:n_words])


class Stub:
    """An endpoint that answers what a function of the body says, and remembers what it was sent."""

    def __init__(self, script: Script) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.requests: list[web.Request] = []
        self._script = script
        self.url = ""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request)
        self.bodies.append(await request.json())
        reply = self._script(self.bodies[-1])
        return reply if isinstance(reply, web.StreamResponse) else await reply


@asynccontextmanager
async def serving(script: Script) -> AsyncIterator[Stub]:
    stub = Stub(script)
    async with loopback(stub.answer) as url:
        stub.url = f"{url}/v1"
        yield stub


@asynccontextmanager
async def connected(script: Script, connect: Callable[[str], Client]) -> AsyncIterator[tuple[Client, Stub]]:
    async with serving(script) as stub:
        client = connect(stub.url)
        try:
            yield client, stub
        finally:
            await client.close()


def chatting(script: Script, **changes: Any) -> AbstractAsyncContextManager[tuple[OpenAiChat, Stub]]:
    return connected(script, lambda url: OpenAiChat(settings(url, **changes), count_words))


def embedding(script: Script, dim: int, **changes: Any) -> AbstractAsyncContextManager[tuple[OpenAiEmbedder, Stub]]:
    return connected(script, lambda url: OpenAiEmbedder(settings(url, **changes), dim, count_words, first_words))


def reranking(script: Script) -> AbstractAsyncContextManager[tuple[RerankEndpoint, Stub]]:
    return connected(script, lambda url: RerankEndpoint(settings(url)))


async def read_stream(chat: ChatModel, request: ChatRequest) -> tuple[str, ChatReply]:
    """Return the text of the pieces of a stream, and the reply at its end."""
    *pieces, reply = [each async for each in chat.stream(request)]
    assert isinstance(reply, ChatReply)
    return "".join(map(str, pieces)), reply


def completion(content: object = "fine", finish_reason: str | None = "stop", **more: Any) -> web.Response:
    message = {"role": "assistant", "content": content} | more.pop("message", {})
    return web.json_response({"choices": [{"message": message, "finish_reason": finish_reason}]} | more)


def failure(status: int, message: str = "no", headers: Mapping[str, str] | None = None, **detail: Any) -> web.Response:
    return web.json_response({"error": {"message": message} | detail}, status=status, headers=headers)


def event(content: object, reason: str | None = None, **delta: Any) -> bytes:
    """A piece of a streamed reply."""
    return json.dumps({"choices": [{"delta": {"content": content} | delta, "finish_reason": reason}]}).encode()


class Events(web.StreamResponse):
    """A streamed reply; before its last event it waits for `pause`."""

    def __init__(self, *events: bytes, pause: asyncio.Event | None = None) -> None:
        super().__init__(headers={"Content-Type": "text/event-stream"})
        self._events, self._pause = events, pause

    async def write_eof(self, data: bytes = b"") -> None:
        for at, each in enumerate(self._events, start=1):
            if self._pause is not None and at == len(self._events):
                await self._pause.wait()
            await self.write(b"data: " + each + b"\n\n")
            await asyncio.sleep(0)
        await super().write_eof(data)
