"""Behaviour of the scheduler at 1,000 workers.

Simulates builds in virtual time: the real quota coordinator, its clients, retries, actor and partitioning; models of
workers, network and endpoint (see `simulated_cluster.py`). Each line is a case: wall over T_min, 429s, calls paid
twice, messages to the coordinator and the CPU of its code, fairness among workers. The coordinator's process is assumed
to need `--handling-us` for a message in addition to its code: what a Ray actor needs (`grants.py`, `a call each`).

    python -m benchmarks.scheduler [--cases NAME …] [--workers 4 100 1000] [--calls-a-worker 100]
    python -m benchmarks.scheduler --like cluster.jsonl       # the cases of `cluster.py`, for a comparison
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

from benchmarks.simulated_cluster import simulate
from benchmarks.simulated_setup import Setup
from benchmarks.virtual_time import run

CASES: dict[str, dict[str, Any]] = {
    "requests a minute": {"rpm": 60_000.0, "max_concurrent": 4000},
    "tokens a minute": {"tpm": 200_000_000.0, "max_concurrent": 4000},
    "calls at a time": {"max_concurrent": 2000, "latency_s": 2.0},
    "stragglers": {"rpm": 60_000.0, "max_concurrent": 4000, "stragglers": 0.01},
    "deaths": {"rpm": 60_000.0, "max_concurrent": 4000, "deaths": 50},  # of 1,000 workers
    "100,000 requests a minute": {"rpm": 100_000.0, "max_concurrent": 8000},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--workers", nargs="+", type=int, default=[4, 100, 1000])
    parser.add_argument("--calls-a-worker", type=int, default=100)
    parser.add_argument("--least-calls", type=int, default=20_000)
    parser.add_argument("--handling-us", type=float, default=700.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--like", type=Path, help="lines of cluster.py: simulate what was run there")
    arguments = parser.parse_args()
    handling_s = arguments.handling_us / 1e6
    if arguments.like is not None:
        for line in arguments.like.read_text(encoding="utf-8").splitlines():
            told = json.loads(line)
            compare(told, replace(setup_of(told["simulated"]), handling_s=handling_s, seed=arguments.seed))
        return
    for name in arguments.cases:
        for workers in arguments.workers:
            chunks = max(workers * arguments.calls_a_worker, arguments.least_calls) // 2
            setup = Setup(workers=workers, chunks=chunks, handling_s=handling_s, seed=arguments.seed, **CASES[name])
            if setup.deaths:
                setup = replace(setup, deaths=max(workers * setup.deaths // 1000, 1))
            report(setup, case=name)


def setup_of(values: dict[str, Any]) -> Setup:
    """Return the setup of which a line tells the fields."""
    return Setup(**{each.name: values[each.name] for each in fields(Setup) if each.name in values})


def compare(measured: dict[str, Any], setup: Setup) -> None:
    """Print the simulated figures of a run next to the measured ones."""
    outcome = run(simulate(setup))
    wall_s = measured["wall_s"]
    line = {
        "benchmark": "scheduler",
        "like": measured["case"],
        "workers": setup.workers,
        "t_min_s": measured["t_min_s"],
    }
    line |= {"measured_wall_s": wall_s, "simulated_wall_s": round(outcome.wall_s, 2)}
    line |= {"simulated_over_measured": round(outcome.wall_s / wall_s, 3)}
    for name, simulated in (("rate_limited", outcome.refused), ("asks", outcome.asks), ("tells", outcome.tells)):
        line |= {f"measured_{name}": measured[name], f"simulated_{name}": simulated}
    print(json.dumps(line), flush=True)


def report(setup: Setup, **more: Any) -> None:
    """Simulate, and print a line."""
    begun = time.perf_counter()
    outcome = run(simulate(setup))
    line = {"benchmark": "scheduler", "workers": setup.workers} | more | outcome.figures()
    line["simulated_in_s"] = round(time.perf_counter() - begun, 1)
    print(json.dumps(line | {"setup": asdict(setup)}), flush=True)


if __name__ == "__main__":
    main()
