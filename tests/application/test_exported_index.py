"""An export that was not edited is imported as it is."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from hirag_dist.application.exported_index import FOLDER, exported_snapshot, import_snapshot, keep_snapshot
from hirag_dist.errors import SnapshotCorrupt
from hirag_dist.storage.layout import read_files_path
from hirag_dist.storage.snapshot.reader import Snapshot, current_id, open_snapshot
from hirag_dist.storage.store import Store
from tests.toy_builds import Bench


@pytest.fixture
def snapshot(tmp_path: Path) -> Snapshot:
    return Bench(tmp_path).build(["alpha beta gamma", "gamma delta epsilon"])


@pytest.fixture
def folder(tmp_path: Path, snapshot: Snapshot) -> Path:
    """An export of two tables."""
    folder = tmp_path / "exported"
    folder.mkdir()
    for name in ("entities", "relations"):
        pq.write_table(snapshot.table(name), folder / f"{name}.parquet")
    keep_snapshot(snapshot, folder, ["entities.parquet", "relations.parquet"])
    return folder


def digests(root: str) -> dict[str, str]:
    files = [path for path in (Path(root) / "snapshots").rglob("*") if path.is_file()]
    return {str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def imported(folder: Path, index: Path) -> Store:
    exported = exported_snapshot(str(folder))
    assert exported is not None
    result = import_snapshot(exported, str(index))
    assert (result.stages_run, result.dead_letters, result.sent.sent_sums()["calls"]) == (0, 0, 0)
    return Store(str(index))


def test_every_file_of_the_snapshot_is_the_same(tmp_path: Path, snapshot: Snapshot, folder: Path) -> None:
    store = imported(folder, tmp_path / "copy")
    assert current_id(store) == snapshot.manifest.snapshot_id
    exported = digests(snapshot.store.root)
    del exported[read_files_path(snapshot.manifest.snapshot_id)]  # of the files here: the copy's updates read theirs
    assert digests(store.root) == exported != {}
    open_snapshot(store, full_check=True)
    assert digests(imported(folder, tmp_path / "copy").root) == digests(store.root), "a second import changes nothing"


def test_edited_tables_are_not_those_of_the_snapshot(folder: Path, snapshot: Snapshot) -> None:
    table = snapshot.table("entities")
    pq.write_table(table.slice(1), folder / "entities.parquet")
    assert exported_snapshot(str(folder)) is None
    pq.write_table(table, folder / "entities.parquet")
    assert exported_snapshot(str(folder)) is not None
    shutil.copy(folder / "entities.parquet", folder / "covariates.parquet")
    assert exported_snapshot(str(folder)) is None


@pytest.mark.parametrize("data", [b"", b'{"snapshot": "../../x", "tables": {}}'])
def test_a_damaged_note_is_no_export(folder: Path, data: bytes) -> None:
    (folder / FOLDER / "export.json").write_bytes(data)
    assert exported_snapshot(str(folder)) is None


def test_a_file_that_is_altered_during_the_import_leaves_no_snapshot(
    tmp_path: Path, snapshot: Snapshot, folder: Path
) -> None:
    exported = exported_snapshot(str(folder))
    assert exported is not None
    file = folder / FOLDER / "snapshots" / snapshot.manifest.snapshot_id / "reports.parquet"
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    with pytest.raises(SnapshotCorrupt, match=r"reports.parquet is altered"):
        import_snapshot(exported, str(tmp_path / "copy"))
    assert current_id(Store(str(tmp_path / "copy"))) is None
