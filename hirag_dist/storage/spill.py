"""Tables and matrices spilled to a temporary folder and memory-mapped: what is read, and what a snapshot is made from.

A snapshot takes every table whole, in the order of its ids. Spilled tables are pages that the system may drop; in
memory are two copies of a piece of one column, and the columns that a table is sorted by. Tables and columns of a few
kilobytes stay in memory: a small build has hundreds, and a file for each would take longer than its content.

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

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

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
_BLOCK_BYTES = 64 << 20  # sorted at a time
_BLOCK_ROWS = 65_536
_SMALL_BYTES = 1 << 16  # of a table or a column that is not written to a file
_MIN_SLICE_ROWS = 256  # on average, for a table to stay in slices


class SpillFile:
    """A temporary folder. On Linux and macOS its mapped data stays readable after the files are removed."""

    def __init__(self, folder: Path, piece_bytes: int = _PIECE_BYTES) -> None:
        """Use an existing folder, which `spill_file` removes.

        Args:
            piece_bytes: limit of one array of a column; a larger column becomes several arrays.
        """
        self._folder = folder
        self._piece_bytes = piece_bytes

    def table(self, parts: Iterable[pa.Table], schema: pa.Schema, by: Sequence[str] = ()) -> pa.Table:
        """Return tables as one, mapped, stably sorted by some columns.

        Args:
            parts: tables with this schema; read one at a time.
            by: columns to sort by, ascending; none: the order of the parts.

        Raises:
            StoreError: the temporary folder is full or cannot be written to.
        """
        with self._errors():
            spilled = self._spilled(parts, schema)
            order = _order(spilled, by)
            slices = _slices(spilled, order)
            if slices is None:
                columns = [self._column(spilled.column(at), order, field) for at, field in enumerate(schema)]
        _release_unused(spilled)
        return slices if slices is not None else pa.Table.from_arrays(columns, schema=schema)

    def whole(self, parts: Iterable[pa.Table], schema: pa.Schema) -> pa.Table:
        """Return tables as one, mapped, in the order of the parts; each column one array, if it is below the limit.

        Args:
            parts: tables with this schema; read one at a time.

        Raises:
            StoreError: as `table`.
        """
        with self._errors():
            spilled = self._spilled(parts, schema)
        return spilled if all(column.num_chunks <= 1 for column in spilled.columns) else self.rows(spilled, None)

    def rows(self, table: pa.Table, rows: IntVector | None) -> pa.Table:
        """Return rows of a table in some order, mapped; each column one array, if it is below the limit.

        Args:
            rows: (any,) int64; None: all rows in their order.

        Raises:
            StoreError: as `table`.
        """
        with self._errors():
            columns = [self._column(table.column(at), rows, field) for at, field in enumerate(table.schema)]
        _release_unused(table)
        return pa.Table.from_arrays(columns, schema=table.schema)

    def matrix(self, blocks: Iterable[FloatMatrix], dim: int) -> FloatMatrix:
        """Return matrices stacked into one (n, dim), mapped.

        Args:
            blocks: (any, dim) each; read one at a time.

        Raises:
            StoreError: as `table`.
        """
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
        """Return the rows (len(rows), dim) of a matrix, mapped; the matrix itself for all its rows in their order.

        Raises:
            StoreError: as `table`.
        """
        if len(rows) == len(matrix) and np.array_equal(rows, np.arange(len(rows))):
            return matrix
        step = max(_BLOCK_BYTES // (matrix.itemsize * max(matrix.shape[1], 1)), 1)
        blocks = (matrix[rows[first : first + step]] for first in range(0, len(rows), step))
        return self.matrix(blocks, matrix.shape[1])

    def _spilled(self, parts: Iterable[pa.Table], schema: pa.Schema) -> pa.Table:
        pending, small, n_bytes = iter(parts), [], 0
        for part in pending:
            small.append(part)
            n_bytes += part.nbytes
            if n_bytes > _SMALL_BYTES:
                break
        else:
            return pa.concat_tables(small) if small else schema.empty_table()
        path = self._folder / f"{uuid.uuid4().hex}.arrow"
        with pa.ipc.new_file(str(path), schema) as writer:
            for part in chain(small, pending):
                writer.write_table(part)
        return _mapped(path)

    def _column(self, column: pa.ChunkedArray, order: IntVector | None, field: pa.Field) -> pa.ChunkedArray:
        pieces = _pieces(_blocks(column, order, min(_BLOCK_BYTES, self._piece_bytes)), self._piece_bytes)
        if column.nbytes <= _SMALL_BYTES:
            return pa.chunked_array(list(pieces), field.type)
        path = self._folder / f"{uuid.uuid4().hex}.arrow"
        schema = pa.schema([field])
        with pa.ipc.new_file(str(path), schema) as writer:
            for piece in pieces:
                writer.write_batch(pa.record_batch([piece], schema=schema))
                pa.default_memory_pool().release_unused()
        return _mapped(path).column(0)

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


def _release_unused(table: pa.Table) -> None:
    if table.nbytes > _SMALL_BYTES:
        pa.default_memory_pool().release_unused()


def _mapped(path: Path) -> pa.Table:
    with pa.memory_map(str(path)) as source:
        table = pa.ipc.open_file(source).read_all()
    path.unlink()  # the pages stay while they are mapped
    return table


def _order(table: pa.Table, by: Sequence[str]) -> IntVector | None:
    """Return the rows in sorted order; None where they are in order, or no order is asked."""
    if not by or _is_sorted(table, by):
        return None
    keys = table.select(by).combine_chunks()
    rows: IntVector = pc.sort_indices(keys, [(name, "ascending") for name in by]).to_numpy().astype(np.int64)
    return rows


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


def _slices(table: pa.Table, order: IntVector | None) -> pa.Table | None:
    """Return the rows in order as slices of the table, which copy nothing; None where the slices would be short.

    So are the rows of an earlier index, in their order, with some rows between them.
    """
    if not table.num_rows:
        return None
    starts = np.zeros(1, np.int64) if order is None else np.flatnonzero(np.diff(order, prepend=-2) != 1)
    n_chunks = max(column.num_chunks for column in table.columns)
    if (len(starts) + n_chunks) * _MIN_SLICE_ROWS > table.num_rows:
        return None
    if order is None:
        return table
    lengths = np.diff(np.append(starts, len(order)))
    pairs = zip(order[starts].tolist(), lengths.tolist(), strict=True)
    return pa.concat_tables([table.slice(first, length) for first, length in pairs])


def _blocks(column: pa.ChunkedArray, order: IntVector | None, n_bytes: int) -> Iterator[pa.Array]:
    """Yield a column's rows in order, about `n_bytes` at a time."""
    if order is None:
        yield from column.chunks
        return
    step = min(max(n_bytes * len(column) // max(column.nbytes, 1), 1), _BLOCK_ROWS)
    starts = np.cumsum([0, *map(len, column.chunks)])[:-1]
    for first in range(0, len(order), step):
        rows = order[first : first + step]
        chunks = np.searchsorted(starts, rows, side="right") - 1
        together = np.argsort(chunks, kind="stable")
        used, bounds = np.unique(chunks[together], return_index=True)
        offsets = np.split((rows - starts[chunks])[together], bounds[1:])
        taken = [column.chunk(int(chunk)).take(pa.array(at)) for chunk, at in zip(used, offsets, strict=True)]
        back = np.empty(len(rows), np.int64)
        back[together] = np.arange(len(rows))
        yield pa.concat_arrays(taken).take(pa.array(back))


def _pieces(blocks: Iterable[pa.Array], n_bytes: int) -> Iterator[pa.Array]:
    """Yield arrays joined, each at most `n_bytes` where no single one is larger."""
    waiting: list[pa.Array] = []
    waiting_bytes = 0
    for block in blocks:
        if waiting and waiting_bytes + block.nbytes > n_bytes:
            yield pa.concat_arrays(waiting)
            waiting, waiting_bytes = [], 0
        waiting.append(block)
        waiting_bytes += block.nbytes
    if waiting:
        yield pa.concat_arrays(waiting)
