"""Tables and matrices spilled to a temporary folder and memory-mapped: what is read, and what a snapshot is made from.

A snapshot takes every table whole, in the order of its ids. Spilled tables are pages that the system may drop; in
memory are a block of one column, and the columns that a table is sorted by. Tables of a few kilobytes stay in memory: a
small build has hundreds, and a file for each would take longer than its content.

A shuffle file has an entry for each piece, four little endian int64: offset, length, CRC-32 of the piece, and CRC-32 of
these three. Then follows each piece as an Arrow IPC stream; an empty piece takes no bytes. In Parquet, with a row group
for each piece, a reader of one piece would parse a footer that describes all.
"""

from __future__ import annotations

import errno
import shutil
import tempfile
import uuid
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hirag_dist.errors import StoreError, WorkFileDamaged
from hirag_dist.storage.file_locks import lock_file
from hirag_dist.storage.store import Store
from hirag_dist.types import FloatMatrix, IntVector

_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")
_NUMBER = np.dtype("<i8")
_ENTRY_BYTES = 4 * _NUMBER.itemsize


def write_pieces(store: Store, path: str, pieces: Iterable[pa.Table]) -> None:
    """Write tables of one schema, in order, as the pieces of one file, atomically."""
    written = [_stream(piece) if piece.num_rows else b"" for piece in pieces]
    starts = np.cumsum([len(written) * _ENTRY_BYTES, *map(len, written)])[:-1]
    entries = [_entry(int(start), piece) for start, piece in zip(starts, written, strict=True)]
    store.write_bytes(path, b"".join([*entries, *written]), durable=False)


def read_piece(store: Store, path: str, number: int, schema: pa.Schema) -> pa.Table:
    """Return a piece, reading only its bytes.

    Raises:
        WorkFileDamaged: the file is gone, or is not what `write_pieces` wrote.
        StoreError: the file cannot be read.
    """
    try:
        entry = store.read_range(path, number * _ENTRY_BYTES, _ENTRY_BYTES)
        start, length, _, checksum = (int(value) for value in np.frombuffer(entry, _NUMBER))
        if zlib.crc32(entry[: -_NUMBER.itemsize]) != checksum:
            raise ValueError("a checksum is another one")  # before the piece is read: its length is not known
        data = store.read_range(path, start, length) if length else b""
        if _entry(start, data) != entry:
            raise ValueError("a checksum is another one")
        if not length:
            return schema.empty_table()
        with pa.ipc.open_stream(data) as stream:
            return stream.read_all().cast(schema)
    except (pa.ArrowException, ValueError, OSError) as error:
        raise WorkFileDamaged(f"{store.uri}/{path} is damaged: {error}", path) from error
    except StoreError as error:
        if store.exists(path) and isinstance(error.__cause__, OSError) and error.__cause__.errno is not None:
            raise
        raise WorkFileDamaged(f"{store.uri}/{path} is damaged or gone: {error}", path) from error


def _entry(start: int, piece: pa.Buffer | bytes) -> bytes:
    described = np.array([start, len(piece), zlib.crc32(piece)], _NUMBER).tobytes()
    return described + np.array([zlib.crc32(described)], _NUMBER).tobytes()


def _stream(table: pa.Table) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=_OPTIONS) as writer:
        writer.write_table(table)
    return sink.getvalue()


_PREFIX, _LOCK, _NEW_LOCK = "hirag-publish-", "lock", "new-lock"
_PIECE_BYTES = 1 << 30  # of one array of a column: below the reach of 32-bit offsets
_SMALL_BYTES = 1 << 16  # maximum size of a table that stays in memory
_MEMORY_BYTES = 1 << 16  # maximum size of a buffer of an array that stays in memory
_BLOCK_BYTES = 64 << 20  # sorted at a time
_BLOCK_ROWS = 65_536
_TAKEN_ROWS = 8_192  # rows that are copied at a time in another order: malloc keeps such small blocks
_MIN_SLICE_ROWS = 256  # on average, for a table to stay in slices


