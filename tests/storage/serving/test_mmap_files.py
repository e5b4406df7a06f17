"""Pages are touched ahead of questions, where there are enough of them and not too many."""

from __future__ import annotations

from pathlib import Path

import pytest

from hirag_dist.errors import SnapshotCorrupt
from hirag_dist.storage.serving.mmap_files import map_array


def test_a_damaged_array_is_said(tmp_path: Path) -> None:
    (tmp_path / "a.npy").write_bytes(b"no array")
    with pytest.raises(SnapshotCorrupt, match=r"a\.npy is damaged"):
        map_array(tmp_path / "a.npy")
