"""Group-by on arrays: factorised, distinct, first, most frequent and shared values of groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hirag_dist.types import IntVector


def bounds_of(groups: IntVector, n_groups: int) -> IntVector:
    """Return (n_groups + 1,) where each group begins among entries that are sorted by group."""
    return np.concatenate([[0], np.cumsum(np.bincount(groups, minlength=n_groups))]).astype(np.int64)


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
