"""Copies of a snapshot are checked, and names that lead elsewhere are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from hirag_dist.errors import SnapshotCorrupt, SnapshotNotFound
from hirag_dist.storage.snapshot.manifest import FileEntry, Manifest
from hirag_dist.storage.snapshot.reader import open_snapshot
from hirag_dist.storage.snapshot.transfer import copy_snapshot
from hirag_dist.storage.store import Store
from tests.storage import snapshots


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


def test_a_copy_is_the_same_snapshot_and_an_altered_file_leaves_none(tmp_path: Path) -> None:
    source, target, broken = (Store(str(tmp_path / name)) for name in ("source", "target", "broken"))
    manifest = snapshots.publish(source)
    assert copy_snapshot(source, target, manifest)
    assert not copy_snapshot(source, target, manifest), "it is there already"
    assert open_snapshot(target, manifest.snapshot_id, full_check=True).manifest == manifest
    file = tmp_path / "source" / "snapshots" / manifest.snapshot_id / "entities.parquet"
    data = file.read_bytes()
    for altered in (data[:-1], bytes([data[0] ^ 1]) + data[1:]):
        file.write_bytes(altered)
        with pytest.raises(SnapshotCorrupt):
            copy_snapshot(source, broken, manifest)
        with pytest.raises(SnapshotNotFound):
            open_snapshot(broken, manifest.snapshot_id)
