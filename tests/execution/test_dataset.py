"""Files of datasets: what is read is what was written, or the file is named as damaged."""

from __future__ import annotations

import pickle
from contextlib import suppress

import pyarrow as pa
import pytest

from hirag_dist.errors import SnapshotCorrupt, StoreError, WorkFileDamaged
from hirag_dist.execution import dataset
from hirag_dist.execution.dataset import part_pieces, read_part, read_part_rows
from hirag_dist.storage.store import Store

TABLE = pa.table({"a": list(range(500)), "b": [f"word {n % 7}" for n in range(500)]})
PATH = "work/stage/key/out/part-000000.parquet"


def flip(store: Store, bit: int) -> None:
    data = bytearray(store.read_bytes(PATH))
    data[bit // 8 % len(data)] ^= 1 << bit % 8
    store.write_bytes(PATH, bytes(data), durable=False)


def test_whole_files_are_read(store: Store) -> None:
    written = store.write_table(PATH, TABLE)
    assert written.size == store.size(PATH)
    assert written.sha256 == store.sha256(PATH)
    assert read_part(store, PATH, written.sha256).equals(TABLE)
    assert read_part_rows(store, PATH, written.sha256, 3, 9, ["a"])["a"].to_pylist() == [3, 4, 5, 6, 7, 8]
    assert pa.concat_tables(part_pieces(store, PATH, written.sha256)).equals(TABLE)


def test_any_altered_bit_is_found_before_publishing_and_in_a_new_process(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a process that has compared the file, the checksums of pages find most of them."""
    written = store.write_table(PATH, TABLE)
    n_silent, bits = 0, range(0, written.size * 8, 193)
    for bit in bits:
        read_part(store, PATH, written.sha256)
        flip(store, bit)
        with suppress(StoreError):
            n_silent += not read_part(store, PATH, written.sha256).equals(TABLE)
        with pytest.raises(WorkFileDamaged) as raised:
            list(part_pieces(store, PATH, written.sha256))
        assert pickle.loads(pickle.dumps(raised.value)).path == PATH
        monkeypatch.setattr(dataset, "_verified", set())
        with pytest.raises(WorkFileDamaged):
            read_part_rows(store, PATH, written.sha256, 0, 1)
        flip(store, bit)
    assert n_silent <= len(bits) // 10


def test_a_file_that_is_gone_or_of_a_snapshot(store: Store) -> None:
    with pytest.raises(WorkFileDamaged, match="damaged or gone"):
        read_part(store, PATH, "")
    with pytest.raises(SnapshotCorrupt):
        read_part(store, "snapshots/a/entities.parquet", "0" * 64)
    with pytest.raises(StoreError, match="not there"):
        read_part(store, "elsewhere.parquet", "")
