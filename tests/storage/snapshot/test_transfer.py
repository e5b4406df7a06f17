"""Copies of a snapshot: names that lead elsewhere are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from hirag_dist.errors import SnapshotCorrupt
from hirag_dist.storage.snapshot.manifest import FileEntry, Manifest
from hirag_dist.storage.snapshot.transfer import copy_snapshot
from hirag_dist.storage.store import Store


@pytest.mark.parametrize(
    ("snapshot_id", "name"),
    [
        ("abc", "../../escaped"),
        ("abc", "/escaped"),
        ("..", "escaped"),
    ],
)
def test_a_name_that_leads_out_of_the_snapshot_is_refused(tmp_path: Path, snapshot_id: str, name: str) -> None:
    source, target = Store(str(tmp_path / "source")), Store(str(tmp_path / "target"))
    manifest = Manifest(
        format_version=1,
        snapshot_id=snapshot_id,
        created_at="",
        hirag_dist="",
        complete=True,
        dim=1,
        embedder="",
        counts={},
        content={},
        build={},
        notes={},
        files={name: FileEntry(bytes=0, sha256="")},
    )
    with pytest.raises(SnapshotCorrupt, match="outside of it"):
        copy_snapshot(source, target, manifest)
    assert not list(tmp_path.rglob("escaped"))
