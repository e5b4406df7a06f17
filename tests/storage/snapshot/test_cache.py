"""Mapped files of a snapshot: in place, copied from an object store, or derived where they are missing."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyarrow import fs

from hirag_dist.errors import SnapshotCorrupt, StoreError
from hirag_dist.retrieval.view.index import MappedIndex
from hirag_dist.storage.layout import snapshot_path
from hirag_dist.storage.serving.writer import SERVING
from hirag_dist.storage.snapshot import cache
from hirag_dist.storage.snapshot.cache import SnapshotCache, user_cache
from hirag_dist.storage.snapshot.reader import Snapshot, open_snapshot
from hirag_dist.storage.store import Store
from tests.storage import snapshots


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for temporary files of the test's own."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture
def older(store: Store) -> Store:
    """An index whose snapshot was published without serving files."""
    folder = Path(store.root) / snapshot_path(snapshots.published(store).snapshot_id)
    shutil.rmtree(folder / SERVING)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"] = {name: entry for name, entry in manifest["files"].items() if not name.startswith(SERVING)}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return store


@pytest.fixture
def remote(tmp_path: Path) -> Store:
    """The tiny snapshot on a store that is not a folder here."""
    local = Store(str(tmp_path / "published"))
    snapshots.published(local)
    return snapshots.as_remote(local)


def names(snapshot: Snapshot) -> list[str]:
    return [item.name for item in MappedIndex.open(snapshot).entities([(row, 1.0) for row in range(4)])]


NAMES = ["Scrooge", "Marley", "London", "London people"]


def test_derived_files_are_those_that_are_published(older: Store, tmp_path: Path) -> None:
    whole = Store(str(tmp_path / "whole"))
    published = Path(whole.root) / snapshot_path(snapshots.published(whole).snapshot_id) / SERVING
    made = SnapshotCache(older, open_snapshot(older).manifest).serving()
    derived, expected = ({path.name: path.read_bytes() for path in folder.iterdir()} for folder in (made, published))
    assert derived == expected


def test_an_index_that_cannot_be_written_to_gets_them_among_the_temporary_files(older: Store, temporary: Path) -> None:
    (Path(older.root) / "cache").write_text("a file where the folder would be")
    assert names(open_snapshot(older)) == NAMES
    assert len(list(temporary.glob(f"hirag-dist-{os.getuid()}/*/*/{SERVING}"))) == 1


def test_somebody_elses_temporary_folder_is_not_trusted(temporary: Path) -> None:
    folder = temporary / f"hirag-dist-{os.getuid()}"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(StoreError, match="open to others"):
        user_cache()


def test_openings_at_once_derive_once_beside_a_local_snapshot_and_all_can_read(older: Store) -> None:
    folder = Path(older.root) / "cache" / open_snapshot(older).manifest.snapshot_id

    def opened(number: int) -> int:
        assert names(open_snapshot(older)) == NAMES
        return (folder / SERVING).stat().st_ino

    with ThreadPoolExecutor(6) as pool:
        assert len(set(pool.map(opened, range(12)))) == 1
    assert [path.name for path in folder.iterdir()] == [SERVING]


def test_what_killed_processes_left_half_made_goes(older: Store, remote: Store, tmp_path: Path) -> None:
    """A service that is killed again and again while it copies or derives must not fill the disk."""
    derived = Path(older.root) / "cache" / open_snapshot(older).manifest.snapshot_id
    (derived / f".tmp-{SERVING}-1234").mkdir(parents=True)
    (derived / f".tmp-{SERVING}-1234" / "entities.arrow").write_bytes(b"half")
    assert names(open_snapshot(older)) == NAMES
    assert not list(derived.rglob(".tmp-*"))
    snapshot = open_snapshot(remote).cached_in(str(tmp_path / "cache"))
    vectors = SnapshotCache(remote, snapshot.manifest, str(tmp_path / "cache")).path("vectors/entities.npy")
    (vectors.parent / ".tmp-entities.npy-1234").write_bytes(b"half")
    assert names(snapshot) == NAMES
    assert not list((tmp_path / "cache").rglob(".tmp-*"))


def test_who_copies_is_left_alone_by_who_sweeps(older: Store) -> None:
    cache = Path(older.root) / "cache"
    for at in range(5):
        (cache / f"old{at}" / SERVING).mkdir(parents=True)
        hours = 3600 * (at + 2)
        os.utime(cache / f"old{at}", (time.time() - hours, time.time() - hours))
    with (cache / ".old4.lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # as a process that has been copying for hours
        assert names(open_snapshot(older)) == NAMES
        assert (cache / "old4").exists()
    assert not (cache / "old3").exists()


def test_a_lock_that_was_swept_is_taken_again(older: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that waits for a swept lock file must not write together with the holder of the next one."""
    snapshot = open_snapshot(older)
    lock = Path(older.root) / "cache" / f".{snapshot.manifest.snapshot_id}.lock"
    flock = fcntl.flock
    locked = []

    def swept_meanwhile(file: int, how: int) -> None:
        if not locked:
            lock.unlink()
        locked.append(os.fstat(file).st_ino)
        flock(file, how)

    monkeypatch.setattr(fcntl, "flock", swept_meanwhile)
    SnapshotCache(older, snapshot.manifest).serving()
    assert len(locked) == 2
    assert locked[1] == lock.stat().st_ino


