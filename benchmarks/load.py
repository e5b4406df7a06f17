"""Throughput of the gRPC service, and its behaviour under overload, hot swap and drain.

Query vectors are in the requests, vectors are in memory, clients are processes of their own on the same cores. Where
the service is measured and not the client, clients neither retry nor parse the replies, which they would do on cores
of their own otherwise. Prints JSON lines for each number of service processes on one port, with the processor time that
the service took for each request (`service_cpu_ms`), which other load on the machine disturbs least:

    closed loop   1, 16 and 64 callers that ask again as soon as they have an answer: answers a second, p50, p99
    saturation    the most answers a second
    open loop     requests that come at 1, 1.5 and 2 times that rate whatever comes back: what is answered, what is
                  turned away, p99 of the answered and its ratio to the p99 at the saturating rate
    hot swap      another snapshot goes live every other second under 16 callers: failures, p99
    drain         two services behind one name, or the processes of one; one is stopped by SIGTERM under 16 callers:
                  failures

    python benchmarks/load.py [--index DIR | --entities 10000 | --sample] [--processes 1 2] [--seconds 10]
        [--only closed saturation open swap drain]

With the defaults it takes some four minutes; --entities 1000000 with 2 processes needs 8 GB.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from benchmarks.generated import generate, questions, variant
from benchmarks.load_clients import Found, Task
from benchmarks.served import Served, served
from hirag_dist.storage.snapshot.reader import current_id, open_snapshot
from hirag_dist.storage.snapshot.writer import make_current
from hirag_dist.storage.store import Store

CALLERS = (1, 16, 64)
SATURATING = (8, 16, 32)  # callers that look for the most answers a second
RATES = (1.0, 1.5, 2.0)  # of the saturating rate
OPEN_CONNECTIONS = 32
CLIENTS = 2  # processes
QUESTIONS = 500
SWAP_S = 2.0
WARM_UP_S = 1.0
TURNED_AWAY = ("RESOURCE_EXHAUSTED", "Overloaded")  # as gRPC says it, and as the package's client, after its retries
PARTS = ("closed", "saturation", "open", "swap", "drain")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--index", help="an index that is there; it is not written to")
    parser.add_argument("--sample", action="store_true", help="the sample corpus, indexed first")
    parser.add_argument("--entities", type=int, default=10_000, help="of a generated snapshot")
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2], help="that answer on the port")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each measurement")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--set", nargs="+", default=[], help="settings of the service, KEY=VALUE")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        index = _index(arguments, Path(temporary))
        vectors = Path(temporary, "questions.npy")
        np.save(vectors, questions(open_snapshot(Store(index)).entity_vectors, QUESTIONS))
        for processes in arguments.processes:
            load = Load(index, processes, str(vectors), arguments.seconds, arguments.set)
            for line in load.lines(arguments.only):
                print(json.dumps({"benchmark": "load", "processes": processes, **line}), flush=True)


def _index(arguments: argparse.Namespace, folder: Path) -> str:
    """Return a folder that may be written to, with the index to serve."""
    index = folder / "index"
    if arguments.index:
        own = current_id(Store(arguments.index))
        shutil.copytree(Path(arguments.index, "snapshots", str(own)), index / "snapshots" / str(own))
        make_current(Store(str(index)), str(own))
    elif arguments.sample:
        corpus = str(resources.files("hirag_dist.samples").joinpath("corpus"))
        command = [sys.executable, "-m", "hirag_dist", "index", corpus, "--index", str(index)]
        subprocess.run([*command, "--executor", "inline", "--json"], check=True, stdout=subprocess.DEVNULL)
    else:
        generate(Store(str(index)), arguments.entities)
    return str(index)


class Load:
    """Measures one way of serving."""

    def __init__(self, index: str, processes: int, vectors: str, seconds: float, settings: Sequence[str]) -> None:
        self._index = index
        self._processes = processes
        self._vectors = vectors
        self._seconds = seconds
        self._settings = settings

    def lines(self, parts: Sequence[str]) -> Iterator[dict[str, Any]]:
        """Yield the measurements."""
        with self._served() as service:
            self._ask([self._task(service.address, 4, plain=True)])  # warm
            if "closed" in parts:
                for callers in CALLERS:
                    figures = self._measured(service, self._tasks(service.address, callers, plain=True))[1]
                    yield {"way": "closed loop", "case": f"{callers} callers", **figures}
            if "saturation" in parts or "open" in parts:
                rate, line = self._saturation(service)
                yield line
                if "open" in parts:
                    yield from self._open_loops(service, rate)
        if "swap" in parts:
            yield self._swapped()
        if "drain" in parts:
            yield self._drained()

    def _saturation(self, service: Served) -> tuple[float, dict[str, Any]]:
        tried: dict[str, float] = {}
        best: dict[str, Any] = {}
        rate = 0.0
        for callers in SATURATING:
            found, figures = self._measured(service, self._tasks(service.address, callers, plain=True))
            tried[f"{callers}_callers_per_s"] = round(self._rate(found), 1)
            if self._rate(found) > rate:
                rate, best = self._rate(found), figures
        return rate, {"way": "saturation", **best, **tried}

    def _open_loops(self, service: Served, saturating: float) -> Iterator[dict[str, Any]]:
        at_saturation = 0.0
        for share in RATES:
            asked = saturating * share / CLIENTS
            tasks = self._tasks(service.address, OPEN_CONNECTIONS, plain=True, rate=asked)
            found, figures = self._measured(service, tasks)
            p99 = float(np.percentile(_latencies(found) or [0.0], 99))
            at_saturation = at_saturation or p99
            yield {
                "way": "open loop",
                "case": f"{share:g} × saturation",
                "asked_per_s": round(saturating * share, 1),
                **figures,
                "p99_over_p99_at_saturation": round(p99 / at_saturation, 2) if at_saturation else None,
                "sender_late_ms": round(max(each.lag_ms for each in found), 1),
            }

    def _swapped(self) -> dict[str, Any]:
        store = Store(self._index)
        first = str(current_id(store))
        second = variant(store, first).snapshot_id
        swaps = 0
        with self._served() as service:
            over = threading.Event()

            def swap() -> None:
                nonlocal swaps
                while not over.wait(SWAP_S):
                    swaps += 1
                    make_current(store, second if swaps % 2 else first)

            swapping = threading.Thread(target=swap)
            swapping.start()
            try:
                found = self._ask(self._tasks(service.address, 16))
            finally:
                over.set()
                swapping.join()
                make_current(store, first)
        return {"way": "hot swap", "case": f"{swaps} swaps", **self._figures(found), **_slowest_second(found)}

    def _drained(self) -> dict[str, Any]:
        """Stop one of two services behind one name, or one process of several on one port, halfway through."""
        ended: list[int] = []
        if self._processes > 1:
            with self._served() as service:
                stopped = service.answering()[0]
                found = self._while_stopping(service.address, lambda: psutil.Process(stopped).terminate())
                ended.append(0 if not psutil.pid_exists(stopped) else -1)
            case = "a process of several"
        else:
            with self._served() as stays, self._served() as goes:
                target = f"ipv4:{stays.address},{goes.address}"
                found = self._while_stopping(target, lambda: goes.process.send_signal(signal.SIGTERM))
                ended.append(goes.process.wait(60))
            case = "one of two services"
        return {"way": "drain", "case": case, **self._figures(found), "exit_codes": ended}

    def _while_stopping(self, target: str, stop: Any) -> list[Found]:
        timer = threading.Timer(WARM_UP_S + self._seconds / 2, stop)
        timer.start()
        try:
            return self._ask(self._tasks(target, 16))
        finally:
            timer.cancel()

    def _served(self) -> Any:
        return served(self._index, self._processes, self._settings)

    def _task(self, target: str, callers: int, **more: Any) -> Task:
        return Task(target, self._vectors, callers, self._seconds, WARM_UP_S, **more)

    def _tasks(self, target: str, callers: int, **more: Any) -> list[Task]:
        shares = [len(part) for part in np.array_split(np.arange(callers), min(CLIENTS, callers))]
        return [self._task(target, share, seed=number, **more) for number, share in enumerate(shares)]

    def _ask(self, tasks: Sequence[Task]) -> list[Found]:
        """Run client processes, which begin at the same time."""
        command = [sys.executable, str(Path(__file__).with_name("load_clients.py"))]
        clients = [
            subprocess.Popen(
                [*command, json.dumps(asdict(task))], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            for task in tasks
        ]
        for client in clients:
            assert client.stdout is not None
            client.stdout.readline()
        start_at = time.time() + 0.5 + 0.02 * max(task.callers for task in tasks)
        return [_found(output) for output in _communicate(clients, f"{start_at}\n")]

    def _measured(self, service: Served, tasks: Sequence[Task]) -> tuple[list[Found], dict[str, Any]]:
        """Return the measurements of clients, and their figures with the processor time of the service."""
        before = service.cpu_s()
        found = self._ask(tasks)
        requests = sum(each.requests for each in found)
        each_ms = (service.cpu_s() - before) * 1e3 / max(requests, 1)
        return found, self._figures(found) | {"service_cpu_ms": round(each_ms, 2)}

    def _rate(self, found: Sequence[Found]) -> float:
        """Return how many answers a second came back before the end; what an open loop left in line is none of them."""
        ends = [due + latency / 1e3 for each in found for latency, due in each.ms]
        return sum(WARM_UP_S <= end <= self._seconds for end in ends) / (self._seconds - WARM_UP_S)

    def _figures(self, found: Sequence[Found]) -> dict[str, Any]:
        codes = sum((each.codes for each in found), Counter())
        turned_away = sum(codes[code] for code in TURNED_AWAY)
        failed = sum(codes.values()) - codes["OK"] - turned_away
        latencies = _latencies(found) or [0.0]
        return {
            "answers_per_s": round(self._rate(found), 1),
            **{f"p{share}_ms": round(float(np.percentile(latencies, share)), 2) for share in (50, 95, 99)},
            "turned_away_per_s": round(turned_away / (self._seconds - WARM_UP_S), 1),
            "failed": failed,
            "codes": dict(codes),
            "errors": [error for each in found for error in each.errors][:3],
            "snapshots": len({own for each in found for own in each.snapshots if own}),
            "clients_cpu_s": round(sum(each.cpu_s for each in found), 1),
        }


def _communicate(clients: Sequence[subprocess.Popen[str]], line: str) -> list[str]:
    """Give each client its line at once, and return what they print."""
    for client in clients:
        assert client.stdin is not None
        client.stdin.write(line)
        client.stdin.flush()
    outputs = [client.communicate()[0] for client in clients]
    if any(client.returncode for client in clients):
        raise SystemExit("a client process failed")
    return outputs


def _found(output: str) -> Found:
    read = json.loads(output)
    return Found(**read | {"codes": Counter(read["codes"]), "snapshots": set(read["snapshots"])})


def _latencies(found: Sequence[Found]) -> list[float]:
    return [latency for each in found for latency, _ in each.ms]


def _slowest_second(found: Sequence[Found]) -> dict[str, float]:
    """Return the worst p99 of any second, and the longest request."""
    rows = np.array([row for each in found for row in each.ms])
    seconds = rows[:, 1].astype(int)
    worst = max(float(np.percentile(rows[seconds == second, 0], 99)) for second in np.unique(seconds))
    return {"slowest_second_p99_ms": round(worst, 1), "longest_ms": round(float(rows[:, 0].max()), 1)}


if __name__ == "__main__":
    main()
