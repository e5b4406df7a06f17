"""Overlaps of groups: those of the product of two sparse matrices, wherever the work is cut."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

from hirag_dist.core import sparse


@pytest.mark.parametrize("block", [1, 50, 10**6])
def test_overlaps_are_those_of_a_product(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sparse, "_BLOCK_PAIRS", block)
    random = np.random.default_rng(block)
    one, other = (random.random((12, 40)) < share for share in (0.1, 0.3))
    one[3] = other[0] = False  # empty groups
    (groups, items), (others, other_items) = ([each[order] for each in found.nonzero()] for found, order in (
        (one, random.permutation(one.sum())), (other, random.permutation(other.sum())),
    ))  # fmt: skip
    found = sparse.shared_counts(groups, items, others, other_items)
    product = (csr_array(one.astype(int)) @ csr_array(other.astype(int)).T).toarray()
    own, of = product.nonzero()
    assert [each.tolist() for each in found] == [own.tolist(), of.tolist(), product[own, of].tolist()]


def test_no_entries() -> None:
    none = np.zeros(0, np.int64)
    assert [len(each) for each in sparse.shared_counts(none, none, none, none)] == [0, 0, 0]
