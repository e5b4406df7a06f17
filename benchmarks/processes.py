"""Resource use of other processes as the system counts it, and a way to drop their files from the cache."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

KIB_A_MB = 1000 / 1.024


@dataclass(frozen=True, slots=True)
class Memory:
    """Resident memory of a process, in MB.

    Attributes:
        private: pages that no other process has (USS): what one more process costs.
        shared: pages that others have too, and clean pages of files that others would share.
        proportional: private pages, and of each shared one this process's share (PSS): these add up to the truth.
    """

    private: float
    shared: float
    proportional: float


def memory_of(pid: int) -> Memory:
    """Return the memory of a process. Pages of files are counted as shared even if no other process maps them."""
    sizes: dict[str, int] = {}
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]:
        name, _, rest = line.partition(":")
        sizes[name] = int(rest.split()[0])
    own = sizes["Private_Dirty"]
    return Memory(
        private=round(own / KIB_A_MB, 1),
        shared=round((sizes["Rss"] - own) / KIB_A_MB, 1),
        proportional=round(sizes["Pss"] / KIB_A_MB, 1),
    )


def threads(pid: int) -> int:
    """Return how many threads a process has."""
    return sum(1 for _ in Path(f"/proc/{pid}/task").iterdir())


def make_cold(folder: Path) -> None:
    """Have the system forget the cached pages of all files below; those that a process has mapped stay."""
    for path in folder.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)


def workers_below(pid: int) -> list[psutil.Process]:
    """Return the processes of Ray's workers that a process started and that are up."""
    found = []
    with suppress(psutil.NoSuchProcess):
        for each in psutil.Process(pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
                if "".join(each.cmdline()[:1]).startswith("ray::Worker") and each.status() != psutil.STATUS_ZOMBIE:
                    found.append(each)
    return found
