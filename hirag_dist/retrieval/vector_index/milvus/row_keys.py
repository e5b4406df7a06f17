"""Keys of rows by their content, so that snapshots with equal rows share them in one collection.

The key of a row is a hash of its entity's id, its layer, its vector and its labels: everything that a search reads.
Rows of a collection are therefore never changed, and a key of one snapshot is either absent from another or stands for
an equal row.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hirag_dist.core.access import LabelPatterns
from hirag_dist.types import IntVector

_BLOCK_ROWS = 1024  # of vectors as 64-bit words: they stay in the processor's cache
_SEED: Final = 20_250_310  # of the multipliers; another one makes other keys
_HIGH = np.uint64(0xFFFF_FFFF_0000_0000)
_HALF = np.uint64(32)


def row_hashes(words: NDArray[np.uint32]) -> NDArray[np.uint64]:
    """Return a hash of each row of (n, width) words.

    It is two multiply-shift hashes of 32 bits, of which two rows share both by 2⁻⁶⁴.

    Trailing zeros do not count.
    """
    factors = np.random.PCG64(_SEED).random_raw(2 * words.shape[1]).reshape(-1, 2)
    first, second = np.ascontiguousarray(factors[:, 0]), np.ascontiguousarray(factors[:, 1])
    hashes = np.empty(len(words), np.uint64)
    for begin in range(0, len(words), _BLOCK_ROWS):
        block = words[begin : begin + _BLOCK_ROWS].astype(np.uint64)
        high = np.einsum("ij,j->i", block, first) & _HIGH
        hashes[begin : begin + len(block)] = high | (np.einsum("ij,j->i", block, second) >> _HALF)
    return hashes


def hashes_of_texts(texts: pa.ChunkedArray | Sequence[str]) -> NDArray[np.uint64]:
    """Return a hash of each of some short texts, such as ids."""
    values = texts.to_pylist() if isinstance(texts, pa.ChunkedArray) else list(texts)
    encoded = np.asarray([value.encode() for value in values], np.bytes_)
    width = -(-max(encoded.dtype.itemsize, 1) // 4) * 4
    return row_hashes(encoded.astype(f"S{width}").view(np.uint32).reshape(len(values), width // 4))


def hashes_of_vectors(vectors: NDArray[np.float32]) -> NDArray[np.uint64]:
    """Return a hash of the bytes of each vector: (n, dim)."""
    return row_hashes(np.ascontiguousarray(vectors, np.float32).view(np.uint32))


def combined_keys(columns: Sequence[NDArray[Any]]) -> NDArray[np.int64]:
    """Return a key of each row of columns of 64-bit numbers, (n,) each; never negative."""
    table = np.column_stack([np.asarray(column).astype(np.int64).view(np.uint64) for column in columns])
    hashed = row_hashes(np.ascontiguousarray(table).view(np.uint32))
    return (hashed >> np.uint64(1)).astype(np.int64)


def content_number(content: object) -> int:
    """Return a number of a JSON value, of 63 bits, the same in every snapshot."""
    digest = hashlib.sha256(json.dumps(content, ensure_ascii=False).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def label_set_numbers(sets: Sequence[Sequence[str]]) -> NDArray[np.int64]:
    """Return a number of each label set that depends on its labels alone: (n_sets + 1,), the unknown set last."""
    return np.array([*(content_number(list(labels)) for labels in sets), content_number(None)], np.int64)


def pattern_numbers(known: LabelPatterns, set_numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return a number of each pattern that depends on its label sets alone: (n_patterns,)."""
    numbers = set_numbers[known.sets].tolist()
    spans = zip(known.indptr[:-1].tolist(), known.indptr[1:].tolist(), known.divisible.tolist(), strict=True)
    contents = ([divisible, sorted(numbers[first:last])] for first, last, divisible in spans)
    return np.array([content_number(content) for content in contents], np.int64)


class KeyedRows:
    """The rows of a snapshot by their keys."""

    def __init__(self, keys: NDArray[np.int64]) -> None:
        """Sort the keys (n,) of the rows, which are given in their order."""
        self.keys = keys
        self._order = np.argsort(keys, kind="stable")
        self._sorted = keys[self._order]
        self.n_distinct = int(np.count_nonzero(np.diff(self._sorted))) + bool(len(keys))

    def rows(self, keys: NDArray[np.int64]) -> IntVector:
        """Return the rows of those keys that the snapshot has, in the order of the keys.

        >>> KeyedRows(np.array([70, 50, 60])).rows(np.array([60, 55, 70]))
        array([2, 0])
        """
        if not len(self._sorted):
            return np.zeros(0, np.int64)
        at = np.minimum(np.searchsorted(self._sorted, keys), len(self._sorted) - 1)
        found: IntVector = self._order[at[self._sorted[at] == keys]]
        return found

    def missing(self, present: NDArray[np.int64]) -> IntVector:
        """Return the rows, ascending, whose keys are not among those present."""
        found = np.zeros(len(self.keys), np.bool_)
        found[self._order] = np.isin(self._sorted, present)
        return np.flatnonzero(~found)