def test_files_of_an_object_store_are_copied_once_and_mapped(remote: Store, tmp_path: Path) -> None:
    snapshot = open_snapshot(remote).cached_in(str(tmp_path / "cache"))
    assert names(snapshot) == NAMES
    assert snapshot.entity_vectors.tolist() == open_snapshot(remote).entity_vectors.tolist()
    for path in (SERVING, "graph/indices.npy", "vectors/chunks.npy"):
        remote.delete(f"{snapshot.folder}/{path}")
    again = Snapshot(remote, snapshot.manifest, str(tmp_path / "cache"))
    assert names(again) == NAMES
    assert MappedIndex.open(again).graph.indices.tolist() == snapshot.graph.indices.tolist()


def test_a_file_that_the_snapshot_before_has_too_is_linked(
    remote: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "HASHED_BYTES", 10)
    before = open_snapshot(remote).manifest
    after = before.model_copy(update={"snapshot_id": "after"})
    names(Snapshot(remote, before, str(tmp_path)))
    first, second = (tmp_path.glob(f"*/{manifest.snapshot_id}") for manifest in (before, after))
    (folder,) = first
    (folder / "graph/indices.npy").write_bytes(bytes(before.files["graph/indices.npy"].bytes))  # other content
    folders = (f"{remote.root}/{snapshot_path(manifest.snapshot_id)}" for manifest in (before, after))
    fs.copy_files(*folders, remote._fs, remote._fs)
    for name in (f"{SERVING}/entities.arrow", "vectors/entities.npy"):
        remote.delete(f"{snapshot_path('after')}/{name}")  # it need not be read
    opened = Snapshot(remote, after, str(tmp_path))
    assert names(opened) == NAMES
    assert MappedIndex.open(opened).graph.indices.tolist() == open_snapshot(remote).graph.indices.tolist()
    (other,) = second
    for name, is_same in ((f"{SERVING}/entities.arrow", True), ("graph/indices.npy", False)):
        assert (folder / name).samefile(other / name) == is_same
    assert cache._bytes_of(tmp_path) < _held(tmp_path)


def test_a_copy_that_was_altered_is_made_again(remote: Store, tmp_path: Path) -> None:
    snapshot = open_snapshot(remote).cached_in(str(tmp_path))
    assert names(snapshot) == NAMES
    (copy,) = tmp_path.glob(f"*/*/{SERVING}/entities.arrow")
    whole = copy.read_bytes()
    copy.write_bytes(whole.replace(b"Marley", b"Harley"))
    assert names(Snapshot(remote, snapshot.manifest, str(tmp_path))) == NAMES
    assert copy.read_bytes() == whole


def test_a_file_altered_on_the_object_store_is_not_taken(remote: Store, tmp_path: Path) -> None:
    snapshot = open_snapshot(remote).cached_in(str(tmp_path))
    path = f"{snapshot.folder}/{SERVING}/entities.arrow"
    remote.write_bytes(path, remote.read_bytes(path).replace(b"Marley", b"Harley"))
    with pytest.raises(SnapshotCorrupt, match="altered"):
        names(snapshot)
    assert not list(tmp_path.glob(f"*/*/{SERVING}/*entities.arrow*"))


def _held(cache: Path) -> int:
    return sum(path.stat().st_size for path in cache.rglob("*") if path.is_file())


def test_a_cache_without_room_is_not_overfilled(remote: Store, tmp_path: Path) -> None:
    """A pod above its limit is evicted, so that nothing is copied that does not fit."""
    cache = tmp_path / "cache"
    assert names(open_snapshot(remote).cached_in(str(cache))) == NAMES
    enough = _held(cache)
    shutil.rmtree(cache)
    assert names(open_snapshot(remote).cached_in(str(cache), enough)) == NAMES
    for limit in (enough - 1, 1):
        shutil.rmtree(cache)
        with pytest.raises((SnapshotCorrupt, StoreError), match=rf"service\.cache_bytes is {limit:,}; "):
            names(open_snapshot(remote).cached_in(str(cache), limit))
        assert _held(cache) <= limit


def test_older_snapshots_make_room_and_the_one_in_use_does_not(remote: Store, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    snapshot = open_snapshot(remote)
    assert names(snapshot.cached_in(str(cache))) == NAMES
    enough = _held(cache)
    (own,) = cache.glob(f"*/{snapshot.manifest.snapshot_id}")
    shutil.rmtree(own)
    for minutes, name in ((1, "in-use"), (2, "older"), (3, "oldest")):
        other = own.with_name(name)
        other.mkdir()
        (other / "vectors.npy").write_bytes(b"0" * 1000)
        os.utime(other, (time.time() - 60 * minutes,) * 2)
    assert names(snapshot.cached_in(str(cache), enough + 1500)) == NAMES
    left = sorted(path.name for path in own.parent.iterdir() if path.is_dir())
    assert left == sorted([own.name, "in-use"])
