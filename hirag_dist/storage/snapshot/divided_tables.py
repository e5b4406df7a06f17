"""Tables of which most rows lie in the file that a former snapshot wrote.

An update changes few rows of the tables that grow with the corpus. The file of such a table is linked into the new
snapshot as `stored_NAME.parquet`, and two small files are written beside it: `changed_NAME.parquet` has the rows that
it lacks, each with its row number in the table (`table_row`), and `unused_NAME.parquet` the numbers of those of its
rows that are not part of the table. The other rows keep their order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hirag_dist.core.access import Flags
from hirag_dist.core.arrays import compiled, lower_bound, read_only
from hirag_dist.core.row_changes import one_array, one_piece, same_values
from hirag_dist.errors import SnapshotCorrupt
from hirag_dist.storage import layout
from hirag_dist.storage.serving.base_values import is_too_much, max_changed
from hirag_dist.storage.store import Store
from hirag_dist.types import IntVector

Rows = NDArray[np.int32]  # row numbers; −1 for none

KEYS: Final[Mapping[str, Sequence[str]]] = {  # table → columns that tell its rows apart
    "documents": ("document_id",),
    "chunks": ("chunk_id",),
    "entities": ("entity_id",),
    "relations": ("relation_id",),
    "clusters": ("cluster_id", "entity_id"),
    "communities": ("community_id",),
    "reports": ("community_id",),
    layout.PLACES: ("document_id", "start"),
    layout.MENTIONS: ("name_key", "chunk_id", "position"),
    layout.RELATION_MENTIONS: ("source_key", "target_key", "chunk_id", "position"),
    layout.SUMMARIES: ("layer", "cluster_id"),
    layout.REPORT_INPUTS: ("community_id",),
    layout.ENTITY_MENTIONS: ("entity_id", "chunk_id", "position"),
    layout.STATEMENTS: ("relation_id", "chunk_id", "position"),
}
ROW: Final = "table_row"
MIN_BYTES: Final = 1 << 20  # minimum size of the files of a table whose rows are kept
_BATCH_ROWS: Final = 1 << 13  # rows of a table whose keys are hashed at a time
_RUN_ROWS: Final = 1 << 9  # maximum rows that are compared at once
_MIN_RUN_ROWS: Final = 16  # on average, for runs of rows to be compared where they lie
_MAX_AHEAD: Final = 16  # rows on either side among which the next equal key is searched first
_PRIME: Final = np.uint64(0x100000001B3)  # of the hash FNV-1a


def may_be_divided(name: str, n_bytes: int) -> bool:
    """Return whether rows of a table are kept whose files have so many bytes."""
    return name in KEYS and n_bytes >= MIN_BYTES


def table_files(name: str) -> tuple[str, str, str]:
    """Return the names of the three files of a table: stored, changed and unused rows."""
    return f"{layout.STORED}{name}.parquet", f"{layout.CHANGED}{name}.parquet", f"{layout.UNUSED}{name}.parquet"


@dataclass(frozen=True, slots=True)
class TableDivision:
    """How the rows of a table are divided between the file of a former snapshot and a new one; maybe not at all.

    Attributes:
        n_stored: number of rows in the first file.
        unused: (any,) rows of the first file that are not part of the table, ascending.
        changed: (any,) rows of the table that lie in the second file, ascending.
    """

    n_stored: int
    unused: IntVector
    changed: IntVector

    @property
    def n_rows(self) -> int:
        """Number of rows of the table."""
        return self.n_stored - len(self.unused) + len(self.changed)

    def slots(self) -> Rows:
        """Return (n_rows,) the row in the first file, or `n_stored` and more for rows of the second."""
        slots = np.full(self.n_rows, -1, np.int32)
        slots[self.changed] = self.n_stored + np.arange(len(self.changed))
        slots[slots < 0] = np.delete(np.arange(self.n_stored, dtype=np.int32), self.unused)
        return slots

    def stored_rows(self, start: int, stop: int) -> IntVector:
        """Return the rows in the first file of the used ones with numbers [start, stop), in order."""
        numbers = np.arange(start, stop)
        used_before = self.unused - np.arange(len(self.unused))  # of each unused row
        rows: IntVector = numbers + np.searchsorted(used_before, numbers, "right")
        return rows

    def joined(self, stored: Iterable[pa.RecordBatch], changed: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the table in order, a batch of the first file at a time with rows of the second between."""
        is_used, is_changed = np.ones(self.n_stored, np.bool_), np.zeros(self.n_rows, np.bool_)
        is_used[self.unused], is_changed[self.changed] = False, True
        rows = np.flatnonzero(~is_changed)  # of the table, of the used rows of the first file
        n_read = n_used = n_given = n_new = 0
        for batch in stored:
            used = batch.filter(pa.array(is_used[n_read : n_read + batch.num_rows]))
            n_read, n_used = n_read + batch.num_rows, n_used + used.num_rows
            last = int(rows[n_used - 1]) + 1 if used.num_rows else n_given
            yield from _woven(used, changed, n_new, is_changed[n_given:last])
            n_new, n_given = last - n_used, last
        yield changed.slice(n_new)


