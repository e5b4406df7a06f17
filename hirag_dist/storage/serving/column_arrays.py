"""Columns of a snapshot's tables as arrays of numbers, a batch at a time, for serving files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hirag_dist.core.id_rows import IdRows
from hirag_dist.types import IntVector

Batches = Callable[[str, Sequence[str]], Iterator[pa.RecordBatch]]
Create = Callable[[str], AbstractContextManager[BinaryIO]]
Save = Callable[[str, NDArray[Any]], None]
Lists = tuple[IntVector, NDArray[np.int32]]  # CSR (indptr, rows)


def rows_in_lists(batches: Iterable[pa.RecordBatch], order: pa.Array) -> Lists:
    """Return CSR (indptr, rows) of a column of lists of ids, −1 for an unknown one."""
    sizes, rows = [np.zeros(0, np.int64)], [np.zeros(0, np.int32)]
    known = IdRows(order)
    for batch in batches:
        lists = batch.column(0)
        sizes.append(lists.value_lengths().to_numpy(zero_copy_only=False).astype(np.int64))
        rows.append(known.rows(lists.flatten()).astype(np.int32))
    return np.concatenate([[0], np.cumsum(np.concatenate(sizes))]).astype(np.int64), np.concatenate(rows)


def known_rows(indptr: IntVector, rows: NDArray[np.int32]) -> Lists:
    """Return the same CSR without the unknown ones."""
    known = np.concatenate([[0], np.cumsum(rows >= 0)]).astype(np.int64)
    return known[indptr], rows[rows >= 0]


def rows_of_column(batches: Batches, table: str, name: str, order: pa.Array | pa.ChunkedArray) -> NDArray[np.int32]:
    """Return the rows of the ids in one column of a table, −1 for an unknown one."""
    known = IdRows(order)
    rows = [known.rows(batch.column(0)).astype(np.int32) for batch in batches(table, [name])]
    return np.concatenate([np.zeros(0, np.int32), *rows])


def numbers(batches: Batches, table: str, name: str, kind: Any) -> NDArray[Any]:
    """Return one column of a table as numbers."""
    parts = [batch.column(0).to_numpy(zero_copy_only=False) for batch in batches(table, [name])]
    return np.concatenate([np.zeros(0, kind), *parts]).astype(kind, copy=False)


def ids_of(batches: Batches, table: str, name: str) -> pa.Array:
    """Return one column of a table whose values are ids, or other short texts."""
    return joined([batch.column(0) for batch in batches(table, [name])], pa.string())


def joined(parts: Sequence[pa.Array], kind: pa.DataType) -> pa.Array:
    """Return arrays as one; an empty array of this type for none."""
    return pa.concat_arrays(parts) if parts else pa.array([], kind)
