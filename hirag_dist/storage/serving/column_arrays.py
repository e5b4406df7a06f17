"""Columns of a snapshot's tables as arrays of numbers, a batch at a time, for serving files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hirag_dist.types import IntVector

Batches = Callable[[str, Sequence[str]], Iterator[pa.RecordBatch]]
Create = Callable[[str], AbstractContextManager[BinaryIO]]
Save = Callable[[str, NDArray[Any]], None]
_BATCH_IDS = 1 << 22  # in a look-up, each of which hashes all ids of a table


class RowLookup:
    """Row numbers of ids, looked up in large batches."""

    def __init__(self, order: pa.Array) -> None:
        """Prepare to look up ids among those of a table, in its order."""
        self._order = order
        self._waiting: list[pa.Array] = []
        self._n_waiting = 0
        self._rows: list[NDArray[np.int32]] = [np.zeros(0, np.int32)]

    def add(self, ids: pa.Array) -> None:
        """Add ids to look up."""
        self._waiting.append(ids)
        self._n_waiting += len(ids)
        if self._n_waiting >= _BATCH_IDS:
            self._look_up()

    def rows(self) -> NDArray[np.int32]:
        """Return the rows of all ids added, −1 for an unknown one."""
        self._look_up()
        return np.concatenate(self._rows)

    def _look_up(self) -> None:
        if not self._waiting:  # avoid hashing all ids for nothing
            return
        rows = pc.index_in(joined(self._waiting, pa.string()), value_set=self._order)
        self._rows.append(rows.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int32))
        self._waiting, self._n_waiting = [], 0


Lists = tuple[IntVector, NDArray[np.int32]]  # CSR (indptr, rows)


def rows_in_lists(batches: Iterable[pa.RecordBatch], order: pa.Array) -> Lists:
    """Return CSR (indptr, rows) of a column of lists of ids, −1 for an unknown one."""
    sizes = [np.zeros(0, np.int64)]
    rows = RowLookup(order)
    for batch in batches:
        lists = batch.column(0)
        sizes.append(lists.value_lengths().to_numpy(zero_copy_only=False).astype(np.int64))
        rows.add(lists.flatten())
    return np.concatenate([[0], np.cumsum(np.concatenate(sizes))]).astype(np.int64), rows.rows()


def known_rows(indptr: IntVector, rows: NDArray[np.int32]) -> Lists:
    """Return the same CSR without the unknown ones."""
    known = np.concatenate([[0], np.cumsum(rows >= 0)]).astype(np.int64)
    return known[indptr], rows[rows >= 0]


def rows_of_column(batches: Batches, table: str, name: str, order: pa.Array) -> NDArray[np.int32]:
    """Return the rows of the ids in one column of a table, −1 for an unknown one."""
    rows = RowLookup(order)
    for batch in batches(table, [name]):
        rows.add(batch.column(0))
    return rows.rows()


def numbers(batches: Batches, table: str, name: str, kind: Any) -> NDArray[Any]:
    """Return one column of a table as numbers."""
    parts = [batch.column(0).to_numpy(zero_copy_only=False) for batch in batches(table, [name])]
    return np.concatenate([np.zeros(0, kind), *parts]).astype(kind, copy=False)


def ids_of(batches: Batches, table: str, name: str) -> pa.Array:
    """Return one column of ids of a table."""
    return joined([batch.column(0) for batch in batches(table, [name])], pa.string())


def joined(parts: Sequence[pa.Array], kind: pa.DataType) -> pa.Array:
    """Return arrays as one; an empty array of this type for none."""
    return pa.concat_arrays(parts) if parts else pa.array([], kind)
