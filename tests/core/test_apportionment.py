"""Whole shares add up to the total, whatever the weights."""

from __future__ import annotations

import numpy as np
import pytest

from hirag_dist.application.document_bill import apportion


@pytest.mark.parametrize("total", [0, 1, 7, 10_000_001, 2**53 + 1])
@pytest.mark.parametrize("seed", range(2))
def test_shares_add_up_and_are_near_their_weights(total: int, seed: int) -> None:
    weights = np.random.default_rng(seed).pareto(1.0, 37) * (np.arange(37) % 5 > 0)
    shares = apportion(total, weights)
    assert int(shares.sum()) == total
    exact = total * weights / weights.sum()
    assert (np.abs(shares - exact) <= 1 + 1e-9 * total).all()


def test_recorded_parts_are_their_own_shares() -> None:
    parts = np.array([3, 0, 41, 7])
    assert apportion(51, parts).tolist() == parts.tolist()
    assert apportion(0, np.zeros(0)).tolist() == []
