"""Parquet files of work folders: written with checksums of their pages, read in parts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

_GROUP_BYTES = 4 << 20  # of a row group, so that a task reads little more than the rows it needs
_MIN_GROUP_ROWS = 64
_PIECE_BYTES = 4 << 20  # uncompressed size of a piece, about
_PIECE_ROWS = 8_192  # maximum rows of a piece: malloc keeps its small blocks, and the system clears larger ones


def write_parquet(table: pa.Table, file: Any) -> None:
    """Write a table in small row groups, with a checksum of each page."""
    rows = max(table.num_rows * _GROUP_BYTES // max(table.nbytes, 1), _MIN_GROUP_ROWS)
    pq.write_table(table, file, compression="zstd", row_group_size=rows, write_page_checksum=True)


def open_parquet(path: str, filesystem: fs.FileSystem) -> pq.ParquetFile:
    """Open a file; pages that have checksums are compared with them."""
    return pq.ParquetFile(path, filesystem=filesystem, page_checksum_verification=True)


def table_of_file(file: pq.ParquetFile, columns: Sequence[str] | None) -> pa.Table:
    """Return a file, or some of its columns in the order given; `pq.read_table` would import pandas.

    One row group is read on one thread: starting others takes longer than decoding its few megabytes.

    Raises:
        pa.ArrowKeyError: it lacks a column.
    """
    use_threads = file.num_row_groups > 1
    if columns is None:
        return file.read(use_threads=use_threads)
    if missing := sorted({*columns} - {*file.schema_arrow.names}):
        raise pa.ArrowKeyError(f"it has no column {', '.join(missing)}")
    return file.read(list(columns), use_threads=use_threads).select(list(columns))


def rows_of_file(file: pq.ParquetFile, start: int, stop: int, columns: Sequence[str] | None) -> pa.Table:
    """Return rows [start, stop), reading only the row groups that contain them, on one thread."""
    groups: list[int] = []
    first = n_passed = 0
    for number in range(file.num_row_groups):
        n_rows = file.metadata.row_group(number).num_rows
        if n_passed < stop and n_passed + n_rows > start:
            if not groups:
                first = n_passed
            groups.append(number)
        n_passed += n_rows
    return file.read_row_groups(groups, columns, use_threads=False).slice(start - first, stop - start)


def pieces_of_file(file: pq.ParquetFile, columns: Sequence[str] | None) -> Iterator[pa.Table]:
    """Yield a file, or some of its columns, in small pieces, one at a time in memory; an empty file as one piece.

    Raises:
        pa.ArrowKeyError: it lacks a column.
    """
    if missing := sorted({*(columns or ())} - {*file.schema_arrow.names}):
        raise pa.ArrowKeyError(f"it has no column {', '.join(missing)}")
    n_bytes = sum(file.metadata.row_group(at).total_byte_size for at in range(file.num_row_groups))
    rows = max(min(_PIECE_BYTES * file.metadata.num_rows // max(n_bytes, 1), _PIECE_ROWS), 1)
    is_empty = True
    for batch in file.iter_batches(rows, columns=columns, use_threads=False):
        is_empty = False
        yield pa.Table.from_batches([batch if columns is None else batch.select(columns)])
    if is_empty:
        schema = file.schema_arrow
        yield (schema if columns is None else pa.schema([schema.field(name) for name in columns])).empty_table()
