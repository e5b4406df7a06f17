"""Group-by on arrays, and hash partitions of rows that are the same on any machine and with any library version."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hirag_dist.types import IntVector


def bounds_of(groups: Numbers, n_groups: int) -> IntVector:
    """Return (n_groups + 1,) where each group begins among entries that are sorted by group."""
    return np.concatenate([[0], np.cumsum(np.bincount(groups, minlength=n_groups))]).astype(np.int64)


def spans(first: IntVector, last: IntVector) -> tuple[IntVector, IntVector]:
    """Return (owners, positions): every position of each owner's span [first, last).

    >>> spans(np.array([5, 0]), np.array([7, 1]))
    (array([0, 0, 1]), array([5, 6, 0]))
    """
    counts = last - first
    owner = np.arange(len(counts)).repeat(counts)
    return owner, np.arange(len(owner)) + (last - counts.cumsum()).repeat(counts)


def distinct_values(values: IntVector) -> IntVector:
    """Return the distinct values, ascending; many times faster than `np.unique` for millions of values."""
    values = np.sort(values)
    return values[np.concatenate([[True], values[1:] != values[:-1]])] if len(values) else values


def shared_counts(
    groups: IntVector, items: IntVector, others: IntVector, other_items: IntVector
) -> tuple[IntVector, IntVector, IntVector]:
    """Return the pairs of groups that share items, and how many.

    Memory is bounded by the number of such pairs.

    Args:
        groups: (n_entries,) group of each entry, from 0 on.
        items: (n_entries,) its item, from 0 on, once in a group.
        others: (n_others,) the same of the other groups.
        other_items: (n_others,) the same.

    Returns:
        (group, other group, shared items), by group and other group.

    >>> [each.tolist() for each in shared_counts(*np.array([[0, 0, 1], [5, 6, 7]]), *np.array([[2, 2], [6, 5]]))]
    [[0], [2], [2]]
    """
    from scipy.sparse import csr_array  # not at the top: a large import

    n_items = max(int(items.max(initial=0)), int(other_items.max(initial=0))) + 1
    n_groups, n_others = int(groups.max(initial=-1)) + 1, int(others.max(initial=-1)) + 1
    own = csr_array((np.ones(len(items), np.int64), (groups, items)), shape=(n_groups, n_items))
    other = csr_array((np.ones(len(other_items), np.int64), (other_items, others)), shape=(n_items, n_others))
    shared = own @ other
    shared.sort_indices()
    found = shared.tocoo()
    return found.row.astype(np.int64), found.col.astype(np.int64), found.data


Numbers = NDArray[np.integer[Any]]  # of 32 bits where there is one for each row: rows are many


def numbered(column: pa.ChunkedArray) -> tuple[Numbers, pa.Array]:
    """Return the number of each row's value (n,), and the values: number → value, in order of appearance."""
    encoded = column.dictionary_encode()
    if not encoded.num_chunks:
        return np.empty(0, np.int32), pa.array([], column.type)
    codes = [chunk.indices.to_numpy(zero_copy_only=False) for chunk in encoded.chunks]
    return np.concatenate(codes), encoded.chunk(encoded.num_chunks - 1).dictionary  # all chunks share it


def ranked(column: pa.ChunkedArray) -> tuple[Numbers, pa.Array]:
    """Return the same with values in their own order, so that numbers compare as the values do."""
    numbers, values = numbered(column)
    order = pc.sort_indices(values).to_numpy()
    ranks = np.empty(len(order), np.int32)
    ranks[order] = np.arange(len(order))
    return ranks[numbers], values.take(order)


@dataclass(frozen=True, slots=True)
class DistinctValues:
    """The distinct values of each group.

    Attributes:
        group, value: (n_pairs,) each pair once.
        first: (n_pairs,) the row where it comes first.
        count: (n_pairs,) rows that have it.
    """

    group: IntVector
    value: IntVector
    first: IntVector
    count: IntVector

    def offsets(self, n_groups: int) -> IntVector:
        """Return where each group begins, and the last ends, where pairs are sorted by group: (n_groups + 1,)."""
        return np.searchsorted(self.group, np.arange(n_groups + 1))

    def sorted(self, *by: IntVector) -> DistinctValues:
        """Return the pairs by group, in the group by the first of `by`, then the next."""
        order = np.lexsort((*reversed(by), self.group))
        return DistinctValues(self.group[order], self.value[order], self.first[order], self.count[order])


def distinct(groups: Numbers, values: Numbers) -> DistinctValues:
    """Return the distinct values of each group, by group, then by where they come first.

    Args:
        groups, values: (n,) numbers from 0 on.
    """
    width = int(values.max(initial=0)) + 1
    pairs, first, count = np.unique(groups.astype(np.int64) * width + values, return_index=True, return_counts=True)
    found = DistinctValues(pairs // width, pairs % width, first, count)
    return found.sorted(found.first)


def most_common(groups: Numbers, values: Numbers, n_groups: int) -> IntVector:
    """Return the value that each group has most often, among equals the first one; -1 for a group without rows."""
    found = distinct(groups, values)
    ordered = found.sorted(-found.count, found.first)
    winners = np.full(n_groups, -1, np.int64)
    offsets = ordered.offsets(n_groups)
    there = offsets[1:] > offsets[:-1]
    winners[there] = ordered.value[offsets[:-1][there]]
    return winners


def lists(offsets: IntVector, values: pa.Array, kind: pa.DataType | None = None) -> pa.ListArray:
    """Return a list for each group: values[offsets[i]:offsets[i + 1]]."""
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values, type=kind)


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
    return table.take(np.argsort(partitions, kind="stable")), bounds_of(partitions, count)


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


def blocks_of(sizes: IntVector, most: int) -> list[tuple[int, int]]:
    """Return the bounds [first, end) of blocks of consecutive items; the sizes of a block add up to about `most`.

    An item is not divided: one of a larger size makes its block larger.

    >>> blocks_of(np.array([2, 1, 9, 2]), 4)
    [(0, 2), (2, 4)]
    """
    if not len(sizes):
        return []
    ends = [*(np.flatnonzero(np.diff(np.cumsum(sizes) // most)) + 1).tolist(), len(sizes)]
    return list(zip([0, *ends[:-1]], ends, strict=True))
