"""Sparse relations of groups and items, as arrays of pairs."""

from __future__ import annotations

import numpy as np

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
