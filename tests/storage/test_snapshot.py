"""A snapshot is checked when it is opened, and every fault is said in one line."""

from pathlib import Path

import numpy as np
import pytest

from hirag_dist import schemas
from hirag_dist.errors import SnapshotCorrupt, SnapshotNotFound
from hirag_dist.storage.layout import BUILD
from hirag_dist.storage.lock import BuildLock
from hirag_dist.storage.snapshot.documents import tokens_per_corpus_token
from hirag_dist.storage.snapshot.manifest import FileEntry
from hirag_dist.storage.snapshot.reader import current_id, open_snapshot
from hirag_dist.storage.store import Store
from tests.storage import snapshots
from tests.table_rows import filled_table


def folder(store: Store, own_id: str) -> Path:
    return Path(store.root, "snapshots", own_id)


def test_what_was_published_is_opened(store: Store) -> None:
    manifest = snapshots.publish(store)
    snapshot = open_snapshot(store, full_check=True)
    assert current_id(store) == manifest.snapshot_id == snapshot.manifest.snapshot_id
    assert snapshot.table("entities").equals(snapshots.tiny_tables()["entities"])
    assert np.array_equal(snapshot.entity_vectors, np.eye(4))
    assert snapshot.info().communities_by_level == {0: 1}


def test_without_a_snapshot_the_error_says_what_the_first_build_is_doing(store: Store) -> None:
    with pytest.raises(SnapshotNotFound, match="holds no index; build one with `hirag-dist index"):
        open_snapshot(store)
    with BuildLock(store), pytest.raises(SnapshotNotFound, match="a build is under way; `hirag-dist status --index"):
        open_snapshot(store)
    store.write_json(BUILD, {"state": "stopped"})
    with pytest.raises(SnapshotNotFound, match="its first build did not finish; `hirag-dist status --index"):
        open_snapshot(store)


def test_equal_content_has_an_equal_id_and_is_written_once(store: Store, tmp_path: Path) -> None:
    """Whatever it cost."""
    first = snapshots.publish(store)
    assert snapshots.publish(store) == first
    tables = snapshots.tiny_tables() | {"usage": filled_table(schemas.USAGE, [{"stage": "reports", "calls": 1}])}
    assert snapshots.publish(Store(str(tmp_path / "other")), tables).snapshot_id == first.snapshot_id


def test_tokens_of_replies_by_tokens_of_the_corpus(store: Store) -> None:
    stages = ("extraction", "extraction", "reports")
    usage = filled_table(schemas.USAGE, ({"stage": stage, "input_tokens": 9, "output_tokens": 9} for stage in stages))
    snapshots.publish(store, snapshots.tiny_tables() | {"usage": usage})
    assert tokens_per_corpus_token(open_snapshot(store), usage.to_pylist()) == {
        "total": 6.0,
        "by_stage": {"extraction": 4.0, "reports": 2.0},
    }


def test_a_snapshot_without_its_manifest_was_never_finished(store: Store) -> None:
    manifest = snapshots.published(store)
    (folder(store, manifest.snapshot_id) / "manifest.json").unlink()
    with pytest.raises(SnapshotNotFound, match="never finished"):
        open_snapshot(store)


def test_a_snapshot_under_another_id_is_not_taken_for_it(store: Store) -> None:
    own = folder(store, snapshots.published(store).snapshot_id)
    own.rename(own.with_name("0" * len(own.name)))
    with pytest.raises(SnapshotCorrupt, match=f"its manifest is of {own.name}"):
        open_snapshot(store, "0" * len(own.name))


@pytest.mark.parametrize("name", ["entities.parquet", "graph/indices.npy", "vectors/chunks.npy"])
def test_one_flipped_byte_is_found(store: Store, name: str) -> None:
    snapshots.flip(folder(store, snapshots.published(store).snapshot_id) / name)
    with pytest.raises(SnapshotCorrupt, match="altered"):
        open_snapshot(store)


@pytest.mark.parametrize("is_earlier", [False, True])
def test_a_byte_of_a_large_file_is_found_by_the_full_check(
    store: Store, monkeypatch: pytest.MonkeyPatch, is_earlier: bool
) -> None:
    monkeypatch.setattr("hirag_dist.storage.snapshot.reader.HASHED_BYTES", 100)
    snapshot_id = snapshots.published(store).snapshot_id
    if is_earlier:
        snapshots.as_an_earlier_version_wrote_it(store, snapshot_id)
    assert open_snapshot(store, full_check=True).manifest.format_version == (1 if is_earlier else 3)
    snapshots.flip(folder(store, snapshot_id) / "documents.parquet")
    open_snapshot(store)
    with pytest.raises(SnapshotCorrupt, match="altered"):
        open_snapshot(store, full_check=True)


@pytest.mark.parametrize("file", ["changed_entities.parquet", "serving-2/entity_slots.npy"])
def test_a_snapshot_with_rows_of_a_former_one_is_divided(store: Store, file: str) -> None:
    manifest = snapshots.published(store)
    files = {**manifest.files, file: FileEntry(bytes=0, sha256="")}
    assert (manifest.is_divided, manifest.model_copy(update={"files": files}).is_divided) == (False, True)


def test_a_short_or_missing_file_is_found(store: Store) -> None:
    file = folder(store, snapshots.published(store).snapshot_id) / "relations.parquet"
    file.write_bytes(file.read_bytes()[:-3])
    with pytest.raises(SnapshotCorrupt, match="bytes instead of"):
        open_snapshot(store)
    file.unlink()
    with pytest.raises(SnapshotCorrupt, match="missing"):
        open_snapshot(store)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format_version": 1}'])
def test_a_damaged_manifest_is_said(store: Store, text: str) -> None:
    file = folder(store, snapshots.published(store).snapshot_id) / "manifest.json"
    file.write_text(text)
    with pytest.raises(SnapshotCorrupt, match=r"manifest\.json is damaged"):
        open_snapshot(store)
