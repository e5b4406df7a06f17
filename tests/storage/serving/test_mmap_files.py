"""Pages are touched ahead of questions, where there are enough of them and not too many."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

from hirag_dist.errors import SnapshotCorrupt
from hirag_dist.storage.serving.mmap_files import ReadAhead, as_bytes, map_array

_LAST_STRIDE = 64 << 10  # pages about the last access, which the system may map or not


def resident(path: Path) -> int:
    """Return the bytes of a mapped file that this process has mapped pages of."""
    kilobytes = 0
    ours = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.split()[0]:
            ours = line.endswith(str(path))
        elif ours and line.startswith("Rss:"):
            kilobytes += int(line.split()[1])
    return kilobytes << 10


def joined() -> None:
    for thread in threading.enumerate():
        if thread.name == "read-ahead":
            thread.join(60)


def test_pages_of_a_large_file_are_mapped_and_those_of_a_small_one_wait(tmp_path: Path) -> None:
    sizes = {"large": 70 << 20, "small": 40 << 20}
    arrays = {}
    for name, size in sizes.items():
        np.save(tmp_path / f"{name}.npy", np.zeros(size, np.uint8))
        arrays[name] = map_array(tmp_path / f"{name}.npy")
        ReadAhead([as_bytes(arrays[name])])
    joined()
    assert resident(tmp_path / "large.npy") >= sizes["large"] - _LAST_STRIDE
    assert resident(tmp_path / "small.npy") < sizes["small"] // 2


def test_a_damaged_array_is_said(tmp_path: Path) -> None:
    (tmp_path / "a.npy").write_bytes(b"no array")
    with pytest.raises(SnapshotCorrupt, match=r"a\.npy is damaged"):
        map_array(tmp_path / "a.npy")
