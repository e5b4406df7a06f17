"""Losses and repeated payments of a build under faults.

Builds INPUT (the sample corpus, in small chunks) against `simulate-llm` in a process of its own, with one kind of
fault in each case: faults of the endpoint, and SIGKILL of the endpoint, the driver, Ray's workers and a Ray node at
random moments. Every case must end in the snapshot of the undisturbed build. What was paid is counted from the
endpoint's own
log: a repeat is `in flight` where the first reply was abandoned, or was being answered or answered less than 150 ms
before a process died; any `other` repeat is a fault of hirag_dist. Prints a JSON line a case, and a table at the end;
exits with 1 where a snapshot differs or there is an `other` repeat.

    python benchmarks/faults.py [INPUT …] [--quick] [--cases NAME …] [--kills N] [--seed 1] [--keep DIR]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any

from ray.cluster_utils import Cluster
from rich.console import Console
from rich.table import Table

from benchmarks.faulty_runs import (
    ATTEMPTS,
    Audit,
    Endpoint,
    Failed,
    Job,
    Life,
    audit,
    stopwatch,
    wait_for_deaths,
    workers_below,
)

CORPUS = Path(str(resources.files("hirag_dist.samples"))) / "corpus"
QUICK = ("newton-whiteness-from-colours.md", "jefferson-1803-louisiana.md")
PACE = ("--latency-ms", "20", "--jitter", "0.8")
BOUND = ("--max-faults-per-request", str(ATTEMPTS - 1))  # so that no unit becomes a dead letter by chance
FAULTS = {
    "errors 5 %": ("--fail-rate", "0.05"),
    "429 storms": ("--storm-rate", "0.003"),
    "malformed 5 %": ("--malformed-rate", "0.05"),
    "truncated 5 %": ("--truncate-rate", "0.05"),
    "hangs 2 %": ("--hang-rate", "0.02"),
    "dropped 5 %": ("--drop-rate", "0.05"),
    "all faults": (
        *("--fail-rate", "0.05", "--storm-rate", "0.002", "--malformed-rate", "0.05", "--truncate-rate", "0.05"),
        *("--hang-rate", "0.01", "--drop-rate", "0.05"),
    ),
}
FATAL = ("--malformed-rate", "0.3", "--truncate-rate", "0.1")
HANGING = ("hangs 2 %", "all faults")
HANG_TIMEOUT_S = 1.0
TIMEOUT_S = 20.0
HEALTH = {  # a dead node is noticed within seconds; one that is slow to start is given its time
    "health_check_initial_delay_ms": 10_000,
    "health_check_period_ms": 1000,
    "health_check_timeout_ms": 1000,
    "health_check_failure_threshold": 3,
}


@dataclass
class CaseResult:
    """Result of the builds of a case.

    Attributes:
        kills: how many processes or nodes were killed.
        deaths: when, in seconds since the epoch.
        seconds: of all builds together, from the first start to the last end.
        letters: dead letters before the last command.
    """

    snapshots: list[str] = field(default_factory=list)
    audits: list[Audit] = field(default_factory=list)
    kills: int = 0
    seconds: float = 0.0
    letters: int = 0
    failure: str = ""


@dataclass(frozen=True)
class Bench:
    """Settings that all cases share.

    Attributes:
        folder: for their builds.
        kills: of drivers; of workers, endpoints and nodes in proportion.
    """

    folder: Path
    inputs: tuple[str, ...]
    seed: int
    kills: int

    @contextmanager
    def endpoint(
        self, name: str, number: int, executor: str, *options: str, timeout_s: float = TIMEOUT_S
    ) -> Iterator[tuple[Endpoint, Job]]:
        """Give a fresh endpoint and a build against it that has not started."""
        folder = self.folder / f"{name.replace(' ', '-').replace('%', 'percent')}-{number}"
        job = Job(folder, self.inputs, executor, {"execution": {"workers": 2}})
        folder.mkdir(parents=True)
        endpoint = Endpoint(folder, (*PACE, "--seed", "0", *options))
        job.configure(endpoint.url, timeout_s)
        try:
            yield endpoint, job
        finally:
            endpoint.end(signal.SIGTERM)

    def chance(self, name: str, number: int = 0) -> random.Random:
        """Return the generator that draws the moments of a case."""
        return random.Random(f"{self.seed}/{name}/{number}")


Case = Callable[[Bench, str], CaseResult]


def undisturbed(bench: Bench, name: str, executor: str) -> CaseResult:
    """Nothing happens."""
    told = CaseResult()
    with bench.endpoint(name, 0, executor) as (endpoint, job):
        _run(job, told)
    told.audits.append(audit(endpoint.log, ()))
    return told


def faults(bench: Bench, name: str) -> CaseResult:
    """The endpoint misbehaves; each request gets fewer faults than a unit has attempts."""
    told = CaseResult()
    timeout_s = HANG_TIMEOUT_S if name in HANGING else TIMEOUT_S
    with bench.endpoint(name, 0, "inline", *BOUND, *FAULTS[name], timeout_s=timeout_s) as (endpoint, job):
        _run(job, told)
    told.audits.append(audit(endpoint.log, ()))
    return told


def dead_letters(bench: Bench, name: str) -> CaseResult:
    """So many faults that units are given up: exit 3. `retry` against the healthy endpoint makes them good."""
    told = CaseResult()
    with bench.endpoint(name, 0, "inline", *FATAL) as (endpoint, job):
        with stopwatch() as taken:
            code, report = job.start().finish()
        told.letters = report["dead_letters"]
        if code != 3 or not told.letters:
            raise Failed(f"{name}: exit {code} with {told.letters} dead letters, where some were to be expected")
        endpoint.end(signal.SIGTERM)
        endpoint.start(PACE)
        told.seconds = taken[0]
        _run(job, told, "retry")
    told.audits.append(audit(endpoint.log, ()))
    return told


def endpoint_restarts(bench: Bench, name: str) -> CaseResult:
    """The endpoint is killed, and is back at the same address a moment later."""
    told = CaseResult()
    for number, wanted in _rounds(told, max(2, bench.kills // 3)):
        chance = bench.chance(name, number)
        deaths: list[float] = []
        with bench.endpoint(name, number, "inline") as (endpoint, job), stopwatch() as taken:
            life = job.start()
            life.has_begun()
            while told.kills < wanted and life.lasts(chance.uniform(0.5, 2.5)):
                deaths.append(time.time())
                endpoint.end(signal.SIGKILL)
                told.kills += 1
                life.lasts(chance.uniform(0.0, 1.0))
                endpoint.start()
            _end(life, told)
        told.seconds += taken[0]
        told.audits.append(audit(endpoint.log, deaths))
    return told


def driver_killed(bench: Bench, name: str, executor: str) -> CaseResult:
    """The command is killed and given again, until it is through."""
    told = CaseResult()
    most = bench.kills if executor == "inline" else max(1, bench.kills // 3)
    longest = 2.0 if executor == "inline" else 9.0
    for number, wanted in _rounds(told, most):
        chance = bench.chance(name, number)
        deaths: list[float] = []
        with bench.endpoint(name, number, executor) as (endpoint, job), stopwatch() as taken:
            while True:
                life = job.start()
                life.has_begun()
                while executor == "ray" and not life.workers() and life.lasts(0.05):
                    pass
                if told.kills >= wanted or not life.lasts(chance.uniform(0.0, longest)):
                    break
                orphans = life.workers()
                life.process.kill()
                deaths.append(time.time())
                life.process.wait()
                deaths.extend(wait_for_deaths(orphans))
                told.kills += 1
            _end(life, told)
        told.seconds += taken[0]
        told.audits.append(audit(endpoint.log, deaths))
    return told


def workers_killed(bench: Bench, name: str) -> CaseResult:
    """One of Ray's two workers is killed, again and again; one takes two to three seconds to be there again."""
    told = CaseResult()
    for number, wanted in _rounds(told, max(2, bench.kills)):
        chance = bench.chance(name, number)
        deaths: list[float] = []
        with bench.endpoint(name, number, "ray") as (endpoint, job), stopwatch() as taken:
            life = job.start()
            while told.kills < wanted and life.lasts(chance.uniform(0.5, 5.0)):
                up = life.workers()
                if not up:
                    continue
                chosen = chance.choice(up)
                chosen.kill()
                deaths.extend(wait_for_deaths([chosen]))
                told.kills += 1
            _end(life, told)
        told.seconds += taken[0]
        told.audits.append(audit(endpoint.log, deaths))
    return told


