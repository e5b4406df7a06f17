"""A snapshot whose manifest vouches for arrays out of bounds is refused: compiled code would end the process."""

from __future__ import annotations

import hashlib
import io
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from hirag_dist.errors import SnapshotCorrupt
from hirag_dist.retrieval.view.filtered_index import AccessControlledIndex
from hirag_dist.retrieval.view.index import MappedIndex
from hirag_dist.storage.serving import checks, mmap_files
from hirag_dist.storage.serving.mmap_files import map_array
from hirag_dist.storage.serving.text_columns import TextColumns
from hirag_dist.storage.serving.writer import SERVING
from hirag_dist.storage.snapshot import reader
from hirag_dist.storage.snapshot.manifest import FileEntry
from hirag_dist.storage.snapshot.reader import HashCheck, Snapshot
from tests.filtered_builds import build_records, records
from tests.leaky_builds import corpus
from tests.storage.snapshots import keep_all_rows
from tests.toy_builds import Bench

Array = NDArray[Any]


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> tuple[Snapshot, Snapshot]:
    """A snapshot, and that of its update, of which texts, vectors and the lexical index lie in two files each."""
    bench, given = Bench(tmp_path_factory.mktemp("index")), records(corpus(1)[:15], labelled=True)
    with pytest.MonkeyPatch.context() as patch:
        keep_all_rows(patch)
        whole = build_records(bench, given[:-1], reading={"label_field": "labels"})
        bench.base_id = ""  # the second build is an update
        return whole, build_records(bench, given, reading={"label_field": "labels"})


@pytest.fixture
def snapshot(published: tuple[Snapshot, Snapshot]) -> Snapshot:
    return published[0]


def array_of(snapshot: Snapshot, name: str) -> Array:
    return np.load(Path(snapshot.store.root) / snapshot.folder / name)


def is_refused(snapshot: Snapshot) -> bool:
    fresh = Snapshot(snapshot.store, snapshot.manifest)
    try:
        AccessControlledIndex(MappedIndex.open(fresh), fresh).any_view(always=True)
    except SnapshotCorrupt:
        return True
    return False


@contextmanager
def replaced(snapshot: Snapshot, name: str, data: bytes) -> Iterator[Snapshot]:
    """Put another file in the place of one of a snapshot, with its size and digest in the manifest."""
    path = Path(snapshot.store.root) / snapshot.folder / name
    before = path.read_bytes()
    entry = FileEntry(bytes=len(data), sha256=hashlib.sha256(data).hexdigest())
    manifest = snapshot.manifest.model_copy(update={"files": {**snapshot.manifest.files, name: entry}})
    try:
        path.unlink()  # files of snapshots may be links to those of others
        path.write_bytes(data)
        yield Snapshot(snapshot.store, manifest)
    finally:
        path.write_bytes(before)


def saved(array: Array) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def far(array: Array) -> Array:
    array.reshape(-1)[-1] = min(1 << 30, np.iinfo(array.dtype).max)
    return array


def negative(array: Array) -> Array:
    array.reshape(-1)[-1] = -2
    return array


FREE = {  # arrays of any numbers
    "entity_renderings", "relation_renderings", "chunk_renderings", "community_renderings", "chunk_spans",
    "chunk_terms", "mention_positions", "statement_positions", "document_records",
    "stored_chunk_terms", "changed_chunk_terms", "term_frequencies",
}  # fmt: skip
VALUES = {f"metadata_{number}_values" for number in range(5)}  # which numpy alone reads


def accepted(snapshot: Snapshot, change: Callable[[Array], Array], kinds: str) -> set[str]:
    """Return the names of the arrays that are accepted after a change.

    An opening checks each array by its rule. Where the rule has nothing against the changed one, or there is none, the
    snapshot is opened with it: other arrays may have.
    """
    refused: set[str] = set()

    def array_fault(name: str, array: Array, size: Callable[[str], int]) -> str:
        if array.size and array.dtype.kind in kinds and checks.array_fault(name, change(np.array(array)), size):
            refused.add(name)
        return checks.array_fault(name, array, size)

    with pytest.MonkeyPatch.context() as patch:
        for module in (mmap_files, reader):
            patch.setattr(module, "array_fault", array_fault)
        assert not is_refused(snapshot)
    assert len(refused) > 3
    found: set[str] = set()
    for name in [name for name in snapshot.manifest.files if name.endswith(".npy")]:
        if name.removesuffix(".npy").removeprefix(f"{SERVING}/") in refused:
            continue
        array = array_of(snapshot, name)
        if array.size and array.dtype.kind in kinds:
            with replaced(snapshot, name, saved(change(array))) as changed:
                if not is_refused(changed):
                    found.add(Path(name).stem)
    return found


