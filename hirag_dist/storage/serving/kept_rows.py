"""Rows of a new snapshot that stay in the files of its base.

Texts and vectors of entities, relations, chunks and reports are most of a snapshot, and an update changes few of them.
The file that a former snapshot wrote of such a table is linked into the new one, and the rows that it does not have are
written into a second file. An array of slots says where each row lies: in the first file or, from its end on, in the
second. The lexical index of chunks is divided as their texts are.

The first file is written anew when the second would hold more than a tenth of the rows, or when more than a quarter of
its own rows would be unused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hirag_dist.core.access import Flags
from hirag_dist.core.vectors import Vectors, parts_of
from hirag_dist.storage.serving.base_values import BaseValues
from hirag_dist.storage.serving.column_arrays import Batches

MIN_ROWS: Final = 1 << 12  # minimum rows of a table whose rows are kept; small files are written in milliseconds
MAX_CHANGED: Final = 0.1  # maximum share of rows in the second file
MAX_UNUSED: Final = 0.25  # maximum unused rows of the first file, as a share of the table's rows
_BLOCK_ROWS: Final = 1 << 15  # number of vectors compared at a time


@dataclass(frozen=True, slots=True)
class KeptRows:
    """How the rows of a table are divided between the file of a former snapshot and a new one.

    Attributes:
        slots: (n_rows,) row in the first file or, from its end on, in the second.
        changed: (n_rows,) whether a row is written into the second.
    """

    slots: NDArray[np.int32]
    changed: Flags

    def written(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a table's batches that are written into the second file."""
        first = 0
        for batch in batches:
            yield batch.filter(pa.array(self.changed[first : first + batch.num_rows]))
            first += batch.num_rows


def kept_rows(
    values: BaseValues, batches: Batches, table: str, vectors: tuple[Vectors, Vectors] | None = None
) -> KeptRows | None:
    """Return where the rows of a table lie; None where the whole table is to be written.

    Memory: a few numbers a row, a block of texts and vectors, and the ids of a base whose rows lie in two files.

    Args:
        table: one of `layout.SLOTS`.
        vectors: (n_rows, dim) of the rows, and (n_base_rows, dim) of the base's; None: the table has none.
    """
    rows = values.rows(batches, table)
    if len(rows) < MIN_ROWS:
        return None
    same = values.unchanged(batches, table)
    if vectors is not None:
        now, before = vectors
        if now.shape[1] != before.shape[1]:
            return None
        _compare(now, before, rows, same)
    slots, n_stored = values.slots(table, rows)
    changed = ~same | (slots >= n_stored)
    n_changed = int(changed.sum())
    if is_too_much(n_changed, n_stored, len(rows)):
        return None
    slots[changed] = n_stored + np.arange(n_changed, dtype=np.int32)
    return KeptRows(slots, changed)


def max_changed(n_rows: int) -> int:
    """Return how many rows of a table may lie in the second file."""
    return int(MAX_CHANGED * n_rows)


def is_too_much(n_changed: int, n_stored: int, n_rows: int) -> bool:
    """Return whether a table is to be written whole.

    Args:
        n_changed: number of rows in the second file.
        n_stored: number of rows in the first file, with those that are unused.
        n_rows: number of rows of the table.
    """
    n_unused = n_stored - (n_rows - n_changed)
    return n_changed > max_changed(n_rows) or n_unused > MAX_UNUSED * n_rows


def _compare(vectors: Vectors, before: Vectors, rows: NDArray[np.int32], same: Flags) -> None:
    """Clear the flags of rows whose vector is not that of their row in the base, bit for bit."""
    now, then = parts_of(vectors), parts_of(before)
    in_step = np.zeros(len(rows), np.bool_)  # rows whose vector lies where that of the base does
    if len(now.slots) and now.stored.ctypes.data == then.stored.ctypes.data:
        own = then.slots[rows] if len(then.slots) else rows
        in_step = (now.slots == own) & (own < len(then.stored))
    for first in range(0, len(rows), _BLOCK_ROWS):
        at = slice(first, first + _BLOCK_ROWS)
        known = first + np.flatnonzero(same[at] & ~in_step[at])
        pair = (vectors[known], before[rows[known]])
        one, other = (np.ascontiguousarray(part, "<f4").view(np.uint32) for part in pair)
        same[known] = (one == other).all(axis=1)