class SpillFile:
    """A temporary folder. On Linux and macOS its mapped data stays readable after the files are removed.

    Every method raises StoreError where the folder is full or cannot be written to.
    """

    def __init__(self, folder: Path, piece_bytes: int = _PIECE_BYTES) -> None:
        """Use an existing folder, which `spill_file` removes. A column above `piece_bytes` becomes several arrays."""
        self._folder = folder
        self._piece_bytes = piece_bytes

    def table(self, parts: Iterable[pa.Table], schema: pa.Schema, by: Sequence[str] = ()) -> pa.Table:
        """Return tables of one schema, read one at a time, as one: mapped, stably sorted by columns, if any."""
        spilled = self.whole(parts, schema)
        if not by or _is_sorted(spilled, by):
            return spilled
        keys = spilled.select(by).combine_chunks()
        order = pc.sort_indices(keys, [(name, "ascending") for name in by]).to_numpy().astype(np.int64)
        return self.arranged(spilled, order)

    def arranged(self, table: pa.Table, rows: IntVector) -> pa.Table:
        """Return rows of a table in some order: as slices of it, which copy nothing, where the runs are long.

        They are where the rows are those of an earlier index, in their order, with some rows between them.
        """
        starts = np.flatnonzero(np.diff(rows, prepend=-2) != 1)
        n_chunks = max((column.num_chunks for column in table.columns), default=0)
        if not table.num_rows or (len(starts) + n_chunks) * _MIN_SLICE_ROWS > table.num_rows:
            return self.rows(table, rows)
        lengths = np.diff(np.append(starts, len(rows)))
        pairs = zip(rows[starts].tolist(), lengths.tolist(), strict=True)
        return pa.concat_tables([table.slice(first, length) for first, length in pairs])

    def whole(self, parts: Iterable[pa.Table], schema: pa.Schema) -> pa.Table:
        """Return tables of one schema, read one at a time, as one in their order, mapped.

        Each column is one array, if it is below the limit.
        """
        pending, first, n_bytes = iter(parts), [schema.empty_table()], 0
        for part in pending:
            first.append(part)
            n_bytes += part.nbytes
            if n_bytes > _SMALL_BYTES:
                break
        else:
            return pa.concat_tables(first).combine_chunks()
        columns = [_Column(self._folder, field.type, self._piece_bytes) for field in schema]
        with self._errors():
            for part in chain(first, pending):
                for column, given in zip(columns, part.columns, strict=True):
                    for block in given.chunks:
                        column.append(block)
            arrays = [column.finish() for column in columns]
        pa.default_memory_pool().release_unused()
        return pa.Table.from_arrays(arrays, schema=schema)

    def rows(self, table: pa.Table, rows: IntVector) -> pa.Table:
        """Return rows of a table in some order, mapped; each column one array, if it is below the limit."""
        if table.nbytes <= _SMALL_BYTES:
            return table.take(pa.array(rows)).combine_chunks()
        columns = []
        with self._errors():
            for column in table.columns:
                written = _Column(self._folder, column.type, self._piece_bytes)
                for block in _blocks(column, rows, min(_BLOCK_BYTES, self._piece_bytes)):
                    written.append(block)
                columns.append(written.finish())
        pa.default_memory_pool().release_unused()
        return pa.Table.from_arrays(columns, schema=table.schema)

    def matrix(self, blocks: Iterable[FloatMatrix], dim: int) -> FloatMatrix:
        """Return matrices of (any, dim), read one at a time, stacked into one (n, dim), mapped."""
        with self._errors():
            path = self._folder / f"{uuid.uuid4().hex}.f4"
            n_rows = 0
            with path.open("wb") as file:  # not a writable map: there a full disk is a signal instead of an error
                for block in blocks:
                    file.write(np.ascontiguousarray(block, "<f4").data)
                    n_rows += len(block)
            mapped = np.memmap(path, "<f4", "r", shape=(n_rows, dim)) if n_rows else np.zeros((0, dim), np.float32)
            path.unlink()  # the pages stay while they are mapped
        pa.default_memory_pool().release_unused()
        plain: FloatMatrix = mapped.view(np.ndarray)
        return plain

    def ordered(self, matrix: FloatMatrix, rows: IntVector) -> FloatMatrix:
        """Return the rows (len(rows), dim) of a matrix, mapped; the matrix itself for all its rows in their order."""
        if len(rows) == len(matrix) and np.array_equal(rows, np.arange(len(rows))):
            return matrix
        step = max(_BLOCK_BYTES // (matrix.itemsize * max(matrix.shape[1], 1)), 1)
        blocks = (matrix[rows[first : first + step]] for first in range(0, len(rows), step))
        return self.matrix(blocks, matrix.shape[1])

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise _unwritable(self._folder, error) from error


@contextmanager
def spill_file() -> Iterator[SpillFile]:
    """Yield a temporary folder, which is removed when the block ends, after those of processes that were killed.

    Raises:
        StoreError: it cannot be created.
    """
    try:
        _remove_abandoned(Path(tempfile.gettempdir()))
        folder = tempfile.TemporaryDirectory(prefix=_PREFIX, ignore_cleanup_errors=True)
        created = Path(folder.name) / _NEW_LOCK
        lock = lock_file(created, create=True)
        created.rename(created.with_name(_LOCK))  # held before others look for it, or they would remove the folder
    except OSError as error:
        raise _unwritable(Path(tempfile.gettempdir()), error) from error
    with folder as path:
        try:
            yield SpillFile(Path(path))
        finally:
            if lock is not None:
                lock.release()


def _remove_abandoned(parent: Path) -> None:
    """Remove the folders whose lock no process holds. A folder without the file of its lock is being created."""
    for folder in parent.glob(f"{_PREFIX}*"):
        with suppress(OSError):
            if (lock := lock_file(folder / _LOCK, create=False)) is not None:
                shutil.rmtree(folder, ignore_errors=True)
                lock.release()


def _unwritable(folder: Path, error: OSError) -> StoreError:
    full = error.errno == errno.ENOSPC or "No space left" in str(error)
    reason = "the disk is full" if full else error.strerror or str(error)
    return StoreError(
        f"the temporary folder {folder} cannot be used: {reason}; let TMPDIR name a folder with room for the text that "
        "is read and for twice the snapshot, and run again, finished work is kept"
    )


class _Buffer:
    """Bytes that are written piece by piece: few stay in memory, more are mapped from a file."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path: Path | None = None
        self._waiting: list[bytes] = []
        self._n_waiting = 0

    def write(self, values: NDArray[Any]) -> None:
        """Append the bytes of contiguous values."""
        if values.nbytes > _MEMORY_BYTES:
            self._flush(values.data)
            return
        self._waiting.append(values.tobytes())
        self._n_waiting += values.nbytes
        if self._n_waiting > _MEMORY_BYTES:
            self._flush()

    def finish(self) -> pa.Buffer:
        """Return all bytes. A file is removed; its pages stay while they are mapped."""
        if self._path is None:
            return pa.py_buffer(b"".join(self._waiting))
        self._flush()
        with pa.memory_map(str(self._path)) as source:
            buffer = source.read_buffer()
        self._path.unlink()
        return buffer

    def _flush(self, values: memoryview | bytes = b"") -> None:
        self._path = self._path or self._folder / f"{uuid.uuid4().hex}.buffer"
        with self._path.open("ab") as file:
            file.write(b"".join(self._waiting))
            file.write(values)
        self._waiting, self._n_waiting = [], 0


class _Array:
    """An Arrow array that is written block by block: the buffers that the Arrow columnar format has for its type."""

    def __init__(self, folder: Path, kind: pa.DataType) -> None:
        self._kind = kind
        self._valid: list[int | NDArray[np.bool_]] = []  # each block's length where no value is null, else its flags
        self._values, self._data = _Buffer(folder), _Buffer(folder)
        self._children = [_Array(folder, kind.field(at).type) for at in range(kind.num_fields)]
        self._end = 0  # offset where the next block begins
        if self._has_offsets:
            self._values.write(np.zeros(1, self._offset_type))

    @property
    def _has_offsets(self) -> bool:
        kind = self._kind
        is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_binary(kind)
        return bool(is_text or pa.types.is_list(kind))

    @property
    def _offset_type(self) -> type[np.signedinteger[Any]]:
        return np.int64 if pa.types.is_large_string(self._kind) else np.int32

    def append(self, block: pa.Array) -> None:
        """Append an array of the type."""
        n_rows, kind = len(block), self._kind
        self._valid.append(n_rows if not block.null_count else block.is_valid().to_numpy(zero_copy_only=False))
        if pa.types.is_struct(kind):
            for at, child in enumerate(self._children):
                child.append(block.field(at))
        elif pa.types.is_boolean(kind):
            self._values.write(block.fill_null(False).to_numpy(zero_copy_only=False))
        elif not n_rows:
            return
        elif self._has_offsets:
            buffers = block.buffers()
            offsets = np.frombuffer(buffers[1], self._offset_type)[block.offset : block.offset + n_rows + 1]
            first, end = int(offsets[0]), int(offsets[-1])
            self._values.write(offsets[1:] + self._offset_type(self._end - first))
            self._end += end - first
            if self._children:
                self._children[0].append(block.values.slice(first, end - first))
            elif end > first:
                self._data.write(np.frombuffer(buffers[2], np.uint8)[first:end])
        else:
            width = kind.bit_width // 8
            values = np.frombuffer(block.buffers()[1], np.uint8)
            self._values.write(values[block.offset * width : (block.offset + n_rows) * width])

    def finish(self) -> pa.Array:
        """Return all blocks as one array."""
        kind = self._kind
        n_rows = sum(own if isinstance(own, int) else len(own) for own in self._valid)
        valid = None
        if not all(isinstance(own, int) for own in self._valid):
            valid = _bits(np.concatenate([np.ones(own, bool) if isinstance(own, int) else own for own in self._valid]))
        children = [child.finish() for child in self._children]
        buffers = [valid]
        if pa.types.is_boolean(kind):
            buffers.append(_bits(np.frombuffer(self._values.finish(), np.bool_)))
        elif not pa.types.is_struct(kind):
            buffers.append(self._values.finish())
        if self._has_offsets and not children:
            buffers.append(self._data.finish())
        return pa.Array.from_buffers(kind, n_rows, buffers, children=children or None)


def _bits(values: NDArray[np.bool_]) -> pa.Buffer:
    return pa.py_buffer(np.packbits(values, bitorder="little").tobytes())


class _Column:
    """A column that is written block by block, of one array or of several that stay below a limit."""

    def __init__(self, folder: Path, kind: pa.DataType, piece_bytes: int) -> None:
        self._folder = folder
        self._kind = kind
        self._piece_bytes = piece_bytes
        self._array: _Array | None = None
        self._n_bytes = 0
        self._finished: list[pa.Array] = []

    def append(self, block: pa.Array) -> None:
        """Append an array, whole, to the last array or as the next one."""
        if not len(block):
            return
        if self._n_bytes + block.nbytes > self._piece_bytes:
            self._close()
        self._array = self._array or _Array(self._folder, self._kind)
        self._array.append(block)
        self._n_bytes += block.nbytes

    def finish(self) -> pa.ChunkedArray:
        """Return all blocks as a column."""
        self._close()
        return pa.chunked_array(self._finished, self._kind)

    def _close(self) -> None:
        if self._array is not None:
            self._finished.append(self._array.finish())
        self._array, self._n_bytes = None, 0


def _is_sorted(table: pa.Table, by: Sequence[str]) -> bool:
    if table.num_rows < 2:
        return True
    for first in range(0, table.num_rows - 1, _BLOCK_ROWS):
        piece = table.select(by).slice(first, _BLOCK_ROWS + 1).combine_chunks()
        before, after = piece.slice(0, piece.num_rows - 1), piece.slice(1)
        if any(column.null_count for column in piece.columns):
            return False
        in_order = np.ones(before.num_rows, np.bool_)  # by the keys from the last to the first
        for name in reversed(by):
            less, equal = (compare(before[name], after[name]).to_numpy() for compare in (pc.less, pc.equal))
            in_order = less | (equal & in_order)
        if not in_order.all():
            return False
    return True


def _blocks(column: pa.ChunkedArray, rows: IntVector, n_bytes: int) -> Iterator[pa.Array]:
    """Yield rows of a column in some order, about `n_bytes` at a time; long runs of rows without a copy."""
    step = min(max(n_bytes * len(column) // max(column.nbytes, 1), 1), _TAKEN_ROWS)
    starts = np.cumsum([0, *map(len, column.chunks)])[:-1]
    for first in range(0, len(rows), step):
        some = rows[first : first + step]
        chunks = np.searchsorted(starts, some, side="right") - 1
        places = some - starts[chunks]
        begins = np.flatnonzero((np.diff(places, prepend=-2) != 1) | (np.diff(chunks, prepend=-1) != 0))
        if len(begins) * _MIN_SLICE_ROWS <= len(some):
            lengths = np.diff(np.append(begins, len(some)))
            for chunk, place, length in zip(chunks[begins], places[begins], lengths, strict=True):
                yield column.chunk(int(chunk)).slice(place, length)
            continue
        together = np.argsort(chunks, kind="stable")
        used, bounds = np.unique(chunks[together], return_index=True)
        offsets = np.split(places[together], bounds[1:])
        taken = [column.chunk(int(chunk)).take(pa.array(at)) for chunk, at in zip(used, offsets, strict=True)]
        if len(taken) == 1:
            yield taken[0]
            continue
        back = np.empty(len(some), np.int64)
        back[together] = np.arange(len(some))
        yield pa.concat_arrays(taken).take(pa.array(back))
