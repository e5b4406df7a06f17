"""CPU and memory of a build by kind of process: the driver, Ray's workers, the rest of Ray, the simulated endpoint."""

from __future__ import annotations

import os
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

LOOK_S = 1.0
_LIST_EVERY = 5  # looks
KIB_A_MB = 1000 / 1.024
DRIVER, WORKERS, RAY, ENDPOINT = "driver", "workers", "ray", "endpoint"
_TICKS_A_S = os.sysconf("SC_CLK_TCK")


@dataclass
class Use:
    """Use of one time: CPU seconds by kind of process, and peaks of memory in MB, anonymous and shared pages.

    `driver` and `worker` are of one process, `together` of all of them but the endpoint.
    """

    cpu_s: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    peak_mb: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))


class ProcessWatcher:
    """Reads the processes below this one, and others by their ids, every second; a context manager.

    Its own CPU time is not counted. A process that lives for less than five seconds may be missed.
    """

    def __init__(self, endpoints: Sequence[int] = ()) -> None:
        self._endpoints = tuple(endpoints)
        self._cpu: dict[int, tuple[str, float]] = {}
        self._kinds: dict[int, str] = {}
        self._looks = 0
        self._use = Use()
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> ProcessWatcher:
        self.take()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def take(self) -> Use:
        """Return the use since the last time."""
        self._look()
        with self._lock:
            use, self._use = self._use, Use()
        return use

    def _watch(self) -> None:
        while not self._stop.wait(LOOK_S):
            self._look()

    def _look(self) -> None:
        with self._lock:
            began = time.thread_time()
            if self._looks % _LIST_EVERY == 0:
                kinds = {os.getpid(): DRIVER} | dict.fromkeys(self._endpoints, ENDPOINT)
                self._kinds = kinds | {pid: _kind(pid) for pid in _below(os.getpid()) if pid not in kinds}
            self._looks += 1
            together = 0.0
            for pid, kind in self._kinds.items():
                with suppress(OSError, IndexError, ValueError):
                    self._add_cpu(pid, kind)
                    memory = _memory_mb(pid)
                    together += 0.0 if kind == ENDPOINT else memory
                    self._use.peak_mb[kind] = max(self._use.peak_mb[kind], memory)
            self._use.peak_mb["together"] = max(self._use.peak_mb["together"], together)
            self._use.cpu_s[DRIVER] -= time.thread_time() - began

    def _add_cpu(self, pid: int, kind: str) -> None:
        now = _cpu_s(pid)
        before = self._cpu.get(pid)
        if before is not None:
            self._use.cpu_s[kind] += now - before[1]
        elif kind not in (DRIVER, ENDPOINT):  # started since
            self._use.cpu_s[kind] += now
        self._cpu[pid] = kind, now


def _below(pid: int) -> list[int]:
    """Return the processes that a process started, and those started by them."""
    found, waiting = [], [pid]
    while waiting:
        each = waiting.pop()
        with suppress(OSError):
            for path in Path(f"/proc/{each}/task").glob("*/children"):
                children = [int(child) for child in path.read_text().split()]
                found += children
                waiting += children
    return found


def _kind(pid: int) -> str:
    with suppress(OSError):
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
        return WORKERS if command.startswith(b"ray::Worker") else RAY
    return RAY


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_A_S


def _memory_mb(pid: int) -> float:
    sizes = {
        line.partition(":")[0]: line.split()[1]
        for line in Path(f"/proc/{pid}/status").read_text().splitlines()
        if line.startswith(("RssAnon", "RssShmem"))
    }
    return sum(map(int, sizes.values())) / KIB_A_MB
