"""Wall time of a whole index against its lower bound, under limits of the endpoint.

Builds INPUT against `simulate-llm` in another process under one limit at a time (the pool knows it), all cases at the
same time since they mostly wait. A JSON line a case: wall seconds, calls, tokens, 429s and
T_min = max(calls / rpm, tokens / tpm, calls × mean latency / concurrency).

    python benchmarks/whole_index.py INPUT … [--minutes 4] [--executor inline ray] [--latency-ms 1000]
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.build import run
from benchmarks.llm_pool import JITTER, simulator, stats
from benchmarks.settings import HASHING_OPTION
from hirag_dist.testing.simulator import SimulatorOptions

CONFIG = """\
llm:
  endpoints:
    sim: {{base_url: "{url}", model: simulated, output: delimited, {limits}}}
    vectors: {{base_url: "{url}", model: simulated-embedding, dim: 384}}
  roles: {{extract: sim, summarise: sim, report: sim, answer: sim, judge: sim, embed: {embed}}}
execution: {{executor: {executor}}}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("inputs", nargs="+")
    parser.add_argument("--minutes", type=float, default=4.0, help="about what each case is to take")
    parser.add_argument("--executor", nargs="+", default=["inline", "ray"])
    parser.add_argument("--limits", nargs="+", default=["rpm", "tpm", "max_concurrent"])
    parser.add_argument("--latency-ms", type=float, default=1000.0)
    arguments = parser.parse_args()
    free = measure(arguments.inputs, "inline", {}, 0.0)
    print(json.dumps(free), flush=True)
    wanted = {
        "rpm": free["calls"] / arguments.minutes,
        "tpm": free["tokens"] / arguments.minutes,
        "max_concurrent": max(round(free["calls"] * arguments.latency_ms / 60_000 / arguments.minutes), 1),
    }
    for executor in arguments.executor:
        with ThreadPoolExecutor() as pool:
            cases = [
                pool.submit(measure, arguments.inputs, executor, {limit: wanted[limit]}, arguments.latency_ms)
                for limit in arguments.limits
            ]
            for case in cases:
                print(json.dumps(case.result()), flush=True)


def measure(inputs: list[str], executor: str, limits: dict[str, float], latency_ms: float) -> dict[str, Any]:
    """Return one case's figures. Embeddings are computed here, so that every call is of one kind."""
    options = SimulatorOptions(
        listen="127.0.0.1:0", latency_ms=latency_ms, jitter=JITTER if latency_ms else 0.0, **limits  # type: ignore[arg-type]
    )  # fmt: skip
    with simulator(options) as url, tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "hirag.yaml"
        told = ", ".join(f"{name}: {value}" for name, value in (limits or {"max_concurrent": 64}).items())
        config.write_text(CONFIG.format(url=url, limits=told, embed="builtin-embedder", executor=executor))
        command = [sys.executable, "-m", "hirag_dist", "index", *inputs, "--index", f"{folder}/index", *HASHING_OPTION]
        started = time.perf_counter()
        report: Any = run([*command, "--config", str(config), "--json"])
        process_s = time.perf_counter() - started
        counts = stats(url)
    calls, tokens = counts["calls"], counts["input_tokens"] + counts["output_tokens"]
    least = max(
        calls / limits["rpm"] * 60 if "rpm" in limits else 0.0,
        tokens / limits["tpm"] * 60 if "tpm" in limits else 0.0,
        calls * latency_ms / 1000 / limits["max_concurrent"] if "max_concurrent" in limits else 0.0,
    )
    return {
        "benchmark": "whole_index",
        "executor": executor,
        "limit": next(iter(limits), "none"),
        "calls": calls,
        "tokens": tokens,
        "wall_s": report["seconds"],
        "process_s": round(process_s, 2),
        "t_min_s": round(least, 2),
        "wall_over_t_min": round(report["seconds"] / least, 3) if least else None,
        "http_429_per_1000": round(1000 * counts["rate_limited"] / calls, 1),
        "snapshot": report["snapshot"],
    }


if __name__ == "__main__":
    main()
