"""Processes of the load harness: a simulated endpoint, nodes of a Ray cluster and an index folder; they end with it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
from pyarrow import fs
from ray.cluster_utils import Cluster

from hirag_dist.errors import BackendUnavailable
from hirag_dist.execution.ray.cluster import start

HEALTH = {  # a dead node is noticed within seconds; one that is slow to start is given its time
    "health_check_initial_delay_ms": 10_000,
    "health_check_period_ms": 1000,
    "health_check_timeout_ms": 1000,
    "health_check_failure_threshold": 3,
}
ENVIRONMENT = os.environ | {"COLUMNS": "300", "RAY_USAGE_STATS_ENABLED": "0"}


@dataclass(frozen=True)
class Limits:
    """Limits and latency of the endpoint. None: no limit."""

    latency_ms: float
    jitter: float
    rpm: float | None
    tpm: float | None
    max_concurrent: int

    def options(self) -> list[str]:
        """Return the simulator's options."""
        found = ["--latency-ms", f"{self.latency_ms:g}", "--jitter", f"{self.jitter:g}"]
        found += ["--max-concurrent", str(self.max_concurrent)]
        for name, value in (("--rpm", self.rpm), ("--tpm", self.tpm)):
            found += [] if value is None else [name, f"{value:g}"]
        return found


@contextmanager
def endpoint(limits: Limits, host: str) -> Iterator[str]:
    """Give the URL of a `simulate-llm` in a process of its own."""
    with serving(
        [sys.executable, "-m", "hirag_dist", "simulate-llm", "--listen", f"{host}:0", *limits.options()]
    ) as url:
        yield url


@contextmanager
def serving(command: list[str], timeout_s: float = 60.0) -> Iterator[str]:
    """Start a program that tells on stderr where it listens, give that URL, and end it.

    Raises:
        SystemExit: it ended, or named no URL in time; with what it said.
    """
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"  # no pipe: without a reader it fills up and blocks the writer
        with log.open("wb") as out:
            process = subprocess.Popen(  # a group of its own: Ctrl-C is not for it while replies are on their way
                command, stdout=subprocess.DEVNULL, stderr=out, env=ENVIRONMENT, start_new_session=True
            )
        try:
            yield _url(process, log, timeout_s)
        finally:
            process.terminate()
            process.wait()


def _url(process: subprocess.Popen[bytes], log: Path, timeout_s: float) -> str:
    give_up_at = time.monotonic() + timeout_s
    while True:
        last = process.poll() is not None or time.monotonic() > give_up_at
        said = log.read_text(encoding="utf-8", errors="replace")
        found = re.search(r"http://\S+/v1\b", said)
        if found is not None:
            return found.group(0)
        if last:
            raise SystemExit(f"the simulated endpoint did not start: {said.strip() or 'it says nothing'}")
        time.sleep(0.05)


@contextmanager
def cluster(address: str | None, workers: int) -> Iterator[tuple[str, Cluster | None]]:
    """Connect this process to a cluster; yield its address, and the cluster object if this function started it.

    Raises:
        BackendUnavailable: it is not reachable, or has fewer CPUs than `workers`, which would falsify the figures.
    """
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    own = None
    try:
        if address is None:
            # Ray's own hook for the end of this process sets signal handlers, which a thread that adds a node may not.
            own = Cluster(shutdown_at_exit=False)
            own.add_node(num_cpus=0, _system_config=HEALTH)
            for _ in range(workers):
                own.add_node(num_cpus=1)
            address = own.address
        start(address, None)
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # Ray set its own: no clearing up
        cpus = sum(int(node["Resources"].get("CPU", 0)) for node in ray.nodes() if node["Alive"])
        if cpus < workers:
            raise BackendUnavailable(f"{workers} workers need a CPU each; the Ray cluster {address} has {cpus}")
        yield address, own
    finally:
        ray.shutdown()
        if own is not None:
            own.shutdown()


@contextmanager
def place(parent: str) -> Iterator[str]:
    """Give a new folder or URI for an index, which is removed in the end."""
    where = f"{parent.rstrip('/')}/{uuid.uuid4().hex}"
    try:
        yield where
    finally:
        system, path = located(where)
        if system.get_file_info(path).type == fs.FileType.Directory:
            system.delete_dir(path)


def stats(url: str) -> dict[str, Any]:
    """Return the endpoint's counts."""
    with urllib.request.urlopen(url.removesuffix("/v1") + "/stats", timeout=10) as reply:
        found: dict[str, Any] = json.load(reply)["total"]
    return found


def size(where: str) -> int:
    """Return the bytes of an index."""
    system, path = located(where)
    return sum(each.size or 0 for each in system.get_file_info(fs.FileSelector(path, recursive=True)))


def located(where: str) -> tuple[fs.FileSystem, str]:
    """Return where a folder or URI is."""
    return fs.FileSystem.from_uri(where) if "://" in where else (fs.LocalFileSystem(), where)
