"""Sparse relations of groups and items, as arrays of pairs."""

from __future__ import annotations

import numpy as np

from hirag_dist.types import IntVector

_BLOCK_PAIRS = 4_000_000  # compared at a time, about


def bounds_of(groups: IntVector, n_groups: int) -> IntVector:
    """Return (n_groups + 1,) where each group begins among entries that are sorted by group."""
    return np.concatenate([[0], np.cumsum(np.bincount(groups, minlength=n_groups))]).astype(np.int64)


def shared_counts(
    groups: IntVector, items: IntVector, others: IntVector, other_items: IntVector
) -> tuple[IntVector, IntVector, IntVector]:
    """Return the pairs of groups that share items, and how many.

    Memory is bounded by the number of such pairs, and by the pairs of one group.

    Args:
        groups: (n_entries,) group of each entry, from 0 on.
        items: (n_entries,) its item, once in a group.
        others: (n_others,) the same of the other groups.
        other_items: (n_others,) the same.

    Returns:
        (group, other group, shared items), by group and other group.

    >>> [each.tolist() for each in shared_counts(*np.array([[0, 0, 1], [5, 6, 7]]), *np.array([[2, 2], [6, 5]]))]
    [[0], [2], [2]]
    """
    by_item = np.argsort(other_items, kind="stable")
    sorted_items, sorted_others = other_items[by_item], others[by_item]
    by_group = np.argsort(groups, kind="stable")
    groups, items = groups[by_group], items[by_group]
    first = np.searchsorted(sorted_items, items)
    n_found = np.searchsorted(sorted_items, items, side="right") - first
    reach = np.cumsum(n_found)
    n_groups = int(others.max(initial=-1)) + 1
    keys, counts = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    begin = 0
    while begin < len(groups):
        done = int(reach[begin - 1]) if begin else 0
        end = max(int(np.searchsorted(reach, done + _BLOCK_PAIRS, side="right")), begin + 1)
        end = int(np.searchsorted(groups, groups[end - 1], side="right"))  # whole groups
        found = n_found[begin:end]
        at = np.repeat(first[begin:end] - (reach[begin:end] - found - done), found) + np.arange(reach[end - 1] - done)
        pairs = np.repeat(groups[begin:end], found) * n_groups + sorted_others[at]
        for kept, new in zip((keys, counts), np.unique(pairs, return_counts=True), strict=True):
            kept.append(new)
        begin = end
    group, other = np.divmod(np.concatenate(keys), max(n_groups, 1))
    return group, other, np.concatenate(counts)
