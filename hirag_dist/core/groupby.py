"""Group-by on arrays: factorised values, distinct values of a group, first and most frequent values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hirag_dist.types import IntVector

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
