"""Sums of groups: those of a sparse product, to the last bit."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array

from hirag_dist.core.clustering.anchored import group_sums
from hirag_dist.core.sparse import bounds_of


def test_sums_are_those_of_a_product() -> None:
    random = np.random.default_rng(1)
    vectors = random.normal(size=(300, 9)).astype(np.float32)
    groups = np.sort(random.integers(0, 20, 700))
    groups[groups == 7] = 8  # an empty group
    rows = random.integers(0, 300, 700)
    bounds = bounds_of(groups, 21)
    product = csr_array((np.ones(700, np.float32), rows, bounds), shape=(21, 300)) @ vectors
    assert np.array_equal(group_sums(vectors, rows, bounds), product)
