"""Files of work: tables and matrices that are sorted on disk, numbered pieces, and JSON with a checksum."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from hirag_dist.errors import StoreError, WorkFileDamaged
from hirag_dist.storage.checked_json import read_checked, write_checked
from hirag_dist.storage.spill import SpillFile, read_piece, spill_file, write_pieces
from hirag_dist.storage.store import Store

SCHEMA = pa.schema(
    [
        pa.field("layer", pa.int32(), nullable=False),
        pa.field("name", pa.string(), nullable=False),
        pa.field("text", pa.string()),
        pa.field("of", pa.list_(pa.string()), nullable=False),
        pa.field("found", pa.list_(pa.struct([pa.field("what", pa.string()), pa.field("ids", pa.list_(pa.string()))]))),
        pa.field("sure", pa.bool_()),
    ]
)


def tables(n_parts: int, rng: np.random.Generator) -> list[pa.Table]:
    """Some rows a part, none in some, keys that repeat, and nulls."""
    parts = []
    for number in range(n_parts):
        rows = [
            {
                "layer": int(rng.integers(2)),
                "name": f"n{rng.integers(20):02d}",
                "text": None if rng.random() < 0.3 else "ä" * int(rng.integers(50)),
                "of": [f"{number}-{at}"] * int(rng.integers(3)),
                "found": [{"what": f"{number}.{at}", "ids": ["x"] * int(rng.integers(2))}],
                "sure": bool(rng.integers(2)),
            }
            for at in range(int(rng.integers(6)))
        ]
        parts.append(pa.Table.from_pylist(rows, SCHEMA))
    return parts


@pytest.mark.parametrize("by", [("layer", "name"), ("name",), ()])
@pytest.mark.parametrize(
    ("piece_bytes", "small_bytes"), [(1 << 30, 0), (1 << 30, 1_000), (200, 0), (1, 1_000), (1, 1 << 30)]
)
def test_a_table_comes_as_if_sorted_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: tuple[str, ...], piece_bytes: int, small_bytes: int
) -> None:
    for name in ("_SMALL_BYTES", "_MEMORY_BYTES"):
        monkeypatch.setattr(f"hirag_dist.storage.spill.{name}", small_bytes)
    parts = tables(20, np.random.default_rng(1))
    whole = pa.concat_tables(parts)
    expected = whole.sort_by([(name, "ascending") for name in by]) if by else whole
    found = SpillFile(tmp_path, piece_bytes).table(iter(parts), SCHEMA, by)
    assert found == expected
    pieces = found["text"].num_chunks
    assert pieces == 1 if max(piece_bytes, small_bytes) == 1 << 30 else pieces > 1
    assert list(tmp_path.iterdir()) == []  # mapped, and gone with the last use


@pytest.mark.parametrize("n_more", [0, 5])
def test_sorted_rows_stay_where_they_are(tmp_path: Path, n_more: int) -> None:
    rows = [{"layer": at // 5000, "name": f"n{at:05}", "text": f"{at}", "of": [], "sure": True} for at in range(9000)]
    kept = pa.Table.from_pylist(rows, SCHEMA)
    more = pa.Table.from_pylist([row | {"name": f"{row['name']}-more"} for row in rows[1200::1700][:n_more]], SCHEMA)
    found = SpillFile(tmp_path).table([kept.slice(0, 100), kept.slice(100), more], SCHEMA, ("layer", "name"))
    assert found == pa.concat_tables([kept, more]).sort_by([("layer", "ascending"), ("name", "ascending")])
    assert found["text"].num_chunks == 1 + 2 * n_more  # slices
    assert list(tmp_path.iterdir()) == []


def test_a_matrix_and_its_rows_in_another_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hirag_dist.storage.spill._BLOCK_BYTES", 3 * 4 * 2)  # two rows
    folder = SpillFile(tmp_path)
    whole = np.arange(21, dtype=np.float32).reshape(7, 3)
    matrix = folder.matrix(iter([whole[:2], whole[2:2], whole[2:]]), 3)
    assert np.array_equal(matrix, whole)
    rows = np.array([6, 0, 3, 3, 1])
    assert np.array_equal(folder.ordered(matrix, rows), whole[rows])
    assert folder.ordered(matrix, rows[:0]).shape == (0, 3)
    assert folder.matrix([], 3).shape == (0, 3)
    assert list(tmp_path.iterdir()) == []


def test_the_folder_goes_also_after_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def stopped() -> Any:
        yield tables(1, np.random.default_rng(3))[0]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), spill_file() as folder:
        folder.table(stopped(), SCHEMA)
    assert list(tmp_path.iterdir()) == []


class OnFullDevice:
    """A folder in which every name is a device that is full."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __truediv__(self, name: str) -> Path:
        (self._folder / name).symlink_to("/dev/full")
        return self._folder / name


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no such device here")
def test_a_full_disk_is_one_line_that_says_what_to_do(tmp_path: Path) -> None:
    full = SpillFile(OnFullDevice(tmp_path))
    said = r"^the temporary folder .* the disk is full; let TMPDIR name .* run again, finished work is kept$"
    with pytest.raises(StoreError, match=said):
        full.table([pa.table({"text": ["x" * 200_000]})], pa.schema([("text", pa.string())]))
    with pytest.raises(StoreError, match=said):
        full.matrix([np.zeros((100_000, 3), np.float32)], 3)


