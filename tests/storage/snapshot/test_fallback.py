"""The newest whole snapshot is used where the current one cannot be read, and that is said."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

import pytest

from hirag_dist.errors import SnapshotCorrupt, SnapshotNotFound, SnapshotTooNew
from hirag_dist.storage.layout import FORGET
from hirag_dist.storage.snapshot.fallback import open_current, whole_snapshots
from hirag_dist.storage.snapshot.gc import RetentionPolicy, plan_gc
from hirag_dist.storage.store import Store
from tests.storage.snapshots import flip, publish, tiny_tables


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, list[str]]:
    store = Store(str(tmp_path_factory.mktemp("three")))
    return store, [publish(store, tiny_tables(note)).snapshot_id for note in ("", " One.", " Two.")]


@pytest.fixture
def ids(published: tuple[Store, list[str]], store: Store) -> list[str]:
    """Three snapshots, which were made current one after the other."""
    shutil.copytree(published[0].root, store.root)
    return published[1]


def manifest(store: Store, snapshot_id: str) -> Path:
    return Path(store.root) / "snapshots" / snapshot_id / "manifest.json"


def test_the_one_that_was_current_last(store: Store, ids: list[str], caplog: pytest.LogCaptureFixture) -> None:
    manifest(store, ids[2]).write_bytes(b"")
    with caplog.at_level(logging.WARNING):
        opened = open_current(store)
    assert opened.manifest.snapshot_id == ids[1]
    assert ids[2] in opened.fallback
    assert ids[1] in caplog.text
    assert opened.cached_in(None).fallback == opened.info().fallback == opened.fallback
    next(Path(store.root, "snapshots", ids[1]).glob("*.parquet")).write_bytes(b"altered")
    assert open_current(store).manifest.snapshot_id == ids[0]
    manifest(store, ids[0]).unlink()
    with pytest.raises(SnapshotCorrupt, match="is damaged"):
        open_current(store)


def test_one_with_documents_that_are_being_forgotten_is_left_out(store: Store, ids: list[str]) -> None:
    manifest(store, ids[2]).write_bytes(b"")
    store.write_json(FORGET, {"snapshots": [ids[1]]})
    assert open_current(store).manifest.snapshot_id == ids[0]
    store.write_json(FORGET, {"snapshots": ids[:2]})
    with pytest.raises(SnapshotCorrupt, match="is damaged"):
        open_current(store)


def test_one_that_was_never_current_comes_after_those_that_were(store: Store, ids: list[str]) -> None:
    never = publish(store, tiny_tables(" Never."), live=False).snapshot_id
    assert [snapshot.manifest.snapshot_id for snapshot in whole_snapshots(store)] == [ids[1], ids[0], never]


def test_nothing_is_opened_in_place_of_a_named_one_a_newer_one_or_none(
    store: Store, ids: list[str], tmp_path: Path
) -> None:
    with pytest.raises(SnapshotNotFound):
        open_current(Store(str(tmp_path / "none")))
    manifest(store, ids[1]).write_bytes(b"{}")
    with pytest.raises(SnapshotCorrupt):
        open_current(store, ids[1])
    data = manifest(store, ids[2]).read_text().replace('"format_version": 3', '"news": true, "format_version": 99')
    manifest(store, ids[2]).write_text(data)
    with pytest.raises(SnapshotTooNew, match="upgrade"):
        open_current(store)


def test_nothing_is_pruned_while_the_current_one_is_damaged(store: Store, ids: list[str]) -> None:
    flip(Path(store.root, "snapshots", ids[2], "entities.parquet"))
    with pytest.raises(SnapshotCorrupt):
        plan_gc(store, RetentionPolicy(0, 0.0), 1e12)


def test_a_damaged_snapshot_is_written_again(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also a file that is too large for the quick check to hash it."""
    monkeypatch.setattr("hirag_dist.storage.snapshot.reader.HASHED_BYTES", 100)
    made = publish(store)
    folder = Path(store.root, "snapshots", made.snapshot_id)
    for file in sorted(path for path in folder.rglob("*") if path.is_file())[::30]:
        whole = file.read_bytes()
        for damaged in (b"", bytes(len(whole))):
            file.write_bytes(damaged)
            again = publish(store)
            assert again.files == made.files
            assert file.read_bytes() == whole
            assert open_current(store).fallback == ""