def node_killed(bench: Bench, name: str) -> CaseResult:
    """A node of a Ray cluster is killed with all its processes; another joins."""
    told = CaseResult()
    for number, wanted in _rounds(told, max(1, bench.kills // 4)):
        chance = bench.chance(name, number)
        deaths: list[float] = []
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "_system_config": HEALTH})
        try:
            with bench.endpoint(name, number, "ray") as (endpoint, plain), stopwatch() as taken:
                job = Job(
                    plain.folder, plain.inputs, "ray", {"execution": {"workers": 2, "ray_address": cluster.address}}
                )
                job.configure(endpoint.url, TIMEOUT_S)
                life = job.start()
                while not workers_below(os.getpid()) and life.lasts(0.1):
                    pass  # the driver belongs to the head, where the only CPU is until then
                while told.kills < wanted and not life.is_over():
                    node = cluster.add_node(num_cpus=1)
                    raylet = node.all_processes["raylet"][0].process.pid
                    while not workers_below(raylet) and life.lasts(0.05):
                        pass
                    if not life.lasts(chance.uniform(1.0, 7.0)):  # its worker needs some seconds to begin
                        break
                    doomed = workers_below(raylet)
                    deaths.append(time.time())
                    cluster.remove_node(node, allow_graceful=False)
                    deaths.extend(wait_for_deaths(doomed))
                    told.kills += 1
                _end(life, told)
            told.seconds += taken[0]
            told.audits.append(audit(endpoint.log, deaths))
        finally:
            cluster.shutdown()
    return told


