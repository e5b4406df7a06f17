"""Memory-mapped columns of text: any value by its row, without decoding the others.

The file is uncompressed Arrow IPC: record batches of `BATCH_ROWS` rows, the last one shorter, strings only, without
nulls. Values are read from the mapped buffers, without an Arrow object for each. Rows may lie in two files: one that a
former snapshot wrote, and one of the rows that changed since.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hirag_dist.core.arrays import compiled
from hirag_dist.core.row_changes import one_piece
from hirag_dist.errors import SnapshotCorrupt
from hirag_dist.types import IntVector

BATCH_ROWS = 16_384
_MIN_JOINED = 8  # values that are read together
_GUESSED_BYTES = 64  # of a value, to begin with
MAX_READ_BYTES = 64 << 10  # of a file that is read, not mapped: a map takes a descriptor, and a process has few


class TextColumns:
    """The columns of one file, or of two, mapped.

    Attributes:
        n_rows: number of values of each column.
        n_stored: rows of the first file.
        schema: names and types of the columns.
        slots: (n_rows,) where each value lies; None: in the first file, in order.
    """

    def __init__(self, path: Path, changed: Path | None = None, slots: NDArray[np.int32] | None = None) -> None:
        """Map files; no text is read.

        Args:
            path: file of all rows, or of those that a former snapshot wrote.
            slots: (n,) row of each value in the first file or, from its end on, in the second; None: the first file
                has all rows in order.

        Raises:
            SnapshotCorrupt: one is no such file.
        """
        batches, whole, schema = _mapped(path)
        self.n_rows = self.n_stored = n_stored = sum(batch.num_rows for batch in batches)
        self._skipped = BATCH_ROWS * len(batches) - n_stored  # positions behind the first file's last row
        self.slots, self.schema = slots, schema
        if changed is not None and slots is not None:
            more, _, own_schema = _mapped(changed)
            if not own_schema.equals(schema) or not are_rows(slots, n_stored + sum(batch.num_rows for batch in more)):
                raise SnapshotCorrupt(f"{changed} does not belong to {path}: serve another snapshot")
            batches, self.n_rows = batches + more, len(slots)
        self._batches = batches
        self._columns: dict[str, list[tuple[memoryview, memoryview]]] = {
            name: [_buffers(batch.column(at)) for batch in batches] for at, name in enumerate(schema.names)
        }
        self._bytes = np.frombuffer(whole, np.uint8)
        self._places = {  # of short texts: long ones take longer to copy than to decode one by one
            field.name: np.array([_places(batch.column(at), whole.address) for batch in batches], np.int64).reshape(
                -1, 2
            )
            for at, field in enumerate(schema)
            if not pa.types.is_large_string(field.type)
        }

    def buffers(self) -> list[memoryview]:
        """Return the mapped bytes of all columns."""
        return [buffer for parts in self._columns.values() for part in parts for buffer in part]

    def value(self, name: str, row: int) -> str:
        """Return one value."""
        if self.slots is not None:
            row = int(self._positions(self.slots[row]))
        offsets, data = self._columns[name][row // BATCH_ROWS]
        at = row % BATCH_ROWS
        return str(data[offsets[at] : offsets[at + 1]], "utf-8", "replace")

    def values(self, name: str, rows: Iterable[int]) -> list[str]:
        """Return the values of some rows, in their order."""
        rows = list(rows)
        is_joined = len(rows) >= _MIN_JOINED and name in self._places
        if self.slots is not None:
            rows = self._positions(self.slots[rows]).tolist() if rows else []
            is_joined = is_joined and max(rows) < self.n_stored
        if is_joined:
            found = self._joined(self._places[name], np.array(rows, np.int64))
            if len(found) == len(rows):
                return found
        parts = self._columns[name]
        if len(parts) == 1:  # as in most indexes
            offsets, data = parts[0]
            return [str(data[offsets[row] : offsets[row + 1]], "utf-8", "replace") for row in rows]
        found = []
        for row in rows:
            offsets, data = parts[row // BATCH_ROWS]
            at = row % BATCH_ROWS
            found.append(str(data[offsets[at] : offsets[at + 1]], "utf-8", "replace"))
        return found

    def _positions(self, slots: NDArray[np.int32]) -> IntVector:
        """Return positions in the batches of both files, each of `BATCH_ROWS` positions."""
        positions: IntVector = slots + self._skipped * (slots >= self.n_stored).astype(np.int64)
        return positions

    def _joined(self, places: IntVector, rows: IntVector) -> list[str]:
        """Return the values of some rows, decoded together and split; values with zero bytes make more of them."""
        taken = np.empty(_GUESSED_BYTES * len(rows), np.uint8)
        needed = _join(self._bytes, places, rows, taken)
        if needed > len(taken):
            taken = np.empty(needed, np.uint8)
            _join(self._bytes, places, rows, taken)
        return str(taken[: needed - 1].data, "utf-8", "replace").split("\0")

    def table(self, names: Sequence[str], first: int = 0, last: int | None = None) -> pa.Table:
        """Return some columns of rows from `first` to `last`, by default all; mapped where they lie in one file."""
        last = self.n_rows if last is None else last
        whole = pa.Table.from_batches(self._batches, self.schema).select(names)
        if self.slots is None:
            return whole.slice(first, last - first)
        slots = self.slots[first:last]
        pieces, order = [], []
        for low, high in ((0, self.n_stored), (self.n_stored, whole.num_rows)):
            rows = np.flatnonzero((slots >= low) & (slots < high))
            order.append(rows)
            if len(rows):
                at = slots[rows]
                near = one_piece(whole.slice(int(at.min()), int(at.max() - at.min()) + 1))
                pieces.append(near.take(pa.array(at - at.min())))
        back = np.empty(len(slots), np.int64)
        back[np.concatenate(order)] = np.arange(len(slots))
        taken = pa.concat_tables([whole.slice(0, 0), *pieces])
        return one_piece(taken).take(pa.array(back))

    def batches(self, name: str) -> Iterator[tuple[NDArray[np.int64], NDArray[np.uint8]]]:
        """Yield (offsets, bytes) of a column, a batch at a time: (n + 1,) for the n values of the batch."""
        for first in range(0, self.n_rows, BATCH_ROWS):
            last = min(first + BATCH_ROWS, self.n_rows)
            for column in self.table([name], first, last).column(0).chunks:
                offsets, data = _buffers(column)
                own = np.asarray(offsets[column.offset : column.offset + len(column) + 1])
                yield own.astype(np.int64, copy=False), np.frombuffer(data, np.uint8)

    def holding(self, name: str, text: str) -> IntVector:
        """Return the rows whose value has a text in it, in whatever case. All values are read."""
        flags = [pc.match_substring(batch.column(name), text, ignore_case=True) for batch in self._batches]
        found = [np.asarray(part.to_numpy(zero_copy_only=False), np.bool_) for part in flags]
        held = np.concatenate([np.zeros(0, np.bool_), *found])
        return np.flatnonzero(held if self.slots is None else held[self.slots])

    def equal_to(self, name: str, value: str) -> NDArray[np.bool_]:
        """Return, for each row, whether its value is the given one."""
        wanted = np.frombuffer(value.encode(), np.uint8)
        found = [np.zeros(0, np.bool_)]
        for offsets, data in self.batches(name):
            equal = np.diff(offsets) == len(wanted)
            at = np.flatnonzero(equal)
            equal[at] = (data[offsets[at][:, None] + np.arange(len(wanted))] == wanted).all(axis=1)
            found.append(equal)
        return np.concatenate(found)


def are_rows(slots: NDArray[np.int32], n_rows: int) -> bool:
    """Return whether every slot is the number of one of `n_rows` rows."""
    return bool(slots.min(initial=0) >= 0 and slots.max(initial=-1) < n_rows)


def _mapped(path: Path) -> tuple[list[pa.RecordBatch], pa.Buffer, pa.Schema]:
    """Return the batches, the bytes and the schema of a file; no text is read. Raises SnapshotCorrupt."""
    try:
        small = path.stat().st_size <= MAX_READ_BYTES
        source = pa.BufferReader(path.read_bytes()) if small else pa.memory_map(str(path))
        reader = pa.ipc.open_file(source)
        batches = [reader.get_batch(at) for at in range(reader.num_record_batches)]
        source.seek(0)
        whole = source.read_buffer()
        _check(batches, whole)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise SnapshotCorrupt(f"{path} is damaged: {error}; remove it or serve another snapshot") from error
    return batches, whole, reader.schema


def _check(batches: Sequence[pa.RecordBatch], whole: pa.Buffer) -> None:
    """Check that batches are as `write_texts` writes them: their values are read without looking at bounds.

    Raises:
        ValueError: they are not.
    """
    for at, batch in enumerate(batches):
        if batch.num_rows != BATCH_ROWS and (at < len(batches) - 1 or batch.num_rows > BATCH_ROWS):
            raise ValueError(f"expected batches of {BATCH_ROWS} rows, got {batch.num_rows}")
        for column in batch.columns:
            if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
                raise ValueError(f"expected columns of strings, got {column.type}")
            column.validate()
            used = [buffer for buffer in column.buffers()[1:] if buffer]
            if not all(0 <= buffer.address - whole.address <= whole.size - buffer.size for buffer in used):
                raise ValueError("expected columns without compression")
            offsets, data = _buffers(column)
            ends: NDArray[np.int64] | NDArray[np.int32] = np.asarray(offsets[: len(column) + 1])
            if len(ends) != len(column) + 1 or ends[0] < 0 or ends[-1] > len(data) or np.any(ends[1:] < ends[:-1]):
                raise ValueError("expected offsets of strings that ascend within their bytes")


def _buffers(array: pa.Array) -> tuple[memoryview, memoryview]:
    """Return (offsets, bytes) of a column of strings that begins at its buffers' start."""
    _, offsets, data = array.buffers()
    wide = pa.types.is_large_string(array.type)
    return memoryview(offsets).cast("q" if wide else "i"), memoryview(data if data is not None else b"")


