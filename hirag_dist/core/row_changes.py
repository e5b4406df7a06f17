"""Sorted tables after a change of some rows, without sorting the others again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hirag_dist.types import IntVector

_MIN_RUN_ROWS = 16  # on average, for rows to be copied run by run


@dataclass(frozen=True, slots=True)
class ChangedRows:
    """A sorted table after a change.

    Attributes:
        origin: (n,) int64 row of each in the table before; −1 for a new one.
    """

    table: pa.Table
    origin: IntVector


def one_array(column: pa.ChunkedArray) -> pa.Array:
    """Return a column as one array, without a copy where it is one: `combine_chunks` would copy it."""
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays([pa.array([], column.type), *column.chunks])


def one_piece(table: pa.Table) -> pa.Table:
    """Return a table, each column one array, without a copy of those that are."""
    return pa.Table.from_arrays([one_array(column) for column in table.columns], schema=table.schema)


def same_values(one: pa.Array, other: pa.Array) -> NDArray[np.bool_]:
    """Return (n,) whether the values of two arrays of one type are equal, row by row; a null equals a null.

    Floating-point numbers are equal where all of their bits are.

    >>> same_values(pa.array([["a"], ["b", "c"]]), pa.array([["a"], ["b"]])).tolist()
    [True, False]
    """
    kind = one.type
    if pa.types.is_floating(kind):
        return same_values(*(each.view(pa.int64() if kind.bit_width == 64 else pa.int32()) for each in (one, other)))
    if not _has_floats(kind) and one.equals(other):
        return np.ones(len(one), np.bool_)
    if pa.types.is_list(kind):
        lengths, others = (
            pc.fill_null(each.value_lengths(), -1).to_numpy(zero_copy_only=False) for each in (one, other)
        )
        same: NDArray[np.bool_] = lengths == others
        rows, counts = pa.array(np.flatnonzero(same)), np.maximum(lengths[same], 0)
        is_other = ~same_values(one.take(rows).flatten(), other.take(rows).flatten())
        same[same] = np.bincount(np.repeat(np.arange(len(counts)), counts)[is_other], minlength=len(counts)) == 0
        return same
    same = pc.equal(one.is_valid(), other.is_valid()).to_numpy(zero_copy_only=False)
    if pa.types.is_struct(kind):
        for pair in zip(one.flatten(), other.flatten(), strict=True):
            same &= same_values(*pair)
    else:
        same &= pc.fill_null(pc.equal(one, other), True).to_numpy(zero_copy_only=False)
    return same


def _has_floats(kind: pa.DataType) -> bool:
    """Return whether values of a type hold floating-point numbers, of which −0 and 0 have other bits."""
    if pa.types.is_list(kind):
        return _has_floats(kind.value_type)
    if pa.types.is_struct(kind):
        return any(_has_floats(field.type) for field in kind)
    return bool(pa.types.is_floating(kind))


def rows_of_table(table: pa.Table, rows: IntVector) -> pa.Table:
    """Return rows of a table as a table in memory, each column one array; long runs of rows are copied at once."""
    starts = np.flatnonzero(np.diff(rows, prepend=-2) != 1)
    if len(starts) * _MIN_RUN_ROWS > len(rows):
        return table.take(pa.array(rows)).combine_chunks()
    lengths = np.diff(np.append(starts, len(rows)))
    pairs = zip(rows[starts].tolist(), lengths.tolist(), strict=True)
    return pa.concat_tables([table.schema.empty_table(), *(table.slice(*pair) for pair in pairs)]).combine_chunks()


def changed_rows(
    before: pa.Table,
    gone: IntVector,
    new: pa.Table,
    by: Sequence[str],
    taken: Callable[[pa.Table, IntVector], pa.Table] = rows_of_table,
) -> ChangedRows:
    """Return a sorted table without some of its rows and with new ones, as a stable sort of the rest would give it.

    Args:
        gone: (n_gone,) int64 rows of `before`, ascending and distinct.
        new: in any order, with the same columns.
        by: columns of the key, ascending.
        taken: returns rows of a table, in memory or mapped from a file.
    """
    new = new.sort_by([(name, "ascending") for name in by])
    places = _places(before.select(by), new.select(by))
    kept = np.delete(np.arange(before.num_rows), gone)
    origin: IntVector = np.insert(kept, places - np.searchsorted(gone, places), -1).astype(np.int64)
    rows = origin.copy()
    rows[origin < 0] = before.num_rows + np.arange(new.num_rows)
    return ChangedRows(taken(pa.concat_tables([before, new]), rows), origin)


def origin_of_same(now: pa.Table, before: pa.Table, origin: IntVector, names: Sequence[str]) -> IntVector:
    """Return (n,) the row of each row in the table before; −1 for a new one, and where a value has changed.

    Args:
        origin: (n,) int64 row of each; −1 for a new one.
        names: columns whose values may have changed.

    >>> now, before = pa.table({"share": [0.5, 0.0, 0.25]}), pa.table({"share": [0.5, 0.125]})
    >>> origin_of_same(now, before, np.array([0, -1, 1]), ["share"]).tolist()
    [0, -1, -1]
    """
    kept = np.flatnonzero(origin >= 0)
    one, other = now.select(names).take(pa.array(kept)), before.select(names).take(pa.array(origin[kept]))
    same = np.ones(len(kept), np.bool_)
    for name in names:
        same &= same_values(one_array(one[name]), one_array(other[name]))
    found = np.full(len(origin), -1, np.int64)
    found[kept[same]] = origin[kept[same]]
    return found


def rows_with(column: pa.ChunkedArray, values: pa.Array) -> IntVector:
    """Return the rows that have one of some values, ascending."""
    found: IntVector = np.flatnonzero(pc.is_in(column, value_set=values).to_numpy(zero_copy_only=False))
    return found


def rows_between(column: pa.ChunkedArray, value: int) -> tuple[int, int]:
    """Return the first row of a value, and the first row after it, in a sorted column of integers."""
    first, last = np.searchsorted(column.to_numpy(), [value, value + 1])
    return int(first), int(last)


def _places(before: pa.Table, new: pa.Table) -> IntVector:
    """Return for each new key the number of sorted keys that are not greater."""
    low, high = np.zeros(new.num_rows, np.int64), np.full(new.num_rows, before.num_rows)
    while (searched := low < high).any():
        middle = (low + high) // 2
        found = before.take(pa.array(np.minimum(middle, before.num_rows - 1)))
        not_greater = ~_less(new, found)
        low = np.where(searched & not_greater, middle + 1, low)
        high = np.where(searched & ~not_greater, middle, high)
    return low


def _less(one: pa.Table, other: pa.Table) -> NDArray[np.bool_]:
    """Return (n_rows,) whether each key of a table is less than that of the other in the same row."""
    found = np.zeros(one.num_rows, np.bool_)
    for name in reversed(one.column_names):
        less, equal = (compare(one[name], other[name]).to_numpy() for compare in (pc.less, pc.equal))
        found = less | (equal & found)
    return found
