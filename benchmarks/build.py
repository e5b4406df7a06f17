"""Cost of building an index, without the endpoint.

Builds a corpus against `simulate-llm` at zero latency in another process, so that the model's own work is not counted,
and prints a JSON line for each executor: wall and CPU seconds, peak memory, calls, tokens, and a second run's time.

    python benchmarks/build.py [INPUT …] [--executor inline ray]

Variables of the environment change the configuration, such as HIRAG__RESOLUTION__ENABLED=true.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
import urllib.request
from importlib import resources
from pathlib import Path
from typing import Any

CONFIG = """\
llm:
  endpoints:
    sim: {{base_url: "{url}", model: simulated, max_concurrent: 64, output: delimited}}
    vectors: {{base_url: "{url}", model: simulated-embedding, dim: 384}}
  roles: {{extract: sim, summarise: sim, report: sim, answer: sim, judge: sim, embed: vectors}}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    samples = Path(str(resources.files("hirag_dist.samples"))) / "corpus"
    parser.add_argument("inputs", nargs="*", default=[str(samples)])
    parser.add_argument("--executor", nargs="+", default=["inline", "ray"])
    arguments = parser.parse_args()
    for executor in arguments.executor:
        print(json.dumps(measure(arguments.inputs, executor)), flush=True)


def measure(inputs: list[str], executor: str) -> dict[str, object]:
    """Build once and once more; return the figures."""
    with tempfile.TemporaryDirectory() as folder:
        simulator, url = start_simulator()
        try:
            config = Path(folder) / "hirag.yaml"
            config.write_text(CONFIG.format(url=url), encoding="utf-8")
            command = [sys.executable, "-m", "hirag_dist", "index", *inputs, "--index", f"{folder}/index"]
            command += ["--config", str(config), "--executor", executor, "--json"]
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            started = time.perf_counter()
            report = run(command)
            wall = time.perf_counter() - started
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            started = time.perf_counter()
            again = run(command)
            second = time.perf_counter() - started
            with urllib.request.urlopen(url.removesuffix("/v1") + "/stats", timeout=10) as reply:
                stats = json.load(reply)
        finally:
            simulator.terminate()
            simulator.wait()
    usage = report["usage"]
    return {
        "benchmark": "build",
        "executor": executor,
        "documents": report["counts"]["documents"],
        "chunks": report["counts"]["chunks"],
        "entities": report["counts"]["entities"],
        "relations": report["counts"]["relations"],
        "layers": [layer["n_entities"] for layer in report["layers"]],
        "clusters": [layer["n_clusters"] for layer in report["layers"]],
        "communities": report["communities_by_level"],
        "reports": report["counts"]["reports"],
        "wall_s": round(wall, 2),
        "cpu_s": round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 2),
        "cpu_note": "this process and its children; Ray's workers are not its children" if executor == "ray" else "all",
        "peak_mb": round(after.ru_maxrss / 1024),
        "chat_calls": sum(row["calls"] for row in usage if row["role"] != "embed"),
        "chat_tokens": sum(row["input_tokens"] + row["output_tokens"] for row in usage if row["role"] != "embed"),
        "embedding_calls": sum(row["calls"] for row in usage if row["role"] == "embed"),
        "second_run_s": round(second, 2),
        "second_run_stages": again["stages_run"],
        "same_snapshot": report["snapshot"] == again["snapshot"],
        "endpoint_stats": stats,
    }


def start_simulator() -> tuple[subprocess.Popen[str], str]:
    """Start `simulate-llm` on a free port; return it and its base URL."""
    process = subprocess.Popen(
        [sys.executable, "-m", "hirag_dist", "simulate-llm", "--listen", "127.0.0.1:0"],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        env=os.environ | {"COLUMNS": "300"},
    )
    assert process.stderr is not None
    for line in process.stderr:
        found = re.search(r"http://\S+/v1", line)
        if found:
            return process, found.group(0)
    raise SystemExit("the simulator did not start")


def run(command: list[str]) -> dict[str, Any]:
    """Run a command that prints one JSON object."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 3):
        raise SystemExit(done.stderr)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


if __name__ == "__main__":
    main()
