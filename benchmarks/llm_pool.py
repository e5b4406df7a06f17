"""Share of an allowed rate that the pool uses, and the number of refusals.

For each latency and each kind of limit, calls go through the whole pool (ledger, budget, the openai client) to
`simulate-llm` in another process, on one process and on Ray with 1, 2 and 4 workers. A JSON line a cell: the achieved
rate over the allowed one, 429s per thousand calls, and wall time over its lower bound
T_min = max(calls / rpm, tokens / tpm, calls × mean latency / concurrency). `found` cells tell the pool none of the
limits, and the endpoint names none in its headers.

    python benchmarks/llm_pool.py [--seconds 10] [--ways inline ray1 ray2 ray4] [--latencies 50 200 1000]
        [--limits rpm tpm concurrent] [--knowing known headers found]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Annotated, Any, ClassVar

import pyarrow as pa
import ray

from hirag_dist.composition.build import make_executor
from hirag_dist.config.model import Config
from hirag_dist.execution.dataset import Dataset, TableSet
from hirag_dist.execution.runner import StageRunner
from hirag_dist.execution.stage import ByRows, Services, Split, Tables, gather_calls
from hirag_dist.storage.store import Store
from hirag_dist.testing.simulator import SimulatorOptions, run_simulator
from hirag_dist.types import ChatReply, ChatRequest, Message

UNITS = pa.schema([pa.field("text", pa.string(), nullable=False)])
JITTER = 0.3
PROMPT = "Task: describe\n\nWrite one description of at most 40 words."
BODY = (
    "<entity>\nIsaac Newton (person)\n</entity>\n<descriptions>\n- Newton wrote on light, number {n}.\n</descriptions>"
)


@dataclass(frozen=True)
class AskModels:
    """Texts → as many calls. A stage like those of a build, without their own work."""

    name: ClassVar[str] = "ask_models"
    version: ClassVar[int] = 1
    split: ClassVar[Split] = ByRows(16)

    class Inputs(TableSet):
        units: Annotated[Dataset, UNITS]

    class Outputs(TableSet):
        replies: Annotated[Dataset, UNITS]

    models: tuple[str, ...]

    async def run(self, tables: Tables, services: Services) -> Tables:
        """Return the replies."""
        texts = tables["units"]["text"].to_pylist()
        replies = await gather_calls(services.chat.ask(_request(text), _text) for text in texts)
        return {"replies": pa.table({"text": [str(each) for each in replies]}, UNITS)}


def _request(text: str) -> ChatRequest:
    return ChatRequest("summarise", (Message("system", PROMPT), Message("user", text)), unit="u")


def _text(reply: ChatReply) -> str:
    return reply.text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10.0, help="lower bound of each cell's time")
    parser.add_argument("--ways", nargs="+", default=["inline", "ray1", "ray2", "ray4"])
    parser.add_argument("--latencies", nargs="+", type=float, default=[50.0, 200.0, 1000.0])
    parser.add_argument("--limits", nargs="+", default=["rpm", "tpm", "concurrent"])
    parser.add_argument("--knowing", nargs="+", default=["known", "found"])
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        asyncio.run(run_simulator(SimulatorOptions(**json.loads(arguments.serve)), lambda url: print(url, flush=True)))
        return
    for way in arguments.ways:
        if way.startswith("ray"):
            ray.init(address="local", num_cpus=int(way[3:]), include_dashboard=False, log_to_driver=False)
        for knowing in arguments.knowing:
            for limit in arguments.limits:
                for latency in arguments.latencies:
                    print(json.dumps(measure(way, knowing, limit, latency, arguments.seconds)), flush=True)
        if way.startswith("ray"):
            ray.shutdown()


def measure(way: str, knowing: str, limit: str, latency_ms: float, seconds: float) -> dict[str, Any]:
    """Return one cell's figures."""
    tokens_a_call = 78
    if limit == "rpm":  # 50 calls a second, and as many as that needs in flight
        calls = round(50 * seconds)
        limits: dict[str, Any] = {"rpm": 3000.0}
    elif limit == "tpm":
        calls, limits = round(50 * seconds), {"tpm": 3000.0 * tokens_a_call}
    else:
        slots = {50.0: 4, 200.0: 12, 1000.0: 48}.get(latency_ms, 16)
        calls, limits = round(slots / (latency_ms / 1000) * seconds), {"max_concurrent": slots}
    options = SimulatorOptions(
        listen="127.0.0.1:0", latency_ms=latency_ms, jitter=JITTER, burst_s=5.0,
        limit_headers=knowing != "found", **limits,
    )  # fmt: skip
    with simulator(options) as url, tempfile.TemporaryDirectory() as folder:
        told = limits if knowing == "known" else {}
        config = _config(url, way, told)
        store = Store(folder)
        units = pa.table({"text": [BODY.format(n=n) for n in range(calls + 16)]}, UNITS)
        executor = make_executor(config, store, None, None)
        try:
            runner = StageRunner(store, executor, (), 0.0)
            warm, rest = (_put(runner, units.slice(*part)) for part in ((0, 16), (16, calls)))
            runner.run(AskModels(("sim",)), "warm", units=warm)
            before = stats(url)
            started = time.perf_counter()
            runner.run(AskModels(("sim",)), "calls", units=rest)
            wall = time.perf_counter() - started
            after = stats(url)
        finally:
            executor.close()
    used = after["input_tokens"] + after["output_tokens"] - before["input_tokens"] - before["output_tokens"]
    bounds = {
        "rpm": calls / limits["rpm"] * 60 if "rpm" in limits else 0.0,
        "tpm": used / limits["tpm"] * 60 if "tpm" in limits else 0.0,
        "concurrent": calls * latency_ms / 1000 / limits["max_concurrent"] if "max_concurrent" in limits else 0.0,
    }
    least = max(bounds.values())
    refused = after["rate_limited"] - before["rate_limited"]
    return {
        "benchmark": "llm_pool",
        "way": way,
        "limits": knowing,
        "limit": limit,
        "latency_ms": latency_ms,
        "calls": calls,
        "wall_s": round(wall, 2),
        "t_min_s": round(least, 2),
        "wall_over_t_min": round(wall / least, 3),
        "achieved_over_allowed": round(least / wall, 3),
        "http_429_per_1000": round(1000 * refused / calls, 1),
        "most_in_flight": after["most_in_flight"],
    }


def _put(runner: StageRunner, table: pa.Table) -> Dataset:
    return runner.datasets.put("units", table)


def _config(url: str, way: str, told: dict[str, Any]) -> Config:
    workers = int(way[3:]) if way.startswith("ray") else None
    endpoint = {"base_url": url, "model": "simulated", "output": "delimited"} | told
    roles = dict.fromkeys(("extract", "summarise", "report", "answer", "judge"), "sim")
    return Config.model_validate(
        {
            "llm": {"endpoints": {"sim": endpoint}, "roles": roles},
            "execution": {"executor": "ray" if workers else "inline", "workers": workers},
        }
    )


@contextmanager
def simulator(options: SimulatorOptions) -> Iterator[str]:
    """Run an endpoint in a process of its own; give its base URL."""
    command = [sys.executable, __file__, "--serve", json.dumps(asdict(options))]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.wait()


def stats(url: str) -> dict[str, Any]:
    """Return an endpoint's totals."""
    with urllib.request.urlopen(url.removesuffix("/v1") + "/stats", timeout=10) as reply:
        found: dict[str, Any] = json.load(reply)["total"]
        return found


if __name__ == "__main__":
    main()
