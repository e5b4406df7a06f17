"""A file of numbered pieces, of which each is read alone."""

from contextlib import suppress

import pyarrow as pa
import pytest

from hirag_dist.errors import StoreError, WorkFileDamaged
from hirag_dist.storage.spill import read_piece, write_pieces
from hirag_dist.storage.store import Store

SCHEMA = pa.schema(
    [
        pa.field("word", pa.string(), nullable=False),
        pa.field("ids", pa.list_(pa.field("item", pa.string(), nullable=False)), nullable=False),
    ]
)


def table(*words: str) -> pa.Table:
    return pa.table({"word": list(words), "ids": [[word] * 2 for word in words]}, schema=SCHEMA)


def test_pieces_come_back_by_number(store: Store) -> None:
    whole = table("a", "b", "c", "d")
    pieces = [whole.slice(0, 0), whole.slice(0, 1), whole.slice(1, 3), whole.slice(4, 0)]
    write_pieces(store, "folder/file.pieces", pieces)
    for number, piece in enumerate(pieces):
        found = read_piece(store, "folder/file.pieces", number, SCHEMA)
        assert found.equals(piece)
        assert found.schema.equals(SCHEMA)


def test_a_piece_is_read_without_the_others(store: Store) -> None:
    write_pieces(store, "file", [table("a" * 1000), table("b"), table("c" * 1000)])
    data = bytearray(store.read_bytes("file"))
    numbers = [int.from_bytes(data[at : at + 8], "little") for at in range(0, 96, 8)]
    starts, lengths = numbers[0::4], numbers[1::4]
    assert (starts[0], starts[2] + lengths[2]) == (96, len(data))
    for number in (0, 2):
        data[starts[number] : starts[number] + lengths[number]] = bytes(lengths[number])
    store.write_bytes("file", bytes(data))
    assert read_piece(store, "file", 1, SCHEMA).equals(table("b"))
    for number in (0, 2):
        with pytest.raises(StoreError, match=r"file is damaged"):
            read_piece(store, "file", number, SCHEMA)


def test_any_altered_bit_is_found(store: Store) -> None:
    pieces = [table("a", "b"), table(), table("c")]
    write_pieces(store, "file", pieces)
    data = store.read_bytes("file")
    for bit in range(0, len(data) * 8, 61):
        altered = bytearray(data)
        altered[bit // 8] ^= 1 << bit % 8
        store.write_bytes("file", bytes(altered), durable=False)
        found = []
        for number, piece in enumerate(pieces):
            with suppress(WorkFileDamaged):
                assert read_piece(store, "file", number, SCHEMA).equals(piece)
                found.append(number)
        assert len(found) == 2, f"bit {bit}: one piece is refused"
