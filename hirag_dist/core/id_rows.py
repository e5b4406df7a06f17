"""Row numbers of ids: a join of a column of ids with the table that they belong to.

The ids of the project are hashes of one length. Where both columns hold such ids, their bytes are looked up where they
lie (those of several chunks are copied first), in a table of row numbers. `pyarrow.compute.index_in` copies each id
into a hash table of its own for every call, about 150 bytes an id.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hirag_dist.core.arrays import compiled_apart, compiled_inside, read_only
from hirag_dist.core.row_changes import one_array
from hirag_dist.core.text.ids import ID_CHARS
from hirag_dist.types import IntVector

_WORDS = ID_CHARS // 8  # 64-bit words of an id
_MIN_ROWS = 1 << 14  # fewer ids are looked up by Arrow, which needs no compiling
_HASHED_ROWS = 1 << 20  # ids in one hash table of Arrow, about 150 bytes each
_ODD = np.uint64(0x9E3779B97F4A7C15)  # 2^64 divided by the golden ratio: spreads what is multiplied by it

Words = NDArray[np.uint64]


class IdRows:
    """The rows of a column of ids, for several look-ups.

    >>> IdRows(pa.array(["a", "b", "a"])).rows(pa.array(["b", "a", "c"])).tolist()
    [1, 0, -1]
    """

    def __init__(self, order: pa.ChunkedArray | pa.Array) -> None:
        """Prepare for ids of a column.

        Args:
            order: (n_rows,) strings. Of equal ids the first one counts.
        """
        self._order = order if isinstance(order, pa.ChunkedArray) else pa.chunked_array([order], order.type)
        self._words: Words | None = None
        words = [_words(chunk) for chunk in self._order.chunks] if len(order) >= _MIN_ROWS else []
        known = [each for each in words if each is not None]
        if known and len(known) == len(words):
            self._words = read_only(known[0] if len(known) == 1 else np.concatenate(known))
            self._slots = _hashed(self._words, len(self._words) * 5 // 4)

    def rows(self, ids: pa.ChunkedArray | pa.Array) -> IntVector:
        """Return the row of each id, int64; −1 where it is not in the column."""
        chunks = ids.chunks if isinstance(ids, pa.ChunkedArray) else [ids]
        return np.concatenate([np.zeros(0, np.int64), *map(self._rows, chunks)])

    def _rows(self, ids: pa.Array) -> IntVector:
        if self._words is None:
            return self._rows_by_arrow(ids)
        known = ids.drop_null()
        words = _words(known)
        found = self._rows_by_arrow(known) if words is None else _found(self._words, self._slots, words)
        if not ids.null_count:
            return found
        rows = np.full(len(ids), -1, np.int64)
        rows[ids.is_valid().to_numpy(zero_copy_only=False)] = found
        return rows

    def _rows_by_arrow(self, ids: pa.Array) -> IntVector:
        rows = np.full(len(ids), -1, np.int64)
        for first in range(0, len(self._order), _HASHED_ROWS):
            found = pc.index_in(ids, value_set=one_array(self._order.slice(first, _HASHED_ROWS)))
            some = found.fill_null(-1).to_numpy(zero_copy_only=False)
            new = (rows < 0) & (some >= 0)
            rows[new] = some[new] + first
        return rows


def _words(ids: pa.Array) -> Words | None:
    """Return (n_ids, _WORDS) bytes of ids, not copied; None where they are null or of another length."""
    if ids.null_count or ids.type != pa.string():
        return None
    if not len(ids):
        return read_only(np.zeros((0, _WORDS), np.uint64))
    _, offsets, data = ids.buffers()
    bounds = np.frombuffer(offsets, np.int32)[ids.offset : ids.offset + len(ids) + 1]
    if not (np.diff(bounds) == ID_CHARS).all():
        return None
    found = np.frombuffer(data, np.uint8)[bounds[0] : bounds[-1]].view(np.uint64).reshape(-1, _WORDS)
    return read_only(found if found.flags.aligned else found.copy())


@compiled_apart
def _hashed(words: Words, least: int) -> NDArray[np.int32]:
    """Return a table of row numbers, −1 in free slots; a row lies at its hash, or in the next free slot."""
    size = 1
    while size < least:
        size *= 2
    slots = np.full(size, -1, np.int32)
    for row in range(len(words)):
        slot = _slot(words, row, size)
        while slots[slot] >= 0 and not _equal(words, slots[slot], words, row):
            slot = (slot + 1) & (size - 1)
        if slots[slot] < 0:
            slots[slot] = row
    return slots


@compiled_apart
def _found(words: Words, slots: NDArray[np.int32], asked: Words) -> IntVector:
    """Return the row of each id, −1 for an unknown one."""
    size = len(slots)
    rows = np.full(len(asked), -1, np.int64)
    for at in range(len(asked)):
        slot = _slot(asked, at, size)
        while slots[slot] >= 0:
            if _equal(words, slots[slot], asked, at):
                rows[at] = slots[slot]
                break
            slot = (slot + 1) & (size - 1)
    return rows


@compiled_inside
def _slot(words: Words, row: int, size: int) -> np.int64:
    mixed = np.uint64(0)
    for at in range(_WORDS):
        mixed = (mixed ^ words[row, at]) * _ODD
        mixed ^= mixed >> np.uint64(32)
    return np.int64(mixed & np.uint64(size - 1))


@compiled_inside
def _equal(one: Words, row: int, other: Words, other_row: int) -> bool:
    same = True
    for at in range(_WORDS):
        same &= one[row, at] == other[other_row, at]
    return same