def test_folders_of_killed_processes_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    abandoned = tmp_path / "hirag-publish-of-a-killed-process"
    abandoned.mkdir()
    (abandoned / "lock").touch()  # the lock ended with the process
    (abandoned / "part.arrow").write_bytes(b"left")
    created = tmp_path / "hirag-publish-without-a-lock-yet"
    created.mkdir()
    with spill_file() as first:
        assert not abandoned.exists()
        with spill_file() as second:  # does not remove what is in use
            assert second.table([pa.table({"a": [1]})], pa.schema([("a", pa.int64())])).num_rows == 1
        assert first.table([pa.table({"a": [2]})], pa.schema([("a", pa.int64())])).num_rows == 1
    assert list(tmp_path.iterdir()) == [created]


PIECES = pa.schema(
    [
        pa.field("word", pa.string(), nullable=False),
        pa.field("ids", pa.list_(pa.field("item", pa.string(), nullable=False)), nullable=False),
    ]
)


def words_table(*words: str) -> pa.Table:
    return pa.table({"word": list(words), "ids": [[word] * 2 for word in words]}, schema=PIECES)


def test_pieces_come_back_by_number_and_any_altered_bit_damages_one(store: Store) -> None:
    whole = words_table("a", "b", "c", "d")
    pieces = [whole.slice(0, 1), whole.slice(0, 0), whole.slice(1, 3)]
    write_pieces(store, "file", pieces)
    for number, piece in enumerate(pieces):
        found = read_piece(store, "file", number, PIECES)
        assert (found, found.schema) == (piece, PIECES)
    data = store.read_bytes("file")
    for bit in range(0, len(data) * 8, 61):
        altered = bytearray(data)
        altered[bit // 8] ^= 1 << bit % 8
        store.write_bytes("file", bytes(altered), durable=False)
        found = 0
        for number, piece in enumerate(pieces):
            with suppress(WorkFileDamaged):
                assert read_piece(store, "file", number, PIECES).equals(piece)
                found += 1
        assert found == 2, f"bit {bit}: one piece is refused"
    with pytest.raises(StoreError, match="file is damaged"):
        read_piece(store, "file", 2, PIECES)


VALUE = {"tasks": [{"number": 1, "rows": 0.5, "text": "é"}], "a": None}


def test_what_was_written_is_read_back_and_any_altered_bit_and_length_is_damage(store: Store) -> None:
    assert read_checked(store, "a.json") is None
    write_checked(store, "a.json", VALUE)
    assert read_checked(store, "a.json") == VALUE
    assert store.read_json("a.json") == VALUE | {"check": store.read_json("a.json")["check"]}
    file = Path(store.root) / "a.json"
    data = store.read_bytes("a.json")
    for bit in range(0, len(data) * 8, 5):
        altered = bytearray(data)
        altered[bit // 8] ^= 1 << bit % 8
        file.write_bytes(bytes(altered))
        found = read_checked(store, "a.json")
        assert found is None or {name: value for name, value in found.items() if name in VALUE} == VALUE
    for damaged in (b"[1]", *(data[:length] for length in range(len(data)))):
        file.write_bytes(damaged)
        assert read_checked(store, "a.json") is None


def test_a_file_that_cannot_be_read_is_not_taken_for_a_damaged_one(store: Store) -> None:
    store.write_bytes("a.json/file", b"")
    with pytest.raises(StoreError):
        read_checked(store, "a.json")