CASES: dict[str, Case] = {
    "undisturbed": partial(undisturbed, executor="inline"),
    "undisturbed on Ray": partial(undisturbed, executor="ray"),
    **dict.fromkeys(FAULTS, faults),
    "dead letters": dead_letters,
    "endpoint killed": endpoint_restarts,
    "driver killed": partial(driver_killed, executor="inline"),
    "driver killed on Ray": partial(driver_killed, executor="ray"),
    "worker killed": workers_killed,
    "node killed": node_killed,
}
ON_RAY = ("undisturbed on Ray", "driver killed on Ray", "worker killed", "node killed")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("inputs", nargs="*")
    parser.add_argument("--quick", action="store_true", help="one of each, on two documents")
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES), metavar="NAME")
    parser.add_argument("--kills", type=int, help="of the driver inline; of other processes in proportion")
    parser.add_argument("--seed", type=int, default=1, help="of the moments at which processes are killed")
    parser.add_argument("--keep", type=Path, help="keep indexes and logs in this folder")
    arguments = parser.parse_args()
    inputs = tuple(arguments.inputs) or (
        (str(CORPUS),) if not arguments.quick else tuple(str(CORPUS / n) for n in QUICK)
    )
    kills = arguments.kills or (1 if arguments.quick else 20)
    folder = arguments.keep or Path(tempfile.mkdtemp(prefix="hirag-faults-"))
    bench = Bench(folder, inputs, arguments.seed, kills)
    try:
        lines = list(_measure(bench, arguments.cases))
    finally:
        if arguments.keep is None:
            shutil.rmtree(folder, ignore_errors=True)
    _show(lines)
    sys.exit(any(not line["same_snapshot"] or line["paid_twice_other"] for line in lines))


def _measure(bench: Bench, names: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield a line a case; the undisturbed build is always made, since the others are compared with it."""
    expected = ""
    usual: dict[str, float] = {}
    for name, case in CASES.items():
        if name not in names and name != "undisturbed" and (name != "undisturbed on Ray" or not {*ON_RAY} & {*names}):
            continue
        try:
            told = case(bench, name)
        except Failed as error:  # the other cases are still worth their time
            told = CaseResult(["none"], failure=str(error))
        expected = expected or told.snapshots[0]
        executor = "ray" if name in ON_RAY else "inline"
        if name.startswith("undisturbed"):
            usual[executor] = told.seconds
        line = _line(name, told, expected, usual[executor]) | {"seed": bench.seed}
        print(json.dumps(line), flush=True)
        for audited in told.audits:
            for example in audited.examples[:3]:
                print(f"{name}: paid twice: {example}", file=sys.stderr)
        yield line


def _line(name: str, told: CaseResult, expected: str, usual_s: float) -> dict[str, Any]:
    builds = len(told.snapshots)
    given: dict[str, int] = {}
    for audited in told.audits:
        for kind, number in audited.faults.items():
            given[kind] = given.get(kind, 0) + number
    return {
        "benchmark": "faults",
        "case": name,
        "builds": builds,
        "kills": told.kills,
        "same_snapshot": all(snapshot == expected for snapshot in told.snapshots),
        "snapshot": told.snapshots[-1],
        "replies": sum(audited.replies for audited in told.audits),
        "faults": given,
        "paid_twice_in_flight": sum(audited.in_flight for audited in told.audits),
        "asked_again_after_refusal": sum(audited.refused for audited in told.audits),
        "paid_twice_other": sum(audited.other for audited in told.audits),
        "dead_letters": told.letters,
        "seconds": round(told.seconds, 1),
        "extra_s": round(told.seconds - builds * usual_s, 1),
        "failure": told.failure,
    }


def _show(lines: Sequence[dict[str, Any]]) -> None:
    columns = ("case", "kills", "faults", "same id", "replies", "twice: in flight", "other", "letters", "s", "extra s")
    table = Table(*columns, box=None, header_style="dim")
    for line in lines:
        numbers = ("replies", "paid_twice_in_flight", "paid_twice_other", "dead_letters", "seconds", "extra_s")
        same = "yes" if line["same_snapshot"] else "NO"
        n_faults = sum(line["faults"].values())
        table.add_row(line["case"], str(line["kills"]), f"{n_faults:,}", same, *(f"{line[key]:,}" for key in numbers))
    Console(width=140, stderr=True).print(table)  # lines of JSON are all that stdout gets


def _rounds(told: CaseResult, n_kills: int) -> Iterator[tuple[int, int]]:
    """Yield (number, kills in all) of builds until so many kills were made: a build may end before its share."""
    number = 0
    while told.kills < n_kills:
        yield number, n_kills
        number += 1


def _run(job: Job, told: CaseResult, command: str = "index") -> None:
    with stopwatch() as taken:
        life = job.start(command)
        _end(life, told)
    told.seconds += taken[0]


def _end(life: Life, told: CaseResult) -> None:
    code, report = life.finish()
    if code:
        raise Failed(f"a build ended incomplete: {report['dead_letters']} dead letters")
    told.snapshots.append(report["snapshot"])


if __name__ == "__main__":
    main()
