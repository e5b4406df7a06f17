"""Sets of 64-bit keys, one a row, in flat arrays: the chunk texts that entities, summaries and reports derive from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hirag_dist.core.groupby import blocks_of, bounds_of, distinct_values
from hirag_dist.core.row_changes import one_array
from hirag_dist.core.text.ids import text_keys
from hirag_dist.types import IntVector

_BLOCK_KEYS = 1 << 20  # keys of a block of unions, about: 8 MB for each array of them
LIST = pa.list_(pa.field("item", pa.int64(), nullable=False))


@dataclass(frozen=True, slots=True)
class KeySets:
    """One set a row.

    Attributes:
        indptr: (n_rows + 1,) int64.
        keys: (n_keys,) int64, ascending and distinct within a row.
    """

    indptr: IntVector
    keys: IntVector

    def __len__(self) -> int:
        return len(self.indptr) - 1

    @property
    def owners(self) -> IntVector:
        """(n_keys,) the row of each key."""
        return np.repeat(np.arange(len(self)), np.diff(self.indptr))

    def take(self, rows: IntVector) -> KeySets:
        """Return the sets of some rows; an empty set for row −1."""
        sizes = np.where(rows >= 0, np.diff(self.indptr, append=self.indptr[-1])[rows], 0)
        indptr = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        starts = self.indptr[rows]
        at = np.repeat(starts - indptr[:-1], sizes)
        at += np.arange(indptr[-1])
        return KeySets(indptr, self.keys[at])

    def unions(self, owners: IntVector, rows: IntVector, n_owners: int, block_keys: int = _BLOCK_KEYS) -> KeySets:
        """Return for each owner the union of the sets of its rows.

        Args:
            owners: (n,) int64 owner of each of `rows`.
            rows: (n,) int64 rows of these sets; −1 adds nothing.
            block_keys: that are processed at a time, about; one row's set is not divided.
        """
        used, numbers = np.unique(rows[rows >= 0], return_inverse=True)
        sets = self.take(used)
        distinct, codes = np.unique(sets.keys, return_inverse=True)
        sets = KeySets(sets.indptr, codes)
        order = np.argsort(owners[rows >= 0], kind="stable")
        owners, rows = owners[rows >= 0][order], numbers[order]
        width = max(len(distinct), 1)
        sizes, parts = np.zeros(n_owners, np.int64), [np.zeros(0, np.int64)]
        begun = np.zeros(0, np.int64)  # pairs of the last owner so far, which more rows follow
        for first, end in blocks_of(np.diff(sets.indptr)[rows], block_keys):
            inside = sets.take(rows[first:end])
            pairs = distinct_values(np.concatenate([begun, owners[first:end][inside.owners] * width + inside.keys]))
            begun = begun[:0]
            if end < len(rows) and owners[end] == owners[end - 1]:
                pairs, begun = np.split(pairs, [np.searchsorted(pairs, owners[end] * width)])
            sizes += np.bincount(pairs // width, minlength=n_owners)
            parts.append(distinct[pairs % width])
        return KeySets(np.concatenate([[0], np.cumsum(sizes)]), np.concatenate(parts))

    def with_keys(self, owners: IntVector, keys: IntVector) -> KeySets:
        """Return the sets with a few keys more, each of the row that owns it.

        >>> sets = KeySets(np.array([0, 2, 2]), np.array([3, 5])).with_keys(np.array([1, 0, 0]), np.array([7, 4, 5]))
        >>> sets.indptr.tolist(), sets.keys.tolist()
        ([0, 3, 4], [3, 4, 5, 7])
        """
        places, added = list[int](), list[tuple[int, int]]()
        for owner, key in sorted({*zip(owners.tolist(), keys.tolist(), strict=True)}):
            first, end = self.indptr[owner], self.indptr[owner + 1]
            place = first + np.searchsorted(self.keys[first:end], key)
            if place == end or self.keys[place] != key:
                places.append(int(place))
                added.append((owner, key))
        sizes = np.bincount([owner for owner, _ in added], minlength=len(self))
        indptr = self.indptr + np.concatenate([[0], np.cumsum(sizes)])
        return KeySets(indptr, np.insert(self.keys, places, [key for _, key in added]))

    def hits(self, keys: IntVector) -> NDArray[np.bool_]:
        """Return (n_rows,) whether a set holds any of some keys."""
        found = np.isin(self.keys, keys)
        hit: NDArray[np.bool_] = np.bincount(self.owners[found], minlength=len(self)) > 0
        return hit

    def within(self, other: KeySets) -> NDArray[np.bool_]:
        """Return (n_rows,) whether each set is a subset of the other's of the same row."""
        both = np.concatenate([self.keys, other.keys])
        _, codes = np.unique(both, return_inverse=True)
        width = int(codes.max(initial=0)) + 1
        mine = self.owners * width + codes[: len(self.keys)]
        theirs = other.owners * width + codes[len(self.keys) :]
        missing = ~np.isin(mine, theirs)
        inside: NDArray[np.bool_] = np.bincount(self.owners[missing], minlength=len(self)) == 0
        return inside

    def to_arrow(self) -> pa.ListArray:
        """Return a list a row."""
        return pa.ListArray.from_arrays(pa.array(self.indptr, pa.int32()), pa.array(self.keys, pa.int64()), type=LIST)


def distinct_keys(owners: IntVector, keys: IntVector, n_owners: int) -> KeySets:
    """Return the distinct keys of each owner."""
    distinct, codes = np.unique(keys, return_inverse=True)
    width = max(len(distinct), 1)
    pairs = distinct_values(owners * width + codes)
    return KeySets(bounds_of(pairs // width, n_owners), distinct[pairs % width])


def key_sets(lists: pa.ChunkedArray) -> KeySets:
    """Return lists of int64, each ascending and distinct, as sets."""
    flat, indptr = _flat(lists)
    return KeySets(indptr, flat.to_numpy(zero_copy_only=False).astype(np.int64))


def chunk_text_sets(chunk_ids: pa.ChunkedArray) -> KeySets:
    """Return the `text_key` sets of lists of chunk ids."""
    flat, indptr = _flat(chunk_ids)
    encoded = flat.dictionary_encode()
    keys = text_keys(encoded.dictionary)[encoded.indices.to_numpy(zero_copy_only=False)]
    owners = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    return distinct_keys(owners, keys.astype(np.int64), len(indptr) - 1)


def _flat(lists: pa.ChunkedArray) -> tuple[pa.Array, IntVector]:
    whole = one_array(lists)
    sizes = pc.fill_null(pc.list_value_length(whole), 0).to_numpy(zero_copy_only=False)
    return whole.flatten(), np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
