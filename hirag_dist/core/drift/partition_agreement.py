"""Agreement of two groupings of the same rows: best Jaccard index of each group, and adjusted Rand index."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import csr_array

from hirag_dist.types import FloatVector, IntVector


def membership_matrix(groups: IntVector, rows: IntVector, n_rows: int) -> Any:
    """Return the (n_groups, n_rows) CSR matrix of memberships, 1 where a row is in a group.

    Args:
        groups: (n_entries,) group of each membership, from 0 on; groups may overlap.
        rows: (n_entries,) member row, once in a group.
        n_rows: rows in all.
    """
    n_groups = int(groups.max(initial=-1)) + 1
    return csr_array((np.ones(len(rows), np.int32), (groups, rows)), shape=(n_groups, n_rows))


def matrix_of_labels(labels: IntVector) -> Any:
    """Return the membership matrix of a partition; rows labelled −1 are in no group."""
    rows = np.flatnonzero(labels >= 0)
    return membership_matrix(labels[rows], rows, len(labels))


def best_jaccard(groups: Any, others: Any) -> FloatVector:
    """Return for each group the Jaccard index of its members with those of the most similar other group.

    The product of the two matrices has an entry for each pair of groups that share a row, so memory is bounded by the
    memberships of a row in both, summed over rows.

    Args:
        groups: (n_groups, n_rows) `membership_matrix`.
        others: (n_others, n_rows), of the same rows.

    Returns:
        (n_groups,) from 0 to 1; 0 where no other group shares a member.
    """
    shared = csr_array(groups @ others.T)
    own = np.repeat(np.arange(shared.shape[0]), np.diff(shared.indptr))
    union = np.diff(groups.indptr)[own] + np.diff(others.indptr)[shared.indices] - shared.data
    best = np.zeros(shared.shape[0])
    np.maximum.at(best, own, shared.data / union)
    return best


def weighted_jaccard(groups: Any, others: Any) -> float:
    """Return the mean of `best_jaccard` weighted by the groups' sizes; 1.0 where there are no groups on either side."""
    sizes = np.diff(groups.indptr)
    if not sizes.sum():
        return 1.0 if not others.nnz else 0.0
    return float(np.average(best_jaccard(groups, others), weights=sizes))


def adjusted_rand_index(first: IntVector, second: IntVector) -> float:
    """Return the adjusted Rand index of two partitions (Hubert and Arabie, 1985), computed in exact integers.

    1.0 for equal partitions, about 0 for independent ones; 1.0 where both put every row alone, or all rows together.

    Args:
        first: (n_rows,) labels; a row labelled −1 is a group by itself.
        second: (n_rows,) labels of the same rows.

    >>> adjusted_rand_index(np.array([0, 0, 1, 2]), np.array([0, 0, 1, 1]))
    0.5714285714285714
    """
    if not len(first):
        return 1.0
    own, other = _without_gaps(first), _without_gaps(second)
    table = csr_array((np.ones(len(own), np.int64), (own, other)))
    table.sum_duplicates()
    together = _pairs(table.data)
    in_own, in_other, in_all = _pairs(np.bincount(own)), _pairs(np.bincount(other)), _pairs(np.array([len(own)]))
    # (together − in_own · in_other / in_all) / ((in_own + in_other) / 2 − in_own · in_other / in_all), times 2 · in_all
    expected = 2 * in_own * in_other
    largest = (in_own + in_other) * in_all
    return 1.0 if largest == expected else (2 * together * in_all - expected) / (largest - expected)


def _without_gaps(labels: IntVector) -> IntVector:
    """Return labels from 0 on, with one of its own for each row labelled −1."""
    alone = np.flatnonzero(labels < 0)
    given = labels.astype(np.int64)
    given[alone] = int(labels.max(initial=-1)) + 1 + np.arange(len(alone))
    return np.unique(given, return_inverse=True)[1].astype(np.int64)


def _pairs(counts: IntVector) -> int:
    """Return the number of pairs within groups of these sizes."""
    sizes = counts.astype(np.int64)
    return int(np.sum(sizes * (sizes - 1))) // 2
