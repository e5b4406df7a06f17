"""How long does a retrieval take, in process and through gRPC, and how many a second does one service answer?

Prints a JSON line for each way: milliseconds by part (medians), p50 and p99 of the whole, and answers a second with 1
and 16 clients that bring their query vectors.

    python benchmarks/retrieve.py [--index DIR] [--questions FILE] [--vectors memory milvus-lite]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from importlib import resources
from pathlib import Path

import numpy as np

from hirag_dist.client import AsyncHiragClient
from hirag_dist.config_file import load_config
from hirag_dist.core.prompts import Prompts
from hirag_dist.index.reader import open_snapshot
from hirag_dist.index.store import Store
from hirag_dist.types import Query
from hirag_dist.wiring import make_embedder, make_engine


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    samples = Path(str(resources.files("hirag_dist.samples")))
    parser.add_argument("--index", help="an index folder; the sample corpus is indexed without it")
    parser.add_argument("--questions", default=str(samples / "questions.txt"), help="one a line, or JSONL with `query`")
    parser.add_argument("--vectors", nargs="+", default=["memory", "milvus-lite"])
    parser.add_argument("--calls", type=int, default=400)
    arguments = parser.parse_args()
    questions = [_question(line) for line in Path(arguments.questions).read_text(encoding="utf-8").splitlines() if line]
    with tempfile.TemporaryDirectory() as folder:
        index = arguments.index or f"{folder}/index"
        if arguments.index is None:
            command = [sys.executable, "-m", "hirag_dist", "index", str(samples / "corpus"), "--index", index]
            subprocess.run([*command, "--executor", "inline", "--json"], check=True, stdout=subprocess.DEVNULL)
        for backend in arguments.vectors:
            print(json.dumps(asyncio.run(in_process(index, backend, questions))), flush=True)
        print(json.dumps(asyncio.run(through_grpc(index, questions, arguments.calls))), flush=True)


async def in_process(index: str, backend: str, questions: list[str]) -> dict[str, object]:
    """Ask every question of an engine in this process, three times, and keep the last two."""
    config = load_config(None, {}, {"vectors.backend": backend}).config
    started = time.perf_counter()
    engine = make_engine(config, open_snapshot(Store(index)), Prompts())
    opened = time.perf_counter() - started
    embedder = make_embedder(config)
    vectors = await embedder.embed(questions)
    whole: list[float] = []
    cpu: list[float] = []
    parts: dict[str, list[float]] = {}
    for turn in range(3):
        for question, vector in zip(questions, vectors, strict=True):
            before = time.process_time()
            result = await engine.retrieve(Query(question, vector=vector))
            if turn:
                whole.append(result.timings_ms["total"])
                cpu.append((time.process_time() - before) * 1e3)
                for part, value in result.timings_ms.items():
                    parts.setdefault(part, []).append(value)
    await engine.close()
    return {
        "benchmark": "retrieve",
        "way": "in process",
        "vectors": backend,
        "entities": engine.info.counts["entities"],
        "open_s": round(opened, 2),
        "p50_ms": round(statistics.median(whole), 2),
        "p99_ms": round(float(np.percentile(whole, 99)), 2),
        "cpu_ms": round(statistics.median(cpu), 2),
        "parts_ms": {part: round(statistics.median(values), 2) for part, values in parts.items()},
    }


async def through_grpc(index: str, questions: list[str], calls: int) -> dict[str, object]:
    """Ask one service, vectors in memory, with 1 and with 16 callers at a time."""
    command = [sys.executable, "-m", "hirag_dist", "serve", "--index", index, "--listen", "127.0.0.1:0"]
    server = subprocess.Popen(
        [*command, "--set", "vectors.backend=memory"],
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"COLUMNS": "300"},
    )
    try:
        assert server.stderr is not None
        address = next(found.group(1) for line in server.stderr if (found := re.search(r"Serving on (\S+)\. ", line)))
        drain = asyncio.create_task(asyncio.to_thread(server.stderr.read))
        vectors = await make_embedder(load_config(None, {}).config).embed(questions)
        asked = [Query(question, vector=vector) for question, vector in zip(questions, vectors, strict=True)]
        figures: dict[str, object] = {
            "benchmark": "retrieve",
            "way": "gRPC, vector in the request",
            "vectors": "memory",
        }
        async with AsyncHiragClient(address) as client:
            await _load(client, asked, 50, 4)
            for callers in (1, 16):
                times, wall = await _load(client, asked, calls, callers)
                figures[f"clients_{callers}"] = {
                    "answers_per_s": round(calls / wall),
                    "p50_ms": round(statistics.median(times), 2),
                    "p99_ms": round(float(np.percentile(times, 99)), 2),
                }
    finally:
        server.terminate()
        server.wait()
    await drain
    return figures


async def _load(client: AsyncHiragClient, asked: list[Query], calls: int, callers: int) -> tuple[list[float], float]:
    times: list[float] = []
    waiting = iter(range(calls))

    async def caller() -> None:
        for number in waiting:
            started = time.perf_counter()
            await client.retrieve(asked[number % len(asked)])
            times.append((time.perf_counter() - started) * 1e3)

    started = time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(callers)))
    return times, time.perf_counter() - started


def _question(line: str) -> str:
    return str(json.loads(line)["query"]) if line.startswith("{") else line


if __name__ == "__main__":
    main()
