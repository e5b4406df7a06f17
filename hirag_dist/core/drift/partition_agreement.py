"""Agreement of two groupings of the same rows: best Jaccard index of each group, and adjusted Rand index."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hirag_dist.core.sparse import shared_counts
from hirag_dist.types import FloatVector, IntVector


@dataclass(frozen=True, slots=True)
class Groups:
    """Groups of rows, which may overlap.

    Attributes:
        numbers: (n_entries,) group of each membership, from 0 on.
        rows: (n_entries,) member row, once in a group.
        sizes: (n_groups,) members of each.
    """

    numbers: IntVector
    rows: IntVector
    sizes: IntVector


def groups_of(numbers: IntVector, rows: IntVector) -> Groups:
    """Return groups from their memberships; arguments as the attributes of `Groups`."""
    return Groups(numbers, rows, np.bincount(numbers))


def groups_of_labels(labels: IntVector) -> Groups:
    """Return the groups of a partition; rows labelled −1 are in no group."""
    rows = np.flatnonzero(labels >= 0)
    return groups_of(labels[rows], rows)


def best_jaccard(groups: Groups, others: Groups) -> FloatVector:
    """Return for each group the Jaccard index of its members with those of the most similar other group.

    Memory is bounded by the pairs of groups that share a row, and by the memberships in the other groups of one group's
    rows.

    Args:
        groups: to be found among the others.
        others: of the same rows.

    Returns:
        (n_groups,) from 0 to 1; 0 where no other group shares a member.
    """
    own, other, shared = shared_counts(groups.numbers, groups.rows, others.numbers, others.rows)
    best = np.zeros(len(groups.sizes))
    np.maximum.at(best, own, shared / (groups.sizes[own] + others.sizes[other] - shared))
    return best


def weighted_jaccard(groups: Groups, others: Groups) -> float:
    """Return the mean of `best_jaccard` weighted by the groups' sizes; 1.0 where there are no groups on either side."""
    if not len(groups.rows):
        return 0.0 if len(others.rows) else 1.0
    return float(np.average(best_jaccard(groups, others), weights=groups.sizes))


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
    together = _pairs(np.unique(own * (int(other.max()) + 1) + other, return_counts=True)[1])
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
