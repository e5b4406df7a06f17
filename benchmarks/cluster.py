"""Throughput of the calls of an index on a Ray cluster, with one worker and several, and while nodes die.

Runs the extraction of synthetic chunks (`--work extract`: calls alone) or a whole build of INPUT (`--work build`)
against `simulate-llm` with given latency and limits, on a cluster of its own (a head without CPUs, a node of one CPU
for each worker) or on yours, whose nodes have hirag_dist installed (`--address`, with an `--index` that all nodes reach
and an `--endpoint-host` they reach this machine by). A JSON line each: calls and tokens a second, wall over T_min, CPU
of driver, workers and quota coordinator, 429s and calls at a time against what was allowed, bytes stored, and whether
the result is the same; ratios are to the first case. A worker's start is in its CPU, where it had no part in the first
few calls.

Lines go to `--out` too, and cases that are there already are not run again. CPU of other programs is included:
look at `load_before`. Ctrl-C lets the replies in flight arrive, and ends every process that was started here; the case
it stopped is run again. A cluster that asks for tokens wants `RAY_AUTH_MODE=token` here too. How many
questions a service answers in a second is asked by `load.py`.

    python -m benchmarks.cluster [INPUT …] [--workers 1 2 4] [--kill 0 1] [--out cluster.jsonl]
    python -m benchmarks.cluster --address 10.0.0.5:6379 --index s3://bucket/bench --endpoint-host 10.0.0.9
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import pyarrow as pa
import ray

from benchmarks.cluster_parts import ENVIRONMENT, Limits, cluster, endpoint, place, size, stats
from benchmarks.cluster_probes import Watch
from benchmarks.simulated_setup import Setup
from hirag_dist.composition.build import make_executor
from hirag_dist.config.model import Config
from hirag_dist.core.prompts.templates import Prompts
from hirag_dist.core.text.ids import chunk_id, content_id
from hirag_dist.errors import HiragError
from hirag_dist.execution.dataset import Dataset
from hirag_dist.execution.runner import StageRunner
from hirag_dist.indexing.stages.extract import ExtractGraph
from hirag_dist.schemas import CHUNKS
from hirag_dist.storage.store import Store

SAMPLES = Path(str(resources.files("hirag_dist.samples"))) / "corpus"
BURST_S = 1.0  # of a rate that is saved up before the run
NOTICED_S = 4.0  # a node's death, by `cluster_parts.HEALTH`


@dataclass(frozen=True)
class Case:
    """One line: so many workers, so many nodes killed. `work`: extract or build."""

    work: str
    workers: int
    kills: int

    @property
    def name(self) -> str:
        """Key that identifies a line."""
        return f"{self.work}, {self.workers} workers, {self.kills} nodes killed"


@dataclass(frozen=True)
class Done:
    """Counts that a build reported: calls, tokens in and out, and a hash of its result."""

    wall_s: float
    driver_cpu_s: float
    result: str
    chunks: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("inputs", nargs="*", default=[str(SAMPLES)], help="of --work build")
    parser.add_argument("--work", choices=("extract", "build"), default="extract")
    parser.add_argument("--workers", nargs="+", type=int, default=[1, 2, 4])
    parser.add_argument("--kill", nargs="+", type=int, default=[0], help="nodes to kill; each number is a case")
    parser.add_argument("--kill-every-s", type=float, default=8.0)
    parser.add_argument("--chunks", type=int, default=640)
    parser.add_argument("--latency-ms", type=float, default=500.0)
    parser.add_argument("--jitter", type=float, default=0.3)
    parser.add_argument("--rpm", type=float)
    parser.add_argument("--tpm", type=float)
    parser.add_argument("--max-concurrent", type=int, default=64)
    parser.add_argument("--address", help="of a running cluster; without it, one of our own")
    parser.add_argument("--index", help="a folder or URI that all nodes reach; without it, a temporary folder")
    parser.add_argument("--endpoint-host", default="127.0.0.1", help="where nodes reach this machine")
    parser.add_argument("--out", type=Path, help="lines are added here, and cases that it has are not run")
    arguments = parser.parse_args()
    if arguments.address and (arguments.index is None or any(arguments.kill)):
        parser.error("--address needs --index, a place that its nodes reach; and only nodes of our own are killed")
    if arguments.latency_ms <= 0 or arguments.max_concurrent < 1:
        parser.error("--latency-ms and --max-concurrent are above 0: else no limit bounds a short run")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: what was started here ends with us
    try:
        lines = run_cases(arguments)
    except HiragError as error:
        raise SystemExit(str(error)) from error
    except KeyboardInterrupt:
        raise SystemExit("interrupted; with --out, run again to go on with the case that was cut off") from None
    if len({line["result"] for line in lines}) > 1:
        raise SystemExit("the results differ")


def run_cases(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Run the cases that `--out` has no line of; return all lines."""
    limits = Limits(arguments.latency_ms, arguments.jitter, arguments.rpm, arguments.tpm, arguments.max_concurrent)
    options = asked(arguments, limits)
    lines = kept(arguments.out, options)
    for kills in arguments.kill:
        for workers in arguments.workers:
            case = Case(arguments.work, workers, kills)
            if any(line["case"] == case.name for line in lines):
                continue
            with redirect_stdout(sys.stderr):  # Ray tells there of nodes that died
                line = measured(case, limits, arguments)
            line |= ratios(line, lines[0] if lines else line) | {"options": options}
            lines.append(line)
            print(json.dumps(line), flush=True)
            if arguments.out is not None:
                with arguments.out.open("a", encoding="utf-8") as out:
                    out.write(json.dumps(line) + "\n")
    return lines


