"""Identity of the process that holds a build's lock, and the certain knowledge that it has ended.

A host name and a process id identify no process: containers share host names and each has a process 1, and a process
id is used again. A process is identified by the boot of its kernel, its pid namespace, its id there and its start
time. Whether it lives can be known only under the same kernel and in the same namespace; elsewhere the lease decides.
"""

from __future__ import annotations

import json
import os
import socket
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

_STATE, _START_TIME = 0, 19  # of /proc/PID/stat, counted from the field after the name
_ENDED = ("Z", "X")


@dataclass(frozen=True, slots=True)
class HolderProcess:
    """A process and its machine. Where the system has no /proc (macOS), only host and pid are known.

    Attributes:
        boot: id of the kernel's boot; empty: unknown.
        clock: boot and time namespace, between whose processes a monotonic clock can be compared; empty: unknown.
        pid_namespace: the namespace of the process id; empty: unknown.
        started: start time in clock ticks since boot; 0: unknown.
    """

    host: str
    pid: int
    boot: str = ""
    clock: str = ""
    pid_namespace: str = ""
    started: int = 0

    def has_ended(self, observer: HolderProcess) -> bool:
        """Return whether the process is known to have ended; False also where that cannot be known."""
        known = (self.host, self.boot, self.pid_namespace)
        if not all(known) or not self.started or known != (observer.host, observer.boot, observer.pid_namespace):
            return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except (PermissionError, OverflowError):
            pass
        state, started = _stat(self.pid)
        return state in _ENDED or (started != 0 and started != self.started)


@dataclass(frozen=True, slots=True)
class LockHolder:
    """The content of the lock file.

    Attributes:
        since: when the build began, for people.
        beat: seconds since the epoch at the last heartbeat, by the holder's clock.
        uptime: seconds of the holder's monotonic clock at the last heartbeat.
        epoch: rises with every holder.
    """

    process: HolderProcess
    since: str
    token: str
    beat: float
    uptime: float
    epoch: int

    def encode(self) -> bytes:
        """Return the content of the lock file."""
        fields = asdict(self)
        fields |= fields.pop("process")
        return json.dumps(fields, sort_keys=True, ensure_ascii=False, indent=1).encode()

    @classmethod
    def decode(cls, data: bytes) -> LockHolder | None:
        """Return the holder of a lock file, None where a crash left an unreadable one."""
        try:
            fields = json.loads(data)
            process = HolderProcess(
                str(fields["host"]),
                int(fields["pid"]),
                str(fields.get("boot", "")),
                str(fields.get("clock", "")),
                str(fields.get("pid_namespace", "")),
                int(fields.get("started", 0)),
            )
            return cls(
                process,
                str(fields["since"]),
                str(fields["token"]),
                float(fields["beat"]),
                float(fields.get("uptime", 0)),
                int(fields.get("epoch", 0)),
            )
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
            return None


def own_process() -> HolderProcess:
    """Return the identity of the calling process."""
    boot = _boot()
    clock = f"{boot} {_namespace('time')}".rstrip()
    return HolderProcess(socket.gethostname(), os.getpid(), boot, clock, _namespace("pid"), _stat(os.getpid())[1])


@cache
def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _namespace(kind: str) -> str:
    """Return the id of a namespace of this process, such as "pid:[4026531836]"; empty where the system has none."""
    try:
        return str(Path(f"/proc/self/ns/{kind}").readlink())
    except OSError:
        return ""


def _stat(pid: int) -> tuple[str, int]:
    """Return the state and the start time of a process; ("", 0) where they cannot be read."""
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
        fields = text.rpartition(b")")[2].split()  # a name may have spaces and parentheses
        return fields[_STATE].decode(), int(fields[_START_TIME])
    except (OSError, IndexError, ValueError):
        return "", 0
