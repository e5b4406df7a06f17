"""Rows of a mapped table by their ids: a sorted array of hashes, computed from the mapped bytes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hirag_dist.storage.serving.text_columns import TextColumns

_FACTOR = 0x9E3779B97F4A7C15
_EDGE = 32  # bytes at each end of an id that are hashed; ids of this package have 24


class IdLookup:
    """Look-up of rows by id.

    Memory: 12 bytes a row. A million ids take about a quarter of a second.
    """

    def __init__(self, columns: TextColumns, name: str) -> None:
        """Hash a column.

        Args:
            columns: of the table.
            name: of the column of ids, which are unique.
        """
        self._columns = columns
        self._name = name
        parts = [_hashes(offsets, data) for offsets, data in columns.batches(name)]
        hashes = np.concatenate([np.zeros(0, np.uint64), *parts])
        order = np.argsort(hashes, kind="stable")
        self._hashes = hashes[order]
        self._rows = order.astype(np.int32)

    def row(self, own: str) -> int | None:
        """Return the row of an id, None where it is unknown."""
        try:
            data = np.frombuffer(own.encode(), np.uint8)
        except UnicodeEncodeError:  # a lone surrogate
            return None
        wanted = _hashes(np.array([0, len(data)]), data)
        first, last = (int(np.searchsorted(self._hashes, wanted, side)[0]) for side in ("left", "right"))
        rows = self._rows[first:last].tolist()
        return next((row for row in rows if self._columns.value(self._name, row) == own), None)


def _hashes(offsets: NDArray[np.int64], data: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """Return a hash of each value, of its length and the bytes at its ends."""
    first, last = offsets[:-1], offsets[1:]
    lengths = last - first
    found = lengths.astype(np.uint64)
    factor = np.uint64(_FACTOR)
    for at in range(min(int(lengths.max(initial=0)), _EDGE)):
        rows = slice(None) if at < lengths.min() else np.flatnonzero(lengths > at)
        for places in (first[rows] + at, last[rows] - 1 - at):
            found[rows] = (found[rows] ^ data[places]) * factor  # uint64 wraps around
            found[rows] ^= found[rows] >> np.uint64(29)
    return found
