"""Cost of the MCP server over the service itself: one search through gRPC, MCP over HTTP and MCP over stdio.

A service with an index of the sample corpus runs in a process of its own, the MCP servers in others. 1 and 16 callers
ask one question after the other. Prints JSON lines: p50, p95 and p99 of a search in milliseconds, searches a second,
and the seconds of the start of each server until its first reply.

    python benchmarks/mcp_cost.py [--index DIR] [--callers 1 16] [--seconds 5]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import numpy as np
from mcp import Client, StdioServerParameters

import hirag_dist
from benchmarks.settings import HASHING
from hirag_dist.client import AsyncHiragClient, HiragClient
from hirag_dist.config.loader import load_config
from hirag_dist.types import Query

QUESTION = "What do the people in these texts have in common?"
PERCENTILES = (50, 95, 99)
COMMAND = (sys.executable, "-m", "hirag_dist")
Ask = Callable[[], Awaitable[object]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--index", help="an index that is there, instead of one of the sample corpus")
    parser.add_argument("--callers", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--seconds", type=float, default=5.0, help="for each figure")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        index = arguments.index or _sample(Path(folder))
        asyncio.run(_measure(index, arguments.callers, arguments.seconds))


def _sample(folder: Path) -> str:
    samples = Path(hirag_dist.__file__).parent / "samples"
    config = load_config(None, {}, {"execution.executor": "inline", **HASHING}).config
    return hirag_dist.build_index(samples, folder / "index", config=config).index_uri


async def _measure(index: str, callers: list[int], seconds: float) -> None:
    with _started("serve", "--index", index, "--listen", "127.0.0.1:0", ready="Serving on ") as service:
        with HiragClient(service) as client:
            client.wait_ready(120)
        python, *module = COMMAND
        command = [*module, "mcp", "--server", service]
        stdio = StdioServerParameters(command=python, args=command, env=dict(os.environ))
        with _started("mcp", "--server", service, "--http", "127.0.0.1:0", ready="MCP at ") as url:
            for count in callers:
                for way, connect in (
                    ("grpc", lambda: _grpc(service)),
                    ("mcp http", lambda: _mcp(url)),
                    ("mcp stdio", lambda: _mcp(stdio)),
                ):
                    await _report(way, connect, count, seconds)


async def _report(
    way: str, connect: Callable[[], contextlib.AbstractAsyncContextManager[Ask]], callers: int, seconds: float
) -> None:
    started = time.perf_counter()
    async with connect() as ask:
        await ask()
        first_s = time.perf_counter() - started
        took: list[float] = []
        until = time.perf_counter() + seconds

        async def caller() -> None:
            while (begun := time.perf_counter()) < until:
                await ask()
                took.append((time.perf_counter() - begun) * 1e3)

        async with asyncio.TaskGroup() as tasks:
            for _ in range(callers):
                tasks.create_task(caller())
    values = np.percentile(took, PERCENTILES).round(2).tolist()
    times = {f"p{percent}_ms": value for percent, value in zip(PERCENTILES, values, strict=True)}
    line = {"benchmark": "mcp_cost", "way": way, "callers": callers, **times}
    print(json.dumps(line | {"per_second": round(len(took) / seconds, 1), "first_s": round(first_s, 2)}), flush=True)


@contextlib.asynccontextmanager
async def _grpc(address: str) -> AsyncIterator[Ask]:
    client = AsyncHiragClient(address)
    try:
        yield lambda: client.retrieve(Query(QUESTION))
    finally:
        await client.close()


@contextlib.asynccontextmanager
async def _mcp(target: str | StdioServerParameters) -> AsyncIterator[Ask]:
    async with Client(target) as client:
        yield lambda: client.call_tool("search", {"question": QUESTION})


@contextlib.contextmanager
def _started(*arguments: str, ready: str) -> Iterator[str]:
    """Start a command, and yield what follows `ready` in its output."""
    process = subprocess.Popen([*COMMAND, *arguments], stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        for line in process.stderr:
            if ready in line:
                threading.Thread(target=process.stderr.read, daemon=True).start()  # so that it does not fill up
                yield line.split(ready)[1].split()[0].rstrip(".")
                break
    finally:
        process.terminate()
        process.wait(20)


if __name__ == "__main__":
    main()
