"""Hash partitioning of rows by key: the same on any machine and with any version of the libraries."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hirag_dist.types import IntVector

HASH_VERSION = 1  # raise it when a key would get another hash
_WORD = 8
_LONGEST = 256  # bytes of a key that count, its length besides: longer keys alike so far share a partition
_MIX = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))


def partitions_of(keys: pa.ChunkedArray | pa.Array, count: int) -> IntVector:
    """Return the partition of each key, in [0, count).

    The hash is splitmix64's finaliser: of an integer's 64 bits, or chained over the 8-byte little-endian words of a
    string's UTF-8 bytes (a binary's bytes), started with their number. A null goes where "" or 0 goes.

    Args:
        keys: (n,) strings, binaries or integers.
        count: partitions, at least 1.

    Returns:
        (n,) partition of each row.

    Raises:
        TypeError: keys of another type.

    >>> partitions_of(pa.array(["a", "b", "a"]), 8).tolist()
    [6, 2, 6]
    """
    return (hashes_of(keys) % np.uint64(count)).astype(np.int64)


def by_partition(table: pa.Table, column: str, count: int) -> tuple[pa.Table, IntVector]:
    """Return a table's rows ordered by partition, else as they were, and where each partition begins: (count + 1,)."""
    partitions = partitions_of(table[column], count)
    ends = np.cumsum(np.bincount(partitions, minlength=count))
    return table.take(np.argsort(partitions, kind="stable")), np.concatenate([[0], ends])


def hashes_of(keys: pa.ChunkedArray | pa.Array) -> NDArray[np.uint64]:
    """Return the 64-bit hash of each key, of which `partitions_of` takes the remainder."""
    parts = keys.chunks if isinstance(keys, pa.ChunkedArray) else [keys]
    return np.concatenate([np.empty(0, np.uint64), *[_hashes(part) for part in parts]])


def _hashes(keys: pa.Array) -> NDArray[np.uint64]:
    if pa.types.is_integer(keys.type):
        values = pc.fill_null(keys, 0) if keys.null_count else keys
        return mixed(values.to_numpy(zero_copy_only=False).astype(np.int64, copy=False).view(np.uint64))
    if pa.types.is_string(keys.type) or pa.types.is_binary(keys.type):
        return _string_hashes(keys.fill_null("" if pa.types.is_string(keys.type) else b"") if keys.null_count else keys)
    raise TypeError(f"rows can be split by strings, binaries or integers, not by {keys.type}")


def _string_hashes(keys: pa.Array) -> NDArray[np.uint64]:
    offsets = np.frombuffer(keys.buffers()[1], np.int32)[keys.offset : keys.offset + len(keys) + 1].astype(np.int64)
    starts, lengths = offsets[:-1], np.diff(offsets)
    hashes = mixed(lengths.astype(np.uint64))
    first, last = (int(offsets[0]), int(offsets[-1])) if len(keys) else (0, 0)
    if first == last:
        return hashes
    data = np.zeros(last - first + _WORD, np.uint8)  # so that the word at the last byte is there
    data[: last - first] = np.frombuffer(keys.buffers()[2], np.uint8)[first:last]
    words = np.ndarray((last - first + 1,), "<u8", data, strides=(1,))  # one begins at every byte
    rows = np.flatnonzero(lengths)
    for at in range(0, _LONGEST, _WORD):
        rows = rows[lengths[rows] > at]
        if not len(rows):
            break
        unused = np.uint64(8) * np.maximum(at + _WORD - lengths[rows], 0).astype(np.uint64)  # bits of the next key
        word = (words[starts[rows] - first + at] << unused) >> unused
        hashes[rows] = mixed(hashes[rows] ^ word)
    return hashes


def mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return splitmix64's next number after each value."""
    mixed = values + np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in zip((30, 27), _MIX, strict=True):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * factor
    result: NDArray[np.uint64] = mixed ^ (mixed >> np.uint64(31))
    return result
