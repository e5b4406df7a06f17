"""Freed memory of a build's process."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

GLIBC = "CS_GNU_LIBC_VERSION" in getattr(os, "confstr_names", {})
FREES = """
import ctypes, os, sys
from hirag_dist.execution.process_memory import return_freed_memory

libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.free.argtypes = [ctypes.c_void_p]

def block(size):
    address = libc.malloc(ctypes.c_size_t(size))
    ctypes.memset(address, 1, size)
    return address

def resident_mb():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 20

return_freed_memory()
libc.free(block(30 << 20))  # glibc raises its threshold by this, unless it is fixed
before = resident_mb()
blocks = [block(2 << 20) for _ in range(50)]
for address in blocks[:-1]:
    libc.free(address)
print(resident_mb() - before)
"""


@pytest.mark.integration
@pytest.mark.skipif(not GLIBC, reason="mallopt is of glibc")
@pytest.mark.parametrize(("environment", "kept"), [({}, False), ({"MALLOC_MMAP_THRESHOLD_": "33554432"}, True)])
def test_freed_blocks_return_unless_the_environment_sets_malloc(environment: dict[str, str], kept: bool) -> None:
    """Of 100 MB, freed but for a last block, either next to nothing stays resident or, with malloc's own rule, all."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")} | environment
    ran = subprocess.run([sys.executable, "-c", FREES], env=environment, capture_output=True, text=True, check=True)
    assert (int(ran.stdout) > 50) == kept
