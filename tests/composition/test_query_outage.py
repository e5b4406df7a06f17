"""A question fails soon, and with its cause, when an endpoint is out; the next one works when it is back."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from benchmarks.generated import generate
from hirag_dist.composition.query import make_engine
from hirag_dist.config.loader import load_config
from hirag_dist.core.prompts.templates import Prompts
from hirag_dist.errors import ModelUnavailable
from hirag_dist.retrieval.engine import QueryEngine
from hirag_dist.storage.snapshot.reader import Snapshot, open_snapshot
from hirag_dist.storage.store import Store
from hirag_dist.types import Query

SOON_S = 15.0  # on a loaded machine; builds wait for ten minutes
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> Snapshot:
    store = Store(str(tmp_path_factory.mktemp("questions")))
    generate(store, 1000)
    return open_snapshot(store)


@pytest.fixture
def port() -> int:
    """A port that nothing listens on."""
    with socket.socket() as reserved:
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind(("127.0.0.1", 0))
        return int(reserved.getsockname()[1])


@asynccontextmanager
async def opened(snapshot: Snapshot, port: int, role: str) -> AsyncIterator[QueryEngine]:
    """An engine whose embeddings or answers come from an endpoint at that port."""
    manifest = snapshot.manifest
    endpoint: dict[str, Any] = {"kind": "openai", "base_url": f"http://127.0.0.1:{port}/v1", "model": manifest.embedder}
    llm = {"endpoints": {"far": endpoint | {"dim": manifest.dim}}, "roles": {role: "far"}}
    config = load_config(None, {}, {"vectors.backend": "memory", "llm": llm}).config
    engine = make_engine(config, snapshot, Prompts())
    try:
        yield engine
    finally:
        async with asyncio.timeout(SOON_S):
            await engine.close()


@asynccontextmanager
async def endpoint(port: int, handler: Handler) -> AsyncIterator[None]:
    app = web.Application()
    app.router.add_post("/v1/{path:.*}", handler)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port, reuse_address=True).start()
    try:
        yield
    finally:
        await runner.cleanup()


@pytest.mark.parametrize("role", ["embed", "answer"])
async def test_an_endpoint_that_is_down_is_an_error_with_its_cause(snapshot: Snapshot, port: int, role: str) -> None:
    async with opened(snapshot, port, role) as engine:
        for _ in range(2):
            began = time.monotonic()
            with pytest.raises(ModelUnavailable, match=r"far .* is out of reach"):
                await engine.answer(Query("Who was it?"), deadline_s=60)
            assert time.monotonic() - began < SOON_S


async def test_an_endpoint_that_never_answers_is_the_cause_of_a_passed_deadline(snapshot: Snapshot, port: int) -> None:
    asked = asyncio.Event()

    async def hangs(request: web.Request) -> web.Response:
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    async with endpoint(port, hangs), opened(snapshot, port, "embed") as engine:
        with pytest.raises(TimeoutError, match=r"the question was embedded .* llm\.roles\.embed did not answer"):
            await engine.answer(Query("Who was it?"), deadline_s=1.0)
        assert asked.is_set()
        waiting = asyncio.create_task(engine.answer(Query("Who else?"), deadline_s=300))
        asked.clear()
        await asked.wait()
        waiting.cancel()  # the engine is closed while the call is in progress
        await asyncio.gather(waiting, return_exceptions=True)


async def test_a_question_is_answered_as_soon_as_the_endpoint_is_back(snapshot: Snapshot, port: int) -> None:
    async def embeds(request: web.Request) -> web.Response:
        body = json.loads(await request.read())
        vector = [1.0] + [0.0] * (snapshot.manifest.dim - 1)
        data = [{"index": at, "embedding": vector} for at in range(len(body["input"]))]
        return web.json_response({"data": data})

    async with opened(snapshot, port, "embed") as engine:
        with pytest.raises(ModelUnavailable):
            await engine.retrieve(Query("Who was it?"), deadline_s=60)
        async with endpoint(port, embeds):
            began = time.monotonic()
            found = await engine.retrieve(Query("Who was it?"), deadline_s=60)
            assert found.local
            assert time.monotonic() - began < SOON_S
