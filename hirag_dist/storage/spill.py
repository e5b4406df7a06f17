"""Tables and matrices that lie in a temporary folder and are mapped, while a snapshot is made of them.

Making one takes every table whole, in order of its ids. On disk and mapped they are pages that the system may drop; in
memory are a piece of one column, twice, and the columns that a table is sorted by.
"""

from __future__ import annotations

import errno
import tempfile
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hirag_dist.errors import StoreError
from hirag_dist.types import FloatMatrix, IntVector

_PIECE_BYTES = 1 << 30  # of a column, in one array: less than what 32-bit offsets reach
_BLOCK_BYTES = 64 << 20  # that are put in order at a time
_BLOCK_ROWS = 65_536


class SpillFile:
    """A temporary folder; what was mapped of it stays readable for as long as it is used, on Linux and macOS."""

    def __init__(self, folder: Path, piece_bytes: int = _PIECE_BYTES) -> None:
        """Use a folder that is there, and that somebody else removes (`spill_file`).

        Args:
            piece_bytes: that a column may have to be one array; a larger one is several.
        """
        self._folder = folder
        self._piece_bytes = piece_bytes

    def table(self, parts: Iterable[pa.Table], schema: pa.Schema, by: Sequence[str] = ()) -> pa.Table:
        """Return tables as one, mapped, in the order of some columns; rows that are equal there keep theirs.

        Args:
            parts: with this schema; read one at a time.
            by: columns to sort by, ascending; none: the order of the parts.

        Raises:
            StoreError: the temporary folder is full or cannot be written to.
        """
        with self._errors():
            arrived = self._arrived(parts, schema)
            order = _order(arrived, by)
            columns = [self._column(arrived.column(at), order, field) for at, field in enumerate(schema)]
        pa.default_memory_pool().release_unused()
        return pa.Table.from_arrays(columns, schema=schema)

    def matrix(self, blocks: Iterable[FloatMatrix], dim: int) -> FloatMatrix:
        """Return matrices below each other as one (n, dim), mapped.

        Args:
            blocks: (any, dim) each; read one at a time.

        Raises:
            StoreError: as `table`.
        """
        with self._errors():
            path = self._folder / f"{uuid.uuid4().hex}.f4"
            n_rows = 0
            with path.open("wb") as file:  # written, not mapped: a full disk is an error then, and no signal
                for block in blocks:
                    file.write(np.ascontiguousarray(block, "<f4").data)
                    n_rows += len(block)
            mapped = np.memmap(path, "<f4", "r", shape=(n_rows, dim)) if n_rows else np.zeros((0, dim), np.float32)
            path.unlink()  # the pages stay until nobody has them mapped
        pa.default_memory_pool().release_unused()
        found: FloatMatrix = mapped.view(np.ndarray)
        return found

    def ordered(self, matrix: FloatMatrix, rows: IntVector) -> FloatMatrix:
        """Return the rows (len(rows), dim) of a matrix, mapped.

        Raises:
            StoreError: as `table`.
        """
        step = max(_BLOCK_BYTES // (matrix.itemsize * max(matrix.shape[1], 1)), 1)
        blocks = (matrix[rows[first : first + step]] for first in range(0, len(rows), step))
        return self.matrix(blocks, matrix.shape[1])

    def _arrived(self, parts: Iterable[pa.Table], schema: pa.Schema) -> pa.Table:
        path = self._folder / f"{uuid.uuid4().hex}.arrow"
        with pa.ipc.new_file(str(path), schema) as writer:
            for part in parts:
                writer.write_table(part)
        return _mapped(path)

    def _column(self, column: pa.ChunkedArray, order: IntVector | None, field: pa.Field) -> pa.ChunkedArray:
        path = self._folder / f"{uuid.uuid4().hex}.arrow"
        schema = pa.schema([field])
        with pa.ipc.new_file(str(path), schema) as writer:
            for piece in _pieces(_blocks(column, order, min(_BLOCK_BYTES, self._piece_bytes)), self._piece_bytes):
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
    """Have a temporary folder until the block ends, however it ends.

    Raises:
        StoreError: there is none.
    """
    try:
        folder = tempfile.TemporaryDirectory(prefix="hirag-publish-", ignore_cleanup_errors=True)
    except OSError as error:
        raise _unwritable(Path(tempfile.gettempdir()), error) from error
    with folder as path:
        yield SpillFile(Path(path))


def _unwritable(folder: Path, error: OSError) -> StoreError:
    full = error.errno == errno.ENOSPC or "No space left" in str(error)
    said = "the disk is full" if full else error.strerror or str(error)
    return StoreError(
        f"cannot publish: the temporary folder {folder} cannot be used: {said}; let TMPDIR name a folder with room for "
        "twice the snapshot and run again, finished work is kept"
    )


def _mapped(path: Path) -> pa.Table:
    with pa.memory_map(str(path)) as source:
        table = pa.ipc.open_file(source).read_all()
    path.unlink()  # the pages stay until nobody has them mapped
    return table


def _order(table: pa.Table, by: Sequence[str]) -> IntVector | None:
    """Return the rows in order; None where they are."""
    if not by:
        return None
    keys = table.select(by).combine_chunks()
    rows: IntVector = pc.sort_indices(keys, [(name, "ascending") for name in by]).to_numpy().astype(np.int64)
    return rows


def _blocks(column: pa.ChunkedArray, order: IntVector | None, n_bytes: int) -> Iterator[pa.Array]:
    """Yield a column's rows in order, about so many bytes at a time."""
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
        places = np.split((rows - starts[chunks])[together], bounds[1:])
        found = [column.chunk(int(chunk)).take(pa.array(own)) for chunk, own in zip(used, places, strict=True)]
        back = np.empty(len(rows), np.int64)
        back[together] = np.arange(len(rows))
        yield pa.concat_arrays(found).take(pa.array(back))


def _pieces(blocks: Iterable[pa.Array], n_bytes: int) -> Iterator[pa.Array]:
    """Yield arrays joined, each at most `n_bytes` where no single one is larger."""
    waiting: list[pa.Array] = []
    held = 0
    for block in blocks:
        if waiting and held + block.nbytes > n_bytes:
            yield pa.concat_arrays(waiting)
            waiting, held = [], 0
        waiting.append(block)
        held += block.nbytes
    if waiting:
        yield pa.concat_arrays(waiting)