def _woven(used: pa.RecordBatch, changed: pa.RecordBatch, first: int, is_changed: Flags) -> Iterator[pa.RecordBatch]:
    """Yield rows of two batches in the order that flags give: those of `changed` from a first row on."""
    n_changed = int(is_changed.sum())
    if not n_changed:
        yield used
        return
    order = np.where(is_changed, used.num_rows + np.cumsum(is_changed), np.cumsum(~is_changed)) - 1
    both = pa.Table.from_batches([used, changed.slice(first, n_changed)])
    yield from one_piece(both).take(pa.array(order)).to_batches()


def divided_table(path: str) -> tuple[str, str] | None:
    """Return the folder and the name of the divided table that the path of its changed rows stands for, else None."""
    folder, _, file = path.rpartition("/")
    is_divided = folder.startswith(f"{layout.SNAPSHOTS}/") and file.startswith(layout.CHANGED)
    return (folder, file.removeprefix(layout.CHANGED).removesuffix(".parquet")) if is_divided else None


def read_division(store: Store, folder: str, name: str) -> TableDivision:
    """Return how the rows of a table in the folder of a snapshot are divided.

    Raises:
        SnapshotCorrupt: the files do not belong together.
        StoreError: they cannot be read.
    """
    stored_file, changed_file, unused_file = table_files(name)
    changed, unused = (
        store.read_table(f"{folder}/{file}", [ROW])[ROW].to_numpy() for file in (changed_file, unused_file)
    )
    found = TableDivision(store.count_rows(f"{folder}/{stored_file}"), unused, changed)
    for rows, n_all in ((unused, found.n_stored), (changed, found.n_rows)):
        if len(rows) and (rows[0] < 0 or rows[-1] >= n_all or not (np.diff(rows) > 0).all()):
            raise SnapshotCorrupt(
                f"{store.uri}/{folder}: {', '.join(table_files(name))} do not belong together; build again or serve "
                "another snapshot"
            )
    return found