def _places(array: pa.Array, address: int) -> tuple[int, int]:
    """Return where the offsets and the bytes of a column begin, from an address on."""
    _, offsets, data = array.buffers()
    return offsets.address - address, 0 if data is None else data.address - address


@compiled
def _join(data: NDArray[np.uint8], places: IntVector, rows: IntVector, found: NDArray[np.uint8]) -> Any:
    """Write the values of some rows, a zero byte behind each, as far as there is room.

    Args:
        data: bytes of the file.
        places: (n_batches, 2) of `_places`, offsets of 32 bits.
        rows: (n,).
        found: where they are written.

    Returns:
        The bytes of all of them.
    """
    count = 0
    for row in rows:
        batch, offset = row // BATCH_ROWS, places[row // BATCH_ROWS, 0] + 4 * (row % BATCH_ROWS)
        first, last = places[batch, 1], places[batch, 1]
        for byte in range(4):
            first += np.int64(data[offset + byte]) << (8 * byte)
            last += np.int64(data[offset + 4 + byte]) << (8 * byte)
        if count + last - first < len(found):
            for byte in range(first, last):
                found[count] = data[byte]
                count += 1
            found[count] = 0
            count += 1
        else:
            count += last - first + 1
    return count


def write_texts(file: BinaryIO, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
    """Write columns of strings in order of rows, with one batch in memory.

    Args:
        schema: strings or, where `BATCH_ROWS` values may pass 2 GiB together, large strings.
        batches: the columns of the schema, of any string type, in pieces of any size.
    """
    sink: Any = file
    with pa.ipc.new_file(sink, schema) as writer:
        for piece in even_batches(batches, BATCH_ROWS):
            columns = [
                piece[name].cast(kind).combine_chunks() for name, kind in zip(schema.names, schema.types, strict=True)
            ]
            writer.write_batch(pa.record_batch(columns, schema=schema))


def even_batches(batches: Iterable[pa.RecordBatch], n_rows: int) -> Iterator[pa.Table]:
    """Yield the same rows in tables of `n_rows`, the last one shorter."""
    waiting: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        at = 0
        while batch.num_rows - at >= n_rows - count:
            waiting.append(batch.slice(at, n_rows - count))
            at += n_rows - count
            yield pa.Table.from_batches(waiting)
            waiting, count = [], 0
        if at < batch.num_rows:
            waiting.append(batch.slice(at))
            count += batch.num_rows - at
    if waiting:
        yield pa.Table.from_batches(waiting)


def text_schema(names: Sequence[str], wide: Sequence[str] = ()) -> pa.Schema:
    """Return a schema of strings, some of them large."""
    return pa.schema(
        [pa.field(name, pa.large_string() if name in wide else pa.string(), nullable=False) for name in names]
    )
