"""Overlaps of groups: those of sets."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array

from hirag_dist.core.clustering.anchored import group_sums
from hirag_dist.core.groupby import bounds_of, shared_counts


def test_sums_are_those_of_a_product() -> None:
    random = np.random.default_rng(1)
    vectors = random.normal(size=(300, 9)).astype(np.float32)
    groups = np.sort(random.integers(0, 20, 700))
    groups[groups == 7] = 8  # an empty group
    rows = random.integers(0, 300, 700)
    bounds = bounds_of(groups, 21)
    product = csr_array((np.ones(700, np.float32), rows, bounds), shape=(21, 300)) @ vectors
    assert np.array_equal(group_sums(vectors, rows, bounds), product)


def test_overlaps_are_those_of_sets() -> None:
    random = np.random.default_rng(1)
    one, other = (random.random((12, 40)) < share for share in (0.1, 0.3))
    one[3] = other[0] = False  # empty groups
    (groups, items), (others, other_items) = ([each[order] for each in found.nonzero()] for found, order in (
        (one, random.permutation(one.sum())), (other, random.permutation(other.sum())),
    ))  # fmt: skip
    overlaps = [(own, of, int((one[own] & other[of]).sum())) for own in range(12) for of in range(12)]
    found = zip(*(each.tolist() for each in shared_counts(groups, items, others, other_items)), strict=True)
    assert list(found) == [each for each in overlaps if each[2]]


def test_no_entries() -> None:
    none = np.zeros(0, np.int64)
    assert [len(each) for each in shared_counts(none, none, none, none)] == [0, 0, 0]