def pieces_of_table(store: Store, folder: str, name: str, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
    """Yield a divided table, or some of its columns, in pieces of any size.

    Memory: a piece, the rows that changed, and some bytes for each row.

    Raises:
        SnapshotCorrupt: the files do not belong together.
        StoreError: they cannot be read, or lack a column.
    """
    division = read_division(store, folder, name)
    stored_file, changed_file, _ = table_files(name)
    stored = (batch for piece in store.pieces(f"{folder}/{stored_file}", columns) for batch in piece.to_batches())
    changed = _one_batch(store.read_table(f"{folder}/{changed_file}", columns))
    yield from (pa.Table.from_batches([batch]) for batch in division.joined(stored, changed))


def rows_of_table(
    store: Store, folder: str, name: str, start: int, stop: int, columns: Sequence[str] | None = None
) -> pa.Table:
    """Return rows [start, stop) of a divided table; as `pieces_of_table`."""
    division = read_division(store, folder, name)
    stored_file, changed_file, _ = table_files(name)
    stop = min(stop, division.n_rows)
    first, last = (int(place) for place in np.searchsorted(division.changed, [start, stop]))
    is_changed = np.zeros(stop - start, np.bool_)
    is_changed[division.changed[first:last] - start] = True
    rows = division.stored_rows(start - first, stop - last)
    low, high = (int(rows[0]), int(rows[-1]) + 1) if len(rows) else (0, 0)
    stored = _one_batch(store.read_rows(f"{folder}/{stored_file}", low, high, columns)).take(pa.array(rows - low))
    changed = _one_batch(store.read_rows(f"{folder}/{changed_file}", first, last, columns))
    return pa.Table.from_batches(_woven(stored, changed, 0, is_changed))


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    """Return a table without the column ROW as one batch."""
    plain = one_piece(table.drop_columns(ROW) if ROW in table.column_names else table)
    return plain.to_batches()[0] if len(plain) else pa.RecordBatch.from_pylist([], plain.schema)


def divide(origin: NDArray[np.integer], division: TableDivision) -> TableDivision | None:
    """Return how a new table can be divided; None where it is to be written whole.

    Args:
        origin: (n_rows,) row of each in the table before, ascending; −1 for a new one and for one that changed.
    """
    slots = np.append(division.slots(), np.int32(division.n_stored))[origin]
    is_changed = slots >= division.n_stored
    if is_too_much(int(is_changed.sum()), division.n_stored, len(origin)):
        return None
    is_unused = np.ones(division.n_stored, np.bool_)
    is_unused[slots[~is_changed]] = False
    return TableDivision(division.n_stored, np.flatnonzero(is_unused), np.flatnonzero(is_changed))


def find_origin(
    name: str, table: pa.Table, keys: Iterable[pa.Table], before: Iterable[pa.Table], division: TableDivision
) -> IntVector | None:
    """Return the row of each row of a new table in the table before, as `divide` takes it.

    Args:
        keys: the columns KEYS of the table before, in pieces.
        before: the table before, in pieces, read one at a time.

    Returns:
        (n_rows,); None where the table is to be written whole, as its keys tell.
    """
    # Rows are found by a hash of their key, so another row may be given: all values are compared afterwards.
    now = _key_hashes(name, table)
    then = np.concatenate([np.zeros(0, np.uint64), *(_key_hashes(name, piece) for piece in keys)])
    none = np.zeros(0, np.int64)
    rows = _common_rows(now, then, none, then[none], max_changed(len(now)))
    if len(rows) < len(now):
        order = np.argsort(then)
        rows = _common_rows(now, then, order, then[order], max_changed(len(now)))
    if divide(rows, division) is None:
        return None
    same = np.zeros(table.num_rows, np.bool_)
    known = np.flatnonzero(rows >= 0).astype(np.int32)
    rows_known, first = rows[known], 0
    for piece in before:
        low, high = np.searchsorted(rows_known, [first, first + piece.num_rows])
        if low < high:
            own = known[low:high]
            one = one_piece(table.slice(int(own[0]), int(own[-1]) + 1 - int(own[0])))
            same[own] = _same_rows(one, own - own[0], piece.cast(table.schema), rows_known[low:high] - first)
        first += piece.num_rows
    return np.where(same, rows, -1)


def _same_rows(table: pa.Table, rows: Rows, before: pa.Table, rows_before: Rows) -> Flags:
    """Return (n,) whether rows of two tables have equal values in all columns.

    Runs of rows that follow each other in both are compared where they lie, short ones after they were copied.
    """
    starts = np.flatnonzero((np.diff(rows, prepend=-2) != 1) | (np.diff(rows_before, prepend=-2) != 1))
    if len(starts) * _MIN_RUN_ROWS > len(rows):
        return _equal_rows(table.take(pa.array(rows)), before.take(pa.array(rows_before)))
    same = np.zeros(len(rows), np.bool_)
    for start, stop in pairwise([*starts.tolist(), len(rows)]):
        for at in range(start, stop, _RUN_ROWS):
            n_run = min(_RUN_ROWS, stop - at)
            run, run_before = table.slice(int(rows[at]), n_run), before.slice(int(rows_before[at]), n_run)
            same[at : at + n_run] = _equal_rows(run, run_before)
    return same


def _equal_rows(one: pa.Table, other: pa.Table) -> Flags:
    """Return (n_rows,) whether all columns of two tables have equal values, row by row."""
    pairs = zip(one.columns, other.columns, strict=True)
    equal: Flags = np.logical_and.reduce([same_values(one_array(a), one_array(b)) for a, b in pairs])
    return equal


def _key_hashes(name: str, table: pa.Table) -> NDArray[np.uint64]:
    """Return (n_rows,) hashes of the keys of rows."""
    parts = [np.zeros(0, np.uint64)]
    for first in range(0, table.num_rows, _BATCH_ROWS):
        piece = table.slice(first, _BATCH_ROWS)
        hashes = np.full(piece.num_rows, 0xCBF29CE484222325, np.uint64)
        for column in KEYS[name]:
            values = one_array(piece[column])
            if pa.types.is_string(values.type):
                _, offsets, data = values.buffers()
                bounds = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1]
                texts = np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
                _hash_texts(read_only(texts), read_only(bounds), hashes)
            else:
                hashes = (hashes ^ values.to_numpy(zero_copy_only=False).astype(np.uint64)) * _PRIME
        parts.append(hashes)
    return np.concatenate(parts)


