"""A snapshot written with a base has the files that it has without one, byte for byte."""

from __future__ import annotations

import logging
import os
import random
import shutil
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hirag_dist import schemas
from hirag_dist.core.retrieval.lexical import LexicalIndexBuilder, best_chunks, visible_chunks
from hirag_dist.errors import SnapshotCorrupt, SnapshotNotFound, StoreError
from hirag_dist.execution.dataset import read_part
from hirag_dist.storage.layout import FORMAT_VERSION
from hirag_dist.storage.serving.lexical import LEXICAL_ARRAYS, map_lexical
from hirag_dist.storage.snapshot import cache as snapshot_cache
from hirag_dist.storage.snapshot.files import SnapshotFiles, write_parquet
from hirag_dist.storage.snapshot.manifest import FileEntry
from hirag_dist.storage.snapshot.reader import Snapshot, open_snapshot
from hirag_dist.storage.snapshot.writer import write_whole
from hirag_dist.storage.store import Store
from tests.mortal_store import Killed, MortalStore
from tests.storage import snapshots

VECTORS = {"vectors/entities": np.eye(4, dtype=np.float32), "vectors/chunks": np.ones((1, 4), np.float32)}


def write(store: Store, note: str, base: Snapshot | None = None) -> Snapshot:
    """Write the tiny snapshot; the note changes one document and one report."""
    tables = snapshots.tiny_tables(note)
    reports = tables["reports"].to_pylist()
    reports[0]["summary"] += note
    tables["reports"] = pa.Table.from_pylist(reports, schemas.REPORTS)
    return snapshots.written(store, tables, VECTORS, base)


def path_in(snapshot: Snapshot, name: str) -> Path:
    return Path(snapshot.store.root) / snapshot.folder / name


def test_files_of_the_same_content_are_links_and_stay_when_the_base_goes(store: Store, tmp_path: Path) -> None:
    base = write(store, "")
    found = write(store, " More.", base)
    other = write(Store(str(tmp_path / "alone")), " More.")
    assert found.manifest.snapshot_id == other.manifest.snapshot_id != base.manifest.snapshot_id
    files = found.manifest.files
    assert files == other.manifest.files
    assert list(files) == sorted(files)
    linked = {name for name in files if path_in(found, name).samefile(path_in(base, name))}
    assert {"entities.parquet", "graph/indices.npy", "vectors/entities.npy", "serving-2/relations.arrow"} <= linked
    assert not linked & {"documents.parquet", "chunks.parquet", "reports.parquet", "usage.parquet", "rejects.parquet"}
    store.delete(base.folder)
    open_snapshot(store, found.manifest.snapshot_id, full_check=True)


@pytest.mark.parametrize("gone", [True, False])
def test_a_base_that_is_gone_or_altered_is_not_used(
    store: Store, tmp_path: Path, gone: bool, caplog: pytest.LogCaptureFixture
) -> None:
    base = write(store, "")
    if gone:
        store.delete(base.folder)
    else:
        for name in ("entities.parquet", "serving-2/relation_renderings.npy"):
            snapshots.flip(path_in(base, name), -9)
    with caplog.at_level(logging.INFO):
        found = write(store, " More.", base)
    assert found.manifest.files == write(Store(str(tmp_path / "alone")), " More.").manifest.files
    assert ("is written again" if gone else "was altered") in caplog.text