def asked(arguments: argparse.Namespace, limits: Limits) -> dict[str, Any]:
    """Return the settings that all lines of a file must share to be comparable."""
    what = {"inputs": arguments.inputs} if arguments.work == "build" else {"chunks": arguments.chunks}
    more = {"address": arguments.address, "kill_every_s": arguments.kill_every_s}
    return {"work": arguments.work, **what, **more, **asdict(limits)}


def kept(out: Path | None, options: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the lines of an earlier run; one that was cut while it was written goes.

    Raises:
        SystemExit: they are of a run that was asked for something else.
    """
    if out is None or not out.exists():
        return []
    text = out.read_text(encoding="utf-8")
    whole = text[: text.rfind("\n") + 1]
    if whole != text:
        out.write_text(whole, encoding="utf-8")
    lines = [json.loads(line) for line in whole.splitlines()]
    others = {json.dumps(line["options"]) for line in lines} - {json.dumps(options)}
    if others:
        raise SystemExit(f"{out} has lines of a run with other options ({min(others)}); name another file")
    return lines


def measured(case: Case, limits: Limits, arguments: argparse.Namespace) -> dict[str, Any]:
    """Run one case; return its line."""
    kill_at_s = tuple(arguments.kill_every_s * (number + 1) for number in range(case.kills))
    load_before = os.getloadavg()[0]
    with (
        tempfile.TemporaryDirectory() as folder,
        endpoint(limits, arguments.endpoint_host) as url,
        cluster(arguments.address, case.workers) as (address, own),
        place(arguments.index or folder) as where,
    ):
        config = configured(url, limits, address, case.workers)
        if case.work == "extract":
            watch = Watch(own, kill_at_s)
            before, done = extraction(where, Config.model_validate(config), arguments.chunks, url, watch)
        else:
            config_file = Path(folder) / "hirag.yaml"
            config_file.write_text(json.dumps(config), encoding="utf-8")
            before = stats(url)
            with Watch(own, kill_at_s) as watch:
                done = build(where, config_file, arguments.inputs)
        used = stats(url)
        stored_mb = size(where) / 1e6
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    calls, tokens_in, tokens_out = (
        used[name] - before[name] for name in ("calls", "input_tokens", "output_tokens")
    )  # fmt: skip
    bounds = {
        "requests": calls / limits.rpm * 60.0 - BURST_S if limits.rpm else 0.0,
        "tokens": (tokens_in + tokens_out) / limits.tpm * 60.0 - BURST_S if limits.tpm else 0.0,
        "concurrency": calls * limits.latency_ms / 1000.0 / limits.max_concurrent,
    }
    t_min_s = max(bounds.values())
    return {
        "benchmark": "cluster",
        "case": case.name,
        "wall_s": round(done.wall_s, 2),
        "t_min_s": round(t_min_s, 2),
        "wall_over_t_min": round(done.wall_s / t_min_s, 3),
        "bound_by": max(bounds, key=lambda name: bounds[name]),
        "calls": calls,
        "calls_per_s": round(calls / done.wall_s, 1),
        "tokens_per_s": round((tokens_in + tokens_out) / done.wall_s),
        "driver_cpu_s": round(done.driver_cpu_s, 2),
        **watch.figures(),
        "rate_limited": used["rate_limited"] - before["rate_limited"],
        "most_in_flight": used["most_in_flight"],
        "max_concurrent": limits.max_concurrent,
        "paid_again": sum(used[name] - before[name] for name in ("repeats", "repeats_of_abandoned")),
        "stored_mb": round(stored_mb, 2),
        "stored_mb_per_s": round(stored_mb / done.wall_s, 3),
        "nodes_killed": watch.killed,
        "result": done.result,
        "cluster": {"nodes": len(nodes), "cpus": sum(each.get("CPU", 0) for each in nodes), "ray": ray.__version__},
        "here": {"cpus": os.cpu_count(), "machine": platform.machine(), "load_before": round(load_before, 2)},
        "simulated": asdict(alike(case, limits, done.chunks, calls, tokens_in, tokens_out)),
    }


def alike(case: Case, limits: Limits, chunks: int, calls: int, tokens_in: int, tokens_out: int) -> Setup:
    """Return the set-up that `scheduler.py --like` simulates for this case: the same calls, sequential in a chunk."""
    each = max(round(calls / chunks), 1)
    return Setup(
        workers=case.workers,
        chunks=chunks,
        calls_a_chunk=each,
        input_tokens=round(tokens_in / calls),
        output_tokens=round(tokens_out / calls),
        rpm=limits.rpm,
        tpm=limits.tpm,
        max_concurrent=limits.max_concurrent,
        burst_s=BURST_S,
        latency_s=limits.latency_ms / 1000.0,
        spread=limits.jitter / 3.0**0.5,  # of a uniform draw
        deaths=case.kills,
        noticed_s=NOTICED_S,
    )


def ratios(line: dict[str, Any], first: dict[str, Any]) -> dict[str, float]:
    """Return the ratios of this case to the first."""
    return {
        "speed_over_first": round(line["calls_per_s"] / first["calls_per_s"], 3),
        "wall_over_first": round(line["wall_s"] / first["wall_s"], 3),
    }


def extraction(where: str, config: Config, n_chunks: int, url: str, watch: Watch) -> tuple[dict[str, int], Done]:
    """Extract synthetic chunks; this process is the driver. A task for each worker goes first, so that it has begun."""
    store = Store(where)
    executor = make_executor(config, store, None, None)
    stage = ExtractGraph(
        method="joint",
        structured=False,
        gleaning_rounds=0,
        entity_types=config.entity_types,
        split_homonyms=False,
        same_language=False,
        prompts=Prompts(),
        models=("sim",),
    )
    try:
        runner = StageRunner(store, executor, (), 0.0)
        runner.run(stage, "extract", chunks=put(runner, chunks(config, 4, "first ")))
        runner.run(
            stage, "extract", chunks=put(runner, chunks(config, 16 * (config.execution.workers or 1), "second "))
        )
        given = put(runner, chunks(config, n_chunks, ""))
        before = stats(url)
        with watch:
            cpu_s, begun = time.process_time(), time.perf_counter()
            found = runner.run(stage, "extract", chunks=given)
            wall_s, cpu_s = time.perf_counter() - begun, time.process_time() - cpu_s
    finally:
        executor.close()
    result = " ".join(part.digest for _, dataset in sorted(found.datasets().items()) for part in dataset.parts)
    return before, Done(wall_s, cpu_s, content_id(result), n_chunks)


def put(runner: StageRunner, table: pa.Table) -> Dataset:
    """Store chunks."""
    return runner.datasets.put("chunks", table)


def chunks(config: Config, count: int, prefix: str) -> pa.Table:
    """Return pieces of the sample corpus, each numbered so that no two requests are the same."""
    texts = [path.read_text(encoding="utf-8") for path in sorted(SAMPLES.iterdir())]
    pieces = [text[at : at + 2000] for text in texts for at in range(0, len(text) - 2000, 2000)]
    rows = [
        {
            "chunk_id": chunk_id(f"{prefix}{number}", 0, 2000, f"{prefix}{number}"),
            "document_id": "synthetic",
            "position": number,
            "start": 0,
            "end": 2000,
            "n_tokens": 500,
            "text": f"Part {prefix}{number}. {pieces[number % len(pieces)]}",
        }
        for number in range(count)
    ]
    return pa.Table.from_pylist(rows, CHUNKS)


def build(where: str, config_file: Path, inputs: list[str]) -> Done:
    """Build an index by the command line, which is the driver then."""
    command = [sys.executable, "-m", "hirag_dist", "index", *inputs, "--index", where]
    command += ["--config", str(config_file), "--executor", "ray", "--json"]
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=ENVIRONMENT)
    wall_s, after = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(done.stderr)
    told = json.loads(done.stdout)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Done(wall_s, cpu_s, told["snapshot"], told["counts"]["chunks"])


def configured(url: str, limits: Limits, address: str, workers: int) -> dict[str, Any]:
    """Return the configuration of a build."""
    model = {"base_url": url, "model": "simulated", "output": "delimited", "max_concurrent": limits.max_concurrent}
    model |= {"burst_window_s": BURST_S}
    model |= {name: value for name, value in (("rpm", limits.rpm), ("tpm", limits.tpm)) if value is not None}
    vectors = {"base_url": url, "model": "simulated-embedding", "dim": 384, "max_concurrent": 8}
    roles = dict.fromkeys(("extract", "summarise", "report", "answer", "judge"), "sim") | {"embed": "vectors"}
    return {
        "llm": {"endpoints": {"sim": model, "vectors": vectors}, "roles": roles},
        "execution": {"executor": "ray", "ray_address": address, "workers": workers},
    }


if __name__ == "__main__":
    main()