@compiled
def _common_rows(
    now: NDArray[np.uint64],
    then: NDArray[np.uint64],
    order: NDArray[np.int64],
    ordered: NDArray[np.uint64],
    max_missing: int,
) -> Rows:
    """Return for each value of a sequence its place in an earlier one, ascending; −1 for values that came since.

    Both are read side by side. Where they differ, the nearest place from which they go on alike is searched: at first
    among the next values of both, then among all later ones of the earlier sequence.

    Args:
        order: (n_then,) positions of the earlier sequence by value; empty: without it, nothing is searched among all.
        ordered: (n_then,) its values in this order.
        max_missing: number of values without a place before the rest is given up.

    Returns:
        (n_now,) places; empty where they cannot be told without `order`.
    """
    rows = np.full(len(now), -1, np.int32)
    row = place = missing = 0
    while row < len(now) and place < len(then) and missing <= max_missing:
        found = False
        for n_ahead in range(_MAX_AHEAD):
            if row + n_ahead < len(now) and now[row + n_ahead] == then[place]:
                row += n_ahead
                missing += n_ahead
                found = True
            elif place + n_ahead < len(then) and now[row] == then[place + n_ahead]:
                place += n_ahead
                found = True
            if found:
                break
        if not found:
            if len(order) == 0:
                return rows[:0]
            at = lower_bound(ordered, 0, len(ordered), now[row])
            if at < len(ordered) and ordered[at] == now[row] and order[at] > place:
                place = order[at]
                found = True
        if found:
            rows[row] = place
            place += 1
        else:
            missing += 1
        row += 1
    return rows


@compiled
def _hash_texts(data: NDArray[np.uint8], bounds: NDArray[np.int32], hashes: NDArray[np.uint64]) -> None:
    """Continue the hash of each row with the bytes of its text, and with the end of the text."""
    for row in range(len(hashes)):
        mixed = hashes[row]
        for at in range(bounds[row], bounds[row + 1]):
            mixed = (mixed ^ np.uint64(data[at])) * _PRIME
        hashes[row] = (mixed ^ np.uint64(0xFF)) * _PRIME
