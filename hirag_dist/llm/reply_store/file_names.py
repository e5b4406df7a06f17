"""The files of a ledger, by name: what each is, and who wrote it.

ledger/
  <host>-<pid>-<id>.log        an open log: blocks as they were written, in groups
  <host>-<pid>-<id>.log-<id>   on an object store, where nothing is appended to: one group
  <run>-<part>.seg             sealed: sorted by key; the parts of a run hold ranges of keys, one after another
  <host>-<pid>-<id>.jsonl      a log of the first format, a JSON line a reply; compaction takes it over
"""

from __future__ import annotations

import os
import re
import socket
import uuid
from dataclasses import dataclass

from hirag_dist.storage.layout import LEDGER

_LOG = re.compile(r"(?P<host>.+)-(?P<pid>\d+)-[0-9a-f]+\.(?P<kind>log|jsonl)(?P<object>-[0-9a-f]+)?")
_SEGMENT = re.compile(r"(?P<run>[0-9a-f]{16})-(?P<part>\d{5})\.seg")


@dataclass(frozen=True, slots=True)
class LogName:
    """The parts of a log's name.

    Attributes:
        lines: whether it is of the first format.
        whole: whether it is an object, which is never appended to.
    """

    host: str
    pid: int
    lines: bool
    whole: bool


def new_log() -> str:
    """Return a name that no log had before."""
    return f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}.log"


def new_run() -> str:
    """Return an id that no run of segments had before."""
    return uuid.uuid4().hex[:16]


def segment_name(run: str, part: int) -> str:
    """Return the name of a segment."""
    return f"{run}-{part:05d}.seg"


def log_name(name: str) -> LogName | None:
    """Return the parts of a log's file name; None for other files."""
    found = _LOG.fullmatch(name)
    if found is None:
        return None
    return LogName(found["host"], int(found["pid"]), found["kind"] == "jsonl", found["object"] is not None)


def run_of(name: str) -> str | None:
    """Return the run of a segment, None where the file is none."""
    found = _SEGMENT.fullmatch(name)
    return found["run"] if found else None


def path_of(name: str) -> str:
    """Return where a file is in the store."""
    return f"{LEDGER}/{name}"
