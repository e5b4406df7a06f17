"""Cost of one call without the endpoint: the openai client, the model and the whole pool.

The same real extraction prompts go to `simulate-llm` at zero latency in another process, its replies remembered, on
four ways: the openai client's own `chat.completions.create`; the same with its aiohttp transport; the model of
hirag_dist over that client (plain dicts); and the whole pool around it (budget, retry, ledger with durable replies). A
JSON line each: calls a second and milliseconds of CPU a call in this process; `--profile` says where the pool's time
goes. The last lines are embeddings of 64 texts as floats and as base64.

    python benchmarks/calls.py [--calls 2000] [--concurrency 32] [--profile]
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import json
import pstats
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from importlib import resources
from pathlib import Path

import openai

from benchmarks.build import start_simulator
from hirag_dist.config.model import ENTITY_TYPES, Config
from hirag_dist.core.prompts.templates import Prompts, extraction_request
from hirag_dist.llm.chat import EndpointPool
from hirag_dist.llm.endpoints.openai_chat import OpenAiChat
from hirag_dist.llm.endpoints.openai_client import EndpointSettings
from hirag_dist.llm.endpoints.openai_embeddings import OpenAiEmbedder
from hirag_dist.llm.limits.adaptive import EndpointLimits
from hirag_dist.llm.limits.coordinator import QuotaCoordinator
from hirag_dist.llm.limits.rate_limiter import RateLimiter
from hirag_dist.llm.priced_model import PricedModel
from hirag_dist.llm.reply_store import Ledger
from hirag_dist.llm.retry import RetriedCalls, RetryPolicy
from hirag_dist.storage.store import Store
from hirag_dist.types import ChatReply, ChatRequest

Ask = Callable[[ChatRequest], Awaitable[object]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--concurrency", type=int, default=32)
    parser.add_argument("--profile", action="store_true")
    arguments = parser.parse_args()
    simulator, url = start_simulator()
    try:
        asyncio.run(measure(url, arguments.calls, arguments.concurrency, arguments.profile))
    finally:
        simulator.terminate()
        simulator.wait()


async def measure(url: str, n_calls: int, concurrency: int, profile: bool) -> None:
    """Print the figures."""
    settings = EndpointSettings("sim", url, "any", "simulated", structured="none")
    requests = prompts()
    plain = openai.AsyncOpenAI(base_url=url, api_key="any", max_retries=0)
    quick = openai.AsyncOpenAI(
        base_url=url, api_key="any", max_retries=0, http_client=openai.DefaultAioHttpClient()
    )  # fmt: skip
    model = OpenAiChat(settings, len)
    with tempfile.TemporaryDirectory() as folder:
        ledger = Ledger(Store(folder))
        caller = RetriedCalls(
            RateLimiter(QuotaCoordinator({"sim": EndpointLimits(None, None, concurrency)})), RetryPolicy()
        )
        pool = EndpointPool({"extract": [PricedModel("sim", model)]}, ledger, caller, len)
        ways: dict[str, Ask] = {
            "openai client": through(plain),
            "openai client, aiohttp": through(quick),
            "our model": model.complete,
            "the whole pool": lambda request: pool.ask(request, text_of),
        }
        for way, ask in ways.items():
            wanted = [numbered(requests[n % len(requests)], n) for n in range(n_calls)]
            await run(model.complete, wanted, concurrency)  # every reply is remembered there
            wall, cpu = await run(ask, wanted, concurrency)
            report(way, n_calls, wall, cpu)
        if profile:
            profiler = cProfile.Profile()
            wanted = [numbered(requests[n % len(requests)], n_calls + n) for n in range(n_calls)]
            await run(model.complete, wanted, concurrency)
            profiler.enable()
            await run(ways["the whole pool"], wanted, concurrency)
            profiler.disable()
            pstats.Stats(profiler).sort_stats("cumtime").print_stats("hirag_dist", 40)
        await pool.close()
        await ledger.close()
    await embeddings(url, plain)
    await plain.close()
    await quick.close()


async def embeddings(url: str, plain: openai.AsyncOpenAI) -> None:
    """Compare the client's parsed floats with base64."""
    texts = [f"Isaac Newton wrote on light and colours, number {n}" for n in range(64)]
    embedder = OpenAiEmbedder(EndpointSettings("sim", url, "any", "simulated"), 384, len, lambda text, n: text[:n])
    ways: dict[str, Callable[[], Awaitable[object]]] = {
        "64 embeddings, floats": lambda: plain.embeddings.create(model="m", input=texts, encoding_format="float"),
        "64 embeddings, hirag_dist (base64)": lambda: embedder.embed(texts),
    }
    for way, ask in ways.items():
        await ask()
        cpu, wall = time.process_time(), time.perf_counter()
        for _ in range(50):
            await ask()
        report(way, 50, time.perf_counter() - wall, time.process_time() - cpu)
    await embedder.close()


def prompts() -> list[ChatRequest]:
    """Return extraction requests over pieces of the sample corpus."""
    corpus = Path(str(resources.files("hirag_dist.samples"))) / "corpus"
    texts = [path.read_text(encoding="utf-8") for path in sorted(corpus.iterdir())]
    pieces = [text[start : start + 4800] for text in texts for start in range(0, len(text) - 4800, 4800)]
    assert Config().chunk_tokens == 1200
    return [extraction_request("extract-graph", piece, Prompts(), ENTITY_TYPES, None) for piece in pieces[:40]]


def numbered(request: ChatRequest, n: int) -> ChatRequest:
    """Return a request with a ledger key of its own: a limit on the reply that never binds."""
    return replace(request, max_tokens=10_000 + n)


def through(client: openai.AsyncOpenAI) -> Ask:
    """Return a function that asks as most programs do."""

    async def ask(request: ChatRequest) -> object:
        messages = [{"role": each.role, "content": each.content} for each in request.messages]
        reply = await client.chat.completions.create(
            model="simulated", messages=messages, temperature=0.0, max_tokens=request.max_tokens  # type: ignore[arg-type]
        )  # fmt: skip
        return reply.choices[0].message.content

    return ask


def text_of(reply: ChatReply) -> str:
    """Accept any reply."""
    return reply.text


async def run(ask: Ask, requests: Sequence[ChatRequest], concurrency: int) -> tuple[float, float]:
    """Return wall and CPU seconds of all calls, so many at a time."""
    waiting = iter(requests)

    async def work() -> None:
        for request in waiting:
            await ask(request)

    wall, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*(work() for _ in range(concurrency)))
    return time.perf_counter() - wall, time.process_time() - cpu


def report(way: str, n_calls: int, wall: float, cpu: float) -> None:
    """Print a line."""
    figures = {
        "calls": n_calls,
        "calls_per_s": round(n_calls / wall),
        "cpu_ms_per_call": round(1000 * cpu / n_calls, 3),
    }
    print(json.dumps({"benchmark": "calls", "way": way} | figures), flush=True)


if __name__ == "__main__":
    main()
