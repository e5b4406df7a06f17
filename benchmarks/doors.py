"""Cost of each interface of a service over gRPC: latency, throughput and CPU, at 1 and 16 callers.

Prints a JSON line for each interface and number of callers:

    retrieve   grpc, json (POST …/Retrieve)
    answer     grpc, json (events), openai (a chat completion), openai-stream

with p50 and p99 in milliseconds, replies per second, CPU milliseconds of the service per reply, kilobytes of a reply,
and `over_grpc`: the ratios of p50 and CPU to gRPC's in the same run. The interfaces are measured in turns, so that
other load of the machine meets all of them; figures are medians of the turns. Callers ask in a closed loop from one
process.

    python -m benchmarks.doors [--index DIR] [--callers 1 16] [--seconds 2] [--turns 3]

Without --index the sample corpus is indexed first and served by one process; it is small, so that the interface is a
large part of each request.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import io
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any, TypeAlias

import aiohttp
import grpc
import psutil

from benchmarks.served import served
from benchmarks.settings import HASHING_OPTION
from hirag_dist.client.common import SERVICE_NAME
from hirag_dist.wire._pb import query_pb2 as pb
from hirag_dist.wire.addresses import MAX_MESSAGE_BYTES

Ask: TypeAlias = Callable[[str], Awaitable[int]]  # a question → bytes of the reply
_LINES = resources.files("hirag_dist.samples").joinpath("questions.txt").read_text("utf-8").splitlines()
QUESTIONS = [line for line in _LINES if line.strip()]
WARM_UP = 20
_URL = re.compile(r"Browser page: (http\S+)")


@dataclass
class Found:
    """Measurements of an interface, a list entry for each turn."""

    p50: list[float] = field(default_factory=list)
    p99: list[float] = field(default_factory=list)
    per_s: list[float] = field(default_factory=list)
    cpu_ms: list[float] = field(default_factory=list)
    kilobytes: float = 0.0

    def line(self) -> dict[str, float]:
        values = {"p50_ms": self.p50, "p99_ms": self.p99, "per_s": self.per_s, "cpu_ms": self.cpu_ms}
        medians = {name: round(statistics.median(each), 2) for name, each in values.items()}
        return medians | {"reply_kb": round(self.kilobytes, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--index", help="an index that is there, instead of the sample corpus")
    parser.add_argument("--callers", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement")
    parser.add_argument("--turns", type=int, default=3, help="measurements of each interface")
    arguments = parser.parse_args()
    with _index(arguments.index) as index, served(index, settings=("service.http=127.0.0.1:0",)) as service:
        url = _url(service.text)
        process = psutil.Process(service.process.pid)
        for callers in arguments.callers:
            found = asyncio.run(_measure(service.address, url, process, callers, arguments))
            for (task, interface), each in found.items():
                base = found[task, "grpc"].line()
                figures = each.line()
                ratios = {name: round(figures[name] / base[name], 2) for name in ("p50_ms", "cpu_ms") if base[name]}
                line = {"task": task, "interface": interface, "callers": callers, **figures, "over_grpc": ratios}
                print(json.dumps({"benchmark": "doors", **line}), flush=True)


@contextlib.contextmanager
def _index(given: str | None) -> Iterator[str]:
    if given is not None:
        yield given
        return
    with tempfile.TemporaryDirectory() as folder:
        corpus = str(resources.files("hirag_dist.samples").joinpath("corpus"))
        command = [sys.executable, "-m", "hirag_dist", "index", corpus, "--index", str(Path(folder, "index"))]
        subprocess.run(
            [*command, *HASHING_OPTION, "--executor", "inline", "--json"], check=True, stdout=subprocess.DEVNULL
        )
        yield str(Path(folder, "index"))


def _url(log: Callable[[], str]) -> str:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        if found := _URL.search(log()):
            return found[1]
        time.sleep(0.1)
    raise RuntimeError(f"the service does not say where its page is:\n{log()}")


async def _measure(
    address: str, url: str, process: psutil.Process, callers: int, arguments: argparse.Namespace
) -> dict[tuple[str, str], Found]:
    async with AsyncExitStack() as stack:
        grpc_ways = [await stack.enter_async_context(_grpc(address)) for _ in range(callers)]
        session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
        http = await stack.enter_async_context(session)
        web = _http(http, url)
        ways: dict[tuple[str, str], list[Ask]] = {}
        for task in ("retrieve", "answer"):
            ways[task, "grpc"] = [each[task] for each in grpc_ways]
            ways |= {name: [ask] * callers for name, ask in web.items() if name[0] == task}
        found = {name: Found() for name in ways}
        for asks in ways.values():
            await _load(asks, WARM_UP, None)
        for _ in range(arguments.turns):
            for name, asks in ways.items():
                await _turn(found[name], asks, process, arguments.seconds)
        return found


async def _turn(found: Found, asks: list[Ask], process: psutil.Process, seconds: float) -> None:
    before, began = process.cpu_times(), time.perf_counter()
    latencies, size = await _load(asks, None, began + seconds)
    took, after = time.perf_counter() - began, process.cpu_times()
    cpu_s = after.user + after.system - before.user - before.system
    cuts = statistics.quantiles(latencies, n=100) if len(latencies) > 1 else latencies * 99
    found.p50.append(statistics.median(latencies) * 1000)
    found.p99.append(cuts[98] * 1000)
    found.per_s.append(len(latencies) / took)
    found.cpu_ms.append(cpu_s / len(latencies) * 1000)
    found.kilobytes = size / len(latencies) / 1000


async def _load(asks: list[Ask], count: int | None, until: float | None) -> tuple[list[float], int]:
    """Ask until a time, or so many times; return the seconds of each reply, and the bytes of all."""
    latencies: list[float] = []
    size = 0

    async def caller(number: int, ask: Ask) -> None:
        nonlocal size
        at = number
        while (until is None or time.perf_counter() < until) and (count is None or at - number < count):
            began = time.perf_counter()
            received = await ask(QUESTIONS[at % len(QUESTIONS)])
            latencies.append(time.perf_counter() - began)
            size += received
            at += 1

    await asyncio.gather(*(caller(number, ask) for number, ask in enumerate(asks)))
    return latencies, size


@asynccontextmanager
async def _grpc(address: str) -> AsyncIterator[dict[str, Ask]]:
    options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES)]
    async with grpc.aio.insecure_channel(address, options=options) as channel:
        retrieve_rpc: Any = channel.unary_unary(f"/{SERVICE_NAME}/Retrieve")
        answer_rpc: Any = channel.unary_stream(f"/{SERVICE_NAME}/Answer")

        async def retrieve(question: str) -> int:
            raw = await retrieve_rpc(pb.RetrieveRequest(query=pb.Query(question=question)).SerializeToString())
            pb.RetrieveResponse.FromString(raw)
            return len(raw)

        async def answer(question: str) -> int:
            request = pb.AnswerRequest(query=pb.Query(question=question), omit_context=True, omit_source_text=True)
            size = 0
            async for raw in answer_rpc(request.SerializeToString()):
                pb.AnswerResponse.FromString(raw)
                size += len(raw)
            return size

        yield {"retrieve": retrieve, "answer": answer}


def _http(http: aiohttp.ClientSession, url: str) -> dict[tuple[str, str], Ask]:
    rpc = f"{url}{SERVICE_NAME}"

    def ask(path: str, body: Callable[[str], bytes], kind: str = "application/json") -> Ask:
        async def asking(question: str) -> int:
            data = io.BytesIO(body(question))
            async with http.post(path, data=data, headers={"Content-Type": kind}) as response:
                raw = await response.read()
                if response.status != 200:
                    raise RuntimeError(f"{path}: {response.status} {raw[:300]!r}")
                if response.content_type == "application/json":
                    json.loads(raw)
                return len(raw)

        return asking

    def of(make: Callable[[str], Any]) -> Callable[[str], bytes]:
        return lambda question: json.dumps(make(question)).encode()

    def chat(*, stream: bool) -> Callable[[str], Any]:
        return lambda text: {
            "model": "hirag",
            "stream": stream,
            "messages": [{"role": "user", "content": text}],
        }

    answer = of(lambda text: {"query": {"question": text}, "omitContext": True, "omitSourceText": True})
    return {
        ("retrieve", "json"): ask(f"{rpc}/Retrieve", of(lambda text: {"query": {"question": text}})),
        ("answer", "json"): ask(f"{rpc}/Answer", answer),
        ("answer", "openai"): ask(f"{url}v1/chat/completions", of(chat(stream=False))),
        ("answer", "openai-stream"): ask(f"{url}v1/chat/completions", of(chat(stream=True))),
    }


if __name__ == "__main__":
    main()