@pytest.mark.parametrize("change", [far, negative])
@pytest.mark.parametrize("is_divided", [False, True])
def test_arrays_with_a_number_out_of_bounds(
    published: tuple[Snapshot, Snapshot], change: Callable[[Array], Array], is_divided: bool
) -> None:
    snapshot = published[is_divided]
    assert any(Path(name).name == "stored_term_chunks.npy" for name in snapshot.manifest.files) == is_divided
    assert accepted(snapshot, change, "i") <= FREE | VALUES


def test_arrays_of_another_form(snapshot: Snapshot) -> None:
    for change in (lambda array: array[:-1], lambda array: array[None]):
        assert accepted(snapshot, change, "iufb") == set()
    assert accepted(snapshot, lambda array: array.astype(np.complex64), "f") <= VALUES


@pytest.mark.parametrize("name", ["graph/indices.npy", "vectors/part_sets.npy", "serving-2/relation_ends.npy"])
def test_an_array_that_its_rule_refuses_is_not_opened(snapshot: Snapshot, name: str) -> None:
    with replaced(snapshot, name, saved(far(array_of(snapshot, name)))) as changed:
        assert is_refused(changed)


def test_slots_that_name_a_place_twice(published: tuple[Snapshot, Snapshot]) -> None:
    divided, name = published[1], "serving-2/chunk_slots.npy"
    slots = array_of(divided, name)
    slots[0] = slots[1]
    with replaced(divided, name, saved(slots)) as changed:
        assert is_refused(changed), "scores would be written past their end"


def arrow(columns: pa.RecordBatch, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, columns.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_batch(columns)
    return bytes(sink.getvalue())


def strings(offsets: list[int], data: bytes) -> pa.RecordBatch:
    buffers = [None, pa.py_buffer(np.array(offsets, np.int32).tobytes()), pa.py_buffer(data)]
    return pa.record_batch([pa.Array.from_buffers(pa.string(), len(offsets) - 1, buffers)], ["name"])


@pytest.mark.parametrize(
    "data",
    [
        arrow(strings([0, 9, 2], b"ab")),
        arrow(strings([0, -5, 2], b"ab")),
        arrow(strings([0, 1, 2], b"ab" * 100), compression="lz4"),
        arrow(pa.record_batch([pa.array([1, 2])], ["name"])),
        arrow(strings([0, 1, 2], b"ab"))[:-40],
        b"",
    ],
    ids=["falling", "negative", "compressed", "numbers", "cut", "empty"],
)
def test_texts_that_lie_outside_of_their_file(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "names.arrow").write_bytes(data)
    with pytest.raises(SnapshotCorrupt, match=r"names\.arrow is damaged"):
        TextColumns(tmp_path / "names.arrow")


def test_a_file_that_is_no_array(tmp_path: Path) -> None:
    (tmp_path / "a.npy").write_bytes(b"no array")
    with pytest.raises(SnapshotCorrupt, match=r"a\.npy is damaged"):
        map_array(tmp_path / "a.npy")


def test_texts_with_another_number_of_rows(snapshot: Snapshot) -> None:
    data = arrow(pa.record_batch([["a"], ["b"]], ["title", "text"]))
    with replaced(snapshot, "serving-2/reports.arrow", data) as changed:
        assert is_refused(changed)


def test_a_large_file_that_was_altered_is_logged_after_opening(
    snapshot: Snapshot, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hirag_dist.storage.snapshot.reader.HASHED_BYTES", 0)
    path = Path(snapshot.store.root) / snapshot.folder / "vectors/entities.npy"
    before = path.read_bytes()
    for data, n_errors in ((before, 0), (before[:-1] + bytes([before[-1] ^ 1]), 1)):
        path.unlink()
        path.write_bytes(data)
        HashCheck(snapshot)
        for thread in threading.enumerate():
            if thread.name == "hash-check":
                thread.join(60)
        assert [record.levelname for record in caplog.records] == ["ERROR"] * n_errors
    path.write_bytes(before)
    assert "vectors/entities.npy was altered" in caplog.text