def test_a_failure_in_one_file_leaves_no_manifest(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    base = write(store, "")
    written = SnapshotFiles.array

    def full(self: SnapshotFiles, name: str, array: Any, kept: Any) -> None:
        if name == "vectors/chunks":
            raise StoreError("the disk is full")
        written(self, name, array, kept)

    with monkeypatch.context() as patch:
        patch.setattr(SnapshotFiles, "array", full)
        with pytest.raises(StoreError, match="disk is full"):
            write(store, " More.", base)
    (left,) = set(store.names("snapshots")) - {base.manifest.snapshot_id}
    with pytest.raises(SnapshotNotFound, match="never finished"):
        open_snapshot(store, left)
    again = write(store, " More.", base)  # over files that the failed run has linked or written
    assert again.manifest.snapshot_id == left
    open_snapshot(store, base.manifest.snapshot_id, full_check=True)
    assert not [name for _, _, names in os.walk(store.root) for name in names if name.startswith(".tmp-")]


def test_on_an_object_store_files_are_copied_by_the_store(tmp_path: Path) -> None:
    local = Store(str(tmp_path / "published"))
    own_id = write(local, "").manifest.snapshot_id
    store = snapshots.as_remote(local)
    base = open_snapshot(store, own_id).cached_in(str(tmp_path / "cache"))
    alone = write(local, " More.")
    for part in ("graph", "vectors", "serving-2"):
        store._fs.create_dir(f"{store.root}/{alone.folder}/{part}")  # object stores have no folders
    assert write(store, " More.", base).manifest.files == alone.manifest.files


def test_a_table_has_the_same_bytes_however_it_lies_in_memory(tmp_path: Path) -> None:
    draw = random.Random(1)
    rows = [
        snapshots.entity(
            f"e{at:06}", 0, f"Name {at}" * draw.randrange(9), [f"k{draw.randrange(99)}"] * draw.randrange(3)
        )
        for at in range(3000)
    ]
    whole = pa.Table.from_pylist(rows, schemas.ENTITIES)
    cuts = sorted(draw.sample(range(3000), 40))
    pieces = [whole.slice(first, last - first) for first, last in zip([0, *cuts], [*cuts, 3000], strict=True)]
    for name, table in (("whole", whole), ("pieces", pa.concat_tables(pieces))):
        write_parquet(table, str(tmp_path / name))
    assert (tmp_path / "whole").read_bytes() == (tmp_path / "pieces").read_bytes()
    assert pq.read_table(tmp_path / "pieces").equals(whole)
    write_parquet(whole.slice(0, 0), str(tmp_path / "none"))
    assert pq.read_table(tmp_path / "none").equals(whole.schema.empty_table())


def large(seed: int) -> tuple[dict[str, pa.Table], dict[str, Any]]:
    """Tables and vectors of a snapshot; those of another seed differ in a few of some 60 rows."""
    draw, rng = random.Random(seed), np.random.default_rng(seed)
    tables = snapshots.tiny_tables()
    numbers = sorted({*range(60), *(draw.randrange(60, 120) for _ in range(3))} - {draw.randrange(60)})
    other = {draw.choice(numbers) for _ in range(3)}
    texts = {number: f"text {number}" + (f" of {seed}" if number in other else "") for number in numbers}
    ends = {"source_id": f"{numbers[0]:024}", "target_id": f"{numbers[1]:024}"}
    for name, own_id, text, same in (
        ("entities", "entity_id", "description", {}),
        ("relations", "relation_id", "description", ends),
        ("chunks", "chunk_id", "text", {}),
        ("communities", "community_id", "", {}),
        ("reports", "community_id", "summary", {}),
    ):
        row = tables[name].to_pylist()[0] | same
        rows = [row | {own_id: f"{number:024}"} | ({text: texts[number]} if text else {}) for number in numbers]
        tables[name] = pa.Table.from_pylist(rows, getattr(schemas, name.upper()))
    vectors = np.random.default_rng(0).standard_normal((120, 4)).astype(np.float32)
    vectors[rng.integers(120)] += 1
    return tables, {f"vectors/{table}": vectors[numbers] for table in ("entities", "chunks")}


def write_large(store: Store, seed: int, base: Snapshot | None = None, **options: Any) -> Snapshot:
    return snapshots.written(store, *large(seed), base, **options)


def readings(snapshot: Snapshot) -> list[Any]:
    """What readers get of texts, vectors and tables."""
    columns = {"entities": "description", "relations": "description", "chunks": "text", "reports": "text"}
    texts = [(snapshot.serving.texts(f"{table}.arrow"), name) for table, name in columns.items()]
    values = [own.values(name, range(own.n_rows)) for own, name in texts]
    names = ("documents", "entities", "relations", "reports")
    tables = [snapshot.table(name).to_pylist() for name in names]
    tables += [pa.concat_tables(snapshot.pieces(name)).to_pylist() for name in names]
    tables.append([snapshot.document_text(row) for row in range(snapshot.manifest.counts["documents"])])
    tables.append(snapshot.table("entities", ["description", "entity_id"]).to_pylist())
    matrices = [np.asarray(matrix).tolist() for matrix in (snapshot.entity_vectors, snapshot.chunk_vectors)]
    parts, n_chunks = map_lexical(snapshot.serving), snapshot.manifest.counts["chunks"]
    visible = [visible_chunks(parts, mask) for mask in (None, np.arange(n_chunks) % 2 == 0)]
    found: list[Sequence[Any]] = [best_chunks(parts, ["text", "of", "7", "1"], 9, each) for each in visible]
    found.append(LexicalIndexBuilder().built(n_chunks, parts, np.arange(n_chunks)))
    return [*values, *tables, *matrices, *(array.tolist() for pair in found for array in pair)]


@pytest.fixture(scope="module")
def updated(tmp_path_factory: pytest.TempPathFactory) -> Snapshot:
    """The second of two snapshots, which has most rows in files of the first."""
    store = Store(str(tmp_path_factory.mktemp("updated")))
    with pytest.MonkeyPatch.context() as patch:
        snapshots.keep_all_rows(patch)
        return write_large(store, 1, write_large(store, 0))


Alone = Callable[[int], tuple[Snapshot, list[Any]]]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Alone:
    """Seed → the snapshot that is written without a base, and what readers get of it."""

    @cache
    def written(seed: int) -> tuple[Snapshot, list[Any]]:
        snapshot = write_large(Store(str(tmp_path_factory.mktemp("alone"))), seed)
        return snapshot, readings(snapshot)

    return written


@pytest.mark.usefixtures("divided")
def test_rows_that_did_not_change_stay_in_files_of_the_base(store: Store, alone: Alone) -> None:
    before = first = write_large(store, 0)
    for seed in (1, 2):
        now = write_large(store, seed, before)
        other, expected = alone(seed)
        assert now.manifest.snapshot_id == other.manifest.snapshot_id
        assert (now.manifest.is_divided, other.manifest.is_divided) == (True, False)
        assert readings(now) == expected
        texts = [f"serving-2/{table}.arrow" for table in ("entities", "relations", "chunks", "reports")]
        arrays = ["serving-2/term_chunks.npy", "vectors/entities.npy"]
        for name in (*texts, *arrays, "entities.parquet", "relations.parquet"):
            stored = path_in(now, name)
            assert stored.with_name(f"stored_{stored.name}").samefile(path_in(first, name))
        before = now
    store.delete(first.folder)
    assert readings(open_snapshot(store, before.manifest.snapshot_id, full_check=True)) == expected
    former = [*before.manifest.files]
    snapshots.as_an_earlier_version_wrote_it(store, before.manifest.snapshot_id)
    gone = write_whole(store, before.manifest.snapshot_id)
    own = open_snapshot(store, before.manifest.snapshot_id, full_check=True)
    assert (readings(own), own.manifest.is_divided) == (expected, False)
    assert own.manifest.format_version == FORMAT_VERSION, "its new files have hashes that format 1 has not"
    assert {name: entry.sha256 for name, entry in own.manifest.files.items()} == {
        name: entry.sha256 for name, entry in other.manifest.files.items()
    }
    assert {*former} - {*own.manifest.files} == {*gone}
    assert not any(store.exists(f"{own.folder}/{name}") for name in gone)
    assert write_whole(store, before.manifest.snapshot_id) == []
    whole = write_large(store, 3, before, keeps_rows=False)
    assert not whole.manifest.is_divided
    assert readings(whole) == alone(3)[1]


@pytest.fixture
def divided_base(updated: Snapshot, store: Store) -> Snapshot:
    """The second snapshot, in the store of the test."""
    shutil.copytree(updated.store.root, store.root)
    return open_snapshot(store, updated.manifest.snapshot_id, full_check=True)


@pytest.mark.parametrize(
    "altered",  # a file of each group that is kept or written on its own, and where a byte changes
    [
        {
            "serving-2/stored_entities.arrow": None,
            "serving-2/stored_reports.arrow": None,
            "serving-2/stored_term_counts.npy": -1,
            "stored_entities.parquet": 40,
        },
        {
            "vectors/stored_entities.npy": -20,
            "serving-2/changed_term_counts.npy": -1,
            "changed_entities.parquet": 40,
        },
        {
            "serving-2/changed_entities.arrow": None,
            "serving-2/changed_term_counts.npy": 128,
            "unused_entities.parquet": 40,
        },
    ],
)
@pytest.mark.usefixtures("divided")
def test_an_altered_file_of_the_base_is_not_kept(
    store: Store, divided_base: Snapshot, alone: Alone, altered: dict[str, int | None]
) -> None:
    for name, offset in altered.items():
        file = path_in(divided_base, name)
        snapshots.flip(file, file.read_bytes().rindex(b"text 5") if offset is None else offset)
    assert readings(write_large(store, 2, divided_base)) == alone(2)[1]


@pytest.mark.usefixtures("divided")
def test_a_lexical_index_in_one_part_beside_texts_in_two_is_read_and_divided_later(
    store: Store, divided_base: Snapshot, alone: Alone
) -> None:
    before, (other, expected) = divided_base, alone(1)
    files = {name: entry for name, entry in before.manifest.files.items() if "term" not in name}
    for name in [f"serving-2/{array}.npy" for array in LEXICAL_ARRAYS]:
        store.write_bytes(f"{before.folder}/{name}", other.store.read_bytes(f"{other.folder}/{name}"))
        files[name] = other.manifest.files[name]
    manifest = before.manifest.model_copy(update={"files": files})
    store.write_bytes(f"{before.folder}/manifest.json", manifest.model_dump_json().encode())
    base = open_snapshot(store, before.manifest.snapshot_id, full_check=True)
    assert readings(base) == expected
    for seed in (2, 3):
        base = write_large(store, seed, base)
        assert readings(base) == alone(seed)[1]
    assert "serving-2/stored_term_keys.npy" in base.manifest.files


@pytest.mark.usefixtures("divided")
def test_all_files_of_a_table_are_kept_or_none(store: Store, alone: Alone, monkeypatch: pytest.MonkeyPatch) -> None:
    first = write_large(store, 0)
    copy = Store.copy

    def refuse(self: Store, source: str, target: str, **options: Any) -> None:
        if target.endswith("stored_entities.npy"):
            raise StoreError("503")
        copy(self, source, target, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Store, "copy", refuse)
        second = write_large(store, 1, first)
    assert second.manifest.slotted == {"relations", "chunks", "reports"}
    assert not store.exists(f"{second.folder}/serving-2/stored_entities.arrow")
    third = write_large(store, 2, second)
    for number, snapshot in ((1, second), (2, third)):
        assert readings(snapshot) == alone(number)[1]


@pytest.mark.usefixtures("divided")
def test_tables_of_equal_content_are_links_without_slots(store: Store) -> None:
    before = write_large(store, 0)
    tables, vectors = large(0)
    tables["documents"] = snapshots.tiny_tables(" More.")["documents"]
    now = snapshots.written(store, tables, vectors, before)
    assert (now.manifest.slotted, now.manifest.divided_tables) == (frozenset(), {"documents"})
    for name in ("serving-2/entities.arrow", "vectors/entities.npy"):
        assert path_in(now, name).samefile(path_in(before, name))


@pytest.mark.usefixtures("divided")
def test_a_kill_while_a_snapshot_is_written_whole_leaves_it_readable(
    divided_base: Snapshot, alone: Alone, tmp_path: Path
) -> None:
    """After the first change, around that of the manifest, and before the last."""
    own_id, expected, after = divided_base.manifest.snapshot_id, alone(1)[1], alone(2)[1]

    def copied(number: int) -> str:
        return str(shutil.copytree(divided_base.store.root, tmp_path / f"killed-{number}"))

    undisturbed = MortalStore(copied(0), None)
    write_whole(undisturbed, own_id)
    changed = undisturbed.changed
    (manifest,) = (at for at, path in enumerate(changed, 1) if path.endswith("manifest.json"))
    assert 1 < manifest < len(changed) - 1
    for dies_at in (1, manifest - 1, manifest, len(changed) - 1):
        own = Store(copied(dies_at))
        with pytest.raises(Killed):
            write_whole(MortalStore(own.root, dies_at), own_id)
        left = open_snapshot(own, own_id, full_check=True)
        assert readings(left) == expected, dies_at
        assert readings(write_large(own, 2, left)) == after, dies_at
        write_whole(own, own_id)
        found = open_snapshot(own, own_id, full_check=True)
        assert readings(found) == expected
        divided = ("stored_", "changed_", "unused_", "_slots", "term_frequencies")
        assert not any(part in path for path in own.walk(found.folder) for part in divided)


@pytest.mark.usefixtures("divided")
def test_a_snapshot_that_is_published_again_from_another_base_is_read_from_its_own_files(
    store: Store, alone: Alone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The caches of services that had the former files may still be there."""
    monkeypatch.setattr(snapshot_cache, "HASHED_BYTES", 600)
    expected = alone(1)[1]
    for base in (0, 2):
        snapshot = write_large(store, 1, write_large(store, base))
        cached = Snapshot(snapshots.as_remote(store), snapshot.manifest, str(tmp_path / "cache"))
        assert readings(cached) == expected
        assert snapshot.manifest.slotted
        store.delete(snapshot.folder)


@pytest.mark.usefixtures("divided")
def test_a_file_of_a_version_with_other_columns_is_not_kept(store: Store) -> None:
    tables = snapshots.tiny_tables()
    (row,) = tables["documents"].to_pylist()
    rows = [row | {"source_ids": [], "document_id": f"d{number}"} for number in range(1, 4)]

    def written(n_rows: int, base: Snapshot | None = None) -> Snapshot:
        documents = {"documents": pa.Table.from_pylist(rows[:n_rows], schemas.DOCUMENTS)}
        return snapshots.written(store, tables | documents, VECTORS, base)

    base = written(2)
    path = path_in(base, "documents.parquet")
    table = pq.read_table(path).drop_columns("source_ids")
    path.unlink()
    pq.write_table(table, path)
    entry = FileEntry(bytes=path.stat().st_size, sha256=store.sha256(f"{base.folder}/documents.parquet"))
    manifest = base.manifest.model_copy(update={"files": {**base.manifest.files, "documents.parquet": entry}})
    now = written(3, Snapshot(store, manifest))
    assert (now.table("documents").to_pylist(), now.manifest.divided_tables) == (rows, frozenset())


@pytest.mark.parametrize("file", ["stored_entities.parquet", "changed_entities.parquet", "unused_entities.parquet"])
def test_a_stage_refuses_a_divided_table_of_which_a_file_was_altered(
    store: Store, divided_base: Snapshot, file: str
) -> None:
    sha256 = divided_base.manifest.files["changed_entities.parquet"].sha256
    snapshots.flip(path_in(divided_base, file), -9)
    with pytest.raises(SnapshotCorrupt, match="was altered"):
        read_part(store, f"{divided_base.folder}/changed_entities.parquet", sha256)
