"""Memory that a process of a build has freed goes back to the operating system.

By default glibc raises its threshold for mapped blocks to the largest block that was freed, up to 32 MiB, and keeps
what is below it, in arenas of several threads. A build frees tables and matrices of megabytes at the end of each stage,
which stayed resident. Arrow's allocator is chosen by the entry point of the command line (`cli.main`).
"""

from __future__ import annotations

import ctypes
import os
from typing import Final

_M_TRIM_THRESHOLD: Final = -1  # numbers of malloc.h
_M_MMAP_THRESHOLD: Final = -3
_THRESHOLD_BYTES: Final = 1 << 20  # with 128 KiB, the least of glibc, a build takes 7 % more CPU for page faults
_SETTINGS: Final = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_")


def return_freed_memory() -> None:
    """Make malloc of this process return freed blocks from 1 MiB on.

    Without effect where the environment configures malloc, and where the C library has no `mallopt` (mallopt(3)).
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if os.name == "posix" else None
    is_configured = any(name in os.environ for name in _SETTINGS) or "malloc" in os.environ.get("GLIBC_TUNABLES", "")
    if mallopt is None or is_configured:
        return
    mallopt(_M_MMAP_THRESHOLD, _THRESHOLD_BYTES)
    mallopt(_M_TRIM_THRESHOLD, _THRESHOLD_BYTES)
