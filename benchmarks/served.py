"""A service in processes of its own, for benchmarks and hard tests that ask it from outside."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import psutil

STARTING_S = 120.0
STOPPING_S = 60.0
_READY = re.compile(rb"Serving on (\S+)\. ")


@dataclass(frozen=True, slots=True)
class Served:
    """A running service.

    Attributes:
        address: HOST:PORT.
        process: the command; with several processes on the port, the supervisor of the others.
        log: what it wrote to its standard error.
    """

    address: str
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def port(self) -> int:
        """The port."""
        return int(self.address.rpartition(":")[2])

    def answering(self) -> list[int]:
        """Return the ids of the processes that answer."""
        below = psutil.Process(self.process.pid).children(recursive=True)
        return [each.pid for each in below if _is_python(each)] or [self.process.pid]

    def cpu_s(self) -> float:
        """Return the processor time, user and system, of the processes that answer."""
        times = [psutil.Process(pid).cpu_times() for pid in self.answering()]
        return float(sum(each.user + each.system for each in times))

    def text(self) -> str:
        """Return its log so far."""
        return self.log.read_text(encoding="utf-8", errors="replace")


@contextmanager
def served(
    index: str,
    processes: int = 1,
    settings: Sequence[str] = (),
    listen: str = "127.0.0.1:0",
    max_files: int | None = None,
    *,
    catalogue: bool = False,
) -> Iterator[Served]:
    """Serve an index with vectors in memory while the context lasts; it is stopped by SIGTERM, as a deployment does.

    Args:
        settings: KEY=VALUE, as `--set`.
        max_files: limit of file descriptors of the service; None for that of this process.
        catalogue: whether `index` is a folder of indexes.

    Raises:
        RuntimeError: it does not come up, or does not end well.
    """
    command = [sys.executable, "-m", "hirag_dist", "serve", "--listen", listen]
    command += ["--catalogue" if catalogue else "--index", index]
    command += ["--processes", str(processes)]
    for setting in ("vectors.backend=memory", *settings):
        command += ["--set", setting]
    if max_files is not None:
        command = ["sh", "-c", f'ulimit -n {max_files}; exec "$@"', "sh", *command]
    with tempfile.NamedTemporaryFile(prefix="hirag-served-", suffix=".log") as log:
        process = subprocess.Popen(command, stderr=log, stdout=log, env=os.environ | {"COLUMNS": "300"})
        try:
            yield Served(_address(process, log), process, Path(log.name))
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            try:
                process.wait(STOPPING_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                raise RuntimeError(f"the service did not end within {STOPPING_S:g} s of SIGTERM") from None
        if process.returncode:
            raise RuntimeError(f"the service ended with {process.returncode}: {Path(log.name).read_bytes()[-2000:]!r}")


def _address(process: subprocess.Popen[bytes], log: IO[bytes]) -> str:
    until = time.monotonic() + STARTING_S
    while time.monotonic() < until:
        found = _READY.search(Path(log.name).read_bytes())
        if found is not None:
            return found.group(1).decode()
        if process.poll() is not None:
            break
        time.sleep(0.05)
    raise RuntimeError(f"the service did not come up: {Path(log.name).read_bytes()[-2000:]!r}")


def _is_python(process: psutil.Process) -> bool:
    try:
        return "hirag_dist" in " ".join(process.cmdline())
    except psutil.Error:
        return False
