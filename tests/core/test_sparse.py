"""Overlaps of groups: those of sets."""

from __future__ import annotations

import numpy as np

from hirag_dist.core import sparse


def test_overlaps_are_those_of_sets() -> None:
    random = np.random.default_rng(1)
    one, other = (random.random((12, 40)) < share for share in (0.1, 0.3))
    one[3] = other[0] = False  # empty groups
    (groups, items), (others, other_items) = ([each[order] for each in found.nonzero()] for found, order in (
        (one, random.permutation(one.sum())), (other, random.permutation(other.sum())),
    ))  # fmt: skip
    overlaps = [(own, of, int((one[own] & other[of]).sum())) for own in range(12) for of in range(12)]
    found = zip(*(each.tolist() for each in sparse.shared_counts(groups, items, others, other_items)), strict=True)
    assert list(found) == [each for each in overlaps if each[2]]


def test_no_entries() -> None:
    none = np.zeros(0, np.int64)
    assert [len(each) for each in sparse.shared_counts(none, none, none, none)] == [0, 0, 0]
