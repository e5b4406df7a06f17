"""Throughput of the gRPC service asked by a client in C, h2load, which takes a twentieth of a Python client's time.

Callers and service share the cores of a laptop, so a client's own time is missing for answers: `load.py`, whose clients
are Python, measures both together. Here h2load (Debian: nghttp2-client) sends prepared requests over HTTP/2 and counts
the bytes of replies. Each of its processes asks one question, so that its replies have one size and a rejection, which
has no message, is distinguished from an answer: one caller asks one question, 16 callers four, again and again. Prints
JSON lines for each number of service processes on one port:

    closed loop   1 and 16 callers: answers a second, p50, p99, processor time of service and clients
    open loop     requests at 1, 1.5 and 2 times the rate of 16 callers: answered and rejected a second, and the
                  answered as a share of that rate

    python -m benchmarks.native_load --index DIR [--processes 1 2] [--seconds 5]
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.generated import questions
from benchmarks.served import Served, served
from hirag_dist.storage.snapshot.reader import open_snapshot
from hirag_dist.storage.store import Store
from hirag_dist.wire._pb import query_pb2 as pb

CLIENTS: Final = 4  # processes, a question each
CONNECTIONS: Final = 32  # in the open loop, of all clients
CALLS: Final = 100  # at a time on one of them
RATES: Final = (1.0, 1.5, 2.0)
WARM_UP_S: Final = 2
METHOD: Final = "/hirag.query.v1.QueryService/Retrieve"


@dataclass(frozen=True, slots=True)
class Found:
    """Measurements of all clients together.

    Attributes:
        answered: replies with a message.
        ended: requests that ended, rejected ones included.
        latencies_ms: of all that ended.
        cpu_s: processor time of the clients.
    """

    answered: int
    ended: int
    latencies_ms: list[float]
    cpu_s: float


class Clients:
    """Processes of h2load, each with a prepared request."""

    def __init__(self, index: str, folder: Path) -> None:
        """Write the requests: questions near entities of the index."""
        vectors = questions(open_snapshot(Store(index)).entity_vectors, CLIENTS)
        self._folder = folder
        self._bodies: list[Path] = []
        self._sizes: list[int] = []  # of their replies
        for at, vector in enumerate(vectors):
            query = pb.Query(question=f"What is known of number {at}?", vector=vector.tolist())
            message = pb.RetrieveRequest(query=query).SerializeToString()
            self._bodies.append(folder / f"request-{at}")
            self._bodies[-1].write_bytes(struct.pack(">BI", 0, len(message)) + message)

    def measure_sizes(self, service: Served) -> None:
        """Ask each question once, and note the bytes of its reply."""
        for body in self._bodies:
            said = self._said(self._start(service, body, ["-n", "1", "-c", "1"]))
            self._sizes.append(_number(r"headers \(.*?\), \S+ \((\d+)\) data", said))

    def ask(self, service: Served, seconds: int, connections: int, calls: int, rate: float | None) -> Found:
        """Ask for some seconds.

        Args:
            service: that is asked.
            seconds: that it takes.
            connections: of all clients.
            calls: at a time on one connection.
            rate: requests a second of all clients; None: a call ends, the next begins.
        """
        before = os.times()
        n_clients = min(CLIENTS, connections)
        own = connections // n_clients
        started: list[tuple[subprocess.Popen[str], Path]] = []
        for at, body in enumerate(self._bodies[:n_clients]):
            log = self._folder / f"log-{at}"
            log.unlink(missing_ok=True)
            options = ["-D", str(seconds), f"--log-file={log}"]
            options += ["-c", str(own), "-m", str(calls)]
            options += [] if rate is None else [f"--rps={rate / connections:.3f}"]
            started.append((self._start(service, body, options), log))
        answered, ended, latencies = 0, 0, [0.0][:0]
        for size, (process, log) in zip(self._sizes, started, strict=False):
            said = self._said(process)
            answered += _number(r"headers \(.*?\), \S+ \((\d+)\) data", said) // size
            ended += _number(r"(\d+) done", said)
            latencies += [int(line.split("\t")[2]) / 1e3 for line in log.read_text().splitlines()]
        after = os.times()
        cpu_s = after.children_user + after.children_system - before.children_user - before.children_system
        return Found(answered, ended, latencies, cpu_s)

    def _start(self, service: Served, body: Path, options: Sequence[str]) -> subprocess.Popen[str]:
        command = ["h2load", "-t", "1", "-d", str(body), "-H", "content-type: application/grpc", "-H", "te: trailers"]
        command += [*options, f"http://{service.address}{METHOD}"]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def _said(self, process: subprocess.Popen[str]) -> str:
        said, _ = process.communicate()
        if process.returncode:
            raise RuntimeError(f"h2load ended with {process.returncode}: {said}")
        return said


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--index", required=True, help="an index; it is not written to")
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2], help="that answer on the port")
    parser.add_argument("--seconds", type=int, default=5, help="of each measurement")
    arguments = parser.parse_args()
    if shutil.which("h2load") is None:
        sys.exit("h2load is not installed; on Debian and Ubuntu: apt install nghttp2-client")
    with tempfile.TemporaryDirectory() as folder:
        for processes in arguments.processes:
            for line in _lines(arguments.index, processes, arguments.seconds, Path(folder)):
                print(json.dumps({"benchmark": "native_load", "processes": processes, **line}), flush=True)


def _lines(index: str, processes: int, seconds: int, folder: Path) -> Iterator[dict[str, object]]:
    clients = Clients(index, folder)
    with served(index, processes) as service:
        clients.measure_sizes(service)
        clients.ask(service, WARM_UP_S, 16, 1, None)
        saturating = 0.0
        for callers in (1, 16):
            before = service.cpu_s()
            found = clients.ask(service, seconds, callers, 1, None)
            saturating = found.answered / seconds
            p50, p99 = np.percentile(found.latencies_ms, [50, 99])
            yield {
                "case": "closed loop",
                "callers": callers,
                "answered_per_s": round(saturating, 1),
                "p50_ms": round(p50, 2),
                "p99_ms": round(p99, 2),
                "failed": found.ended - found.answered,
                **_cpu(found, service.cpu_s() - before, seconds),
            }
        for rate in RATES:
            before = service.cpu_s()
            found = clients.ask(service, seconds, CONNECTIONS, CALLS, rate * saturating)
            yield {
                "case": "open loop",
                "of_saturation": rate,
                "answered_per_s": round(found.answered / seconds, 1),
                "rejected_per_s": round((found.ended - found.answered) / seconds, 1),
                "answered_of_saturation": round(found.answered / seconds / saturating, 3),
                **_cpu(found, service.cpu_s() - before, seconds),
            }


def _cpu(found: Found, service_s: float, seconds: int) -> dict[str, float]:
    """Return the processor time of service and clients in milliseconds a second."""
    return {
        "service_cpu_ms_per_s": round(service_s / seconds * 1e3),
        "client_cpu_ms_per_s": round(found.cpu_s / seconds * 1e3),
    }


def _number(pattern: str, text: str) -> int:
    found = re.search(pattern, text)
    if found is None:
        raise RuntimeError(f"no {pattern} in what h2load printed: {text}")
    return int(found[1])


if __name__ == "__main__":
    main()
