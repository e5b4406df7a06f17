"""Cost of a command with all its processes: CPU seconds, peak memory, and the other load of the machine.

CPU is what the system counted for every process that was waited for: the command's, its children's, and those that it
left behind, which become this process's children (`PR_SET_CHILD_SUBREAPER`) and are ended. A process that ignores
SIGCHLD does not wait, and the system forgets the use of its children; so each process is also read while it runs, and
the larger of both sums counts. Memory is sampled: the proportional set sizes (PSS) of all processes of the tree, which
add up without counting shared pages twice. Linux only.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER of prctl(2)
_SAMPLE_S = 0.2
_GRACE_S = 10.0
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Cost:
    """Cost of a command.

    Attributes:
        returncode: of the command; None where it was ended because its time was up.
        cpu_s: user and system time of all its processes.
        peak_mb: highest sum of PSS that was seen, in MB of 10⁶ bytes.
        processes: most at a time that were seen.
        others_cpu_s: what everything else on the machine used in that time, this process and `besides` not counted.
        load_before, load_after: the system's load average over a minute.
    """

    returncode: int | None
    wall_s: float
    cpu_s: float
    peak_mb: float
    processes: int
    others_cpu_s: float
    load_before: float
    load_after: float

    def figures(self) -> dict[str, Any]:
        """Return the figures, rounded."""
        rounded = {name: round(value, 2) for name, value in asdict(self).items() if isinstance(value, float)}
        return rounded | {"processes": self.processes}


def adopt_orphans() -> None:
    """Have processes that descendants leave behind become this process's children.

    Raises:
        OSError: the system does not know how.
    """
    if ctypes.CDLL(None, use_errno=True).prctl(_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER) failed")


def metered(
    command: Sequence[str],
    *,
    env: Mapping[str, str],
    log: Path,
    timeout_s: float,
    cwd: Path | None = None,
    besides: Sequence[int] = (),
) -> Cost:
    """Run a command to its end and return what it cost; call `adopt_orphans` once before.

    Args:
        log: gets its stdout and stderr.
        timeout_s: after which it is ended with all its processes.
        besides: processes (the endpoint) that belong to the measurement but not to the command.
    """
    load_before, busy = os.getloadavg()[0], _busy_s()
    known = {os.getpid(): cpu_of(os.getpid())} | {pid: cpu_of(pid) for pid in besides}
    kept = set(children(os.getpid()))
    started = time.perf_counter()
    with log.open("wb") as out:
        process = subprocess.Popen(command, env=dict(env), cwd=cwd, stdout=out, stderr=subprocess.STDOUT)
        peak_kib, most, usage = 0, 0, None
        seen_s: dict[int, float] = {}
        try:
            while usage is None and time.perf_counter() - started <= timeout_s:
                tree = [pid for child in _new_children(kept) for pid in descendants(child)]
                seen_s.update((pid, max(cpu_of(pid), seen_s.get(pid, 0.0))) for pid in tree)
                peak_kib, most = max(peak_kib, sum(map(_pss_kib, tree))), max(most, len(tree))
                usage = _waited(process.pid, _SAMPLE_S)
        finally:
            wall = time.perf_counter() - started
            left_s = sum(_ended(pid) for pid in iter(lambda: next(_new_children(kept), None), None))
    returncode = None if usage is None else os.waitstatus_to_exitcode(usage[0])
    cpu = max(left_s + (0.0 if usage is None else usage[1]), sum(seen_s.values()))
    process.returncode = returncode if returncode is not None else -signal.SIGKILL  # it was waited for behind its back
    ours = cpu + sum(cpu_of(pid) - before for pid, before in known.items())
    return Cost(
        returncode=returncode,
        wall_s=wall,
        cpu_s=cpu,
        peak_mb=peak_kib * 1024 / 1e6,
        processes=most,
        others_cpu_s=max(_busy_s() - busy - ours, 0.0),
        load_before=load_before,
        load_after=os.getloadavg()[0],
    )


def children(pid: int) -> list[int]:
    """Return a process's children; none of one that is gone."""
    found: list[int] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found.extend(map(int, path.read_text().split()))
        except OSError:  # the thread has ended
            continue
    return found


def descendants(pid: int) -> Iterator[int]:
    """Yield a process and everything below it."""
    yield pid
    for child in children(pid):
        yield from descendants(child)


def cpu_of(pid: int) -> float:
    """Return the CPU seconds of a process that runs, without its children's; 0 of one that is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _busy_s() -> float:
    """Return the CPU seconds that the machine has used since it started; idle time and waiting are not counted."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    user, nice, system, _, _, irq, softirq = map(int, fields[:7])
    return (user + nice + system + irq + softirq) / _TICKS


def _pss_kib(pid: int) -> int:
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1])
    except OSError:  # it has ended, or is about to
        pass
    return 0


def _waited(pid: int, patience_s: float) -> tuple[int, float] | None:
    """Return (status, CPU seconds) of a child that ends in time."""
    until = time.perf_counter() + patience_s
    while True:
        found, status, usage = os.wait4(pid, os.WNOHANG)
        if found:
            return status, usage.ru_utime + usage.ru_stime
        if time.perf_counter() >= until:
            return None
        time.sleep(0.02)


def _new_children(kept: set[int]) -> Iterator[int]:
    return (pid for pid in children(os.getpid()) if pid not in kept)


def _ended(pid: int) -> float:
    """End a child and return the CPU seconds that it and its own children used."""
    for number, patience_s in ((signal.SIGTERM, _GRACE_S), (signal.SIGKILL, _GRACE_S)):
        waited = _waited(pid, 0.0)
        if waited is None:
            os.kill(pid, number)
            waited = _waited(pid, patience_s)
        if waited is not None:
            return waited[1]
    raise TimeoutError(f"process {pid} does not end; end it by hand and run again")
