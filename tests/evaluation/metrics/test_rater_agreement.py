"""Kappas: the tables of the papers that define them."""

from __future__ import annotations

import numpy as np
import pytest

from hirag_dist.evaluation.metrics.win_rates import cohen_kappa, fleiss_kappa

# Fleiss (1971), as the example is usually given: 10 items, 14 raters, 5 categories.
FLEISS = [
    *([0, 0, 0, 0, 14], [0, 2, 6, 4, 2], [0, 0, 3, 5, 6], [0, 3, 9, 2, 0], [2, 2, 8, 1, 1]),
    *([7, 7, 0, 0, 0], [3, 2, 6, 3, 0], [2, 5, 3, 2, 2], [6, 5, 2, 1, 0], [0, 2, 2, 3, 7]),
]


def test_fleiss_example() -> None:
    assert fleiss_kappa(np.array(FLEISS)) == pytest.approx(0.20993, abs=5e-6)


def test_cohen_by_hand() -> None:
    """20 and 15 agreed of 50: p_o = 0.7, p_e = 0.5 · 0.6 + 0.5 · 0.4 = 0.5."""
    one = np.repeat([0, 0, 1, 1], [20, 5, 10, 15])
    other = np.repeat([0, 1, 0, 1], [20, 5, 10, 15])
    assert cohen_kappa(one, other) == pytest.approx(0.4)
    assert cohen_kappa(other, one) == pytest.approx(0.4)


def test_what_is_undefined_is_none() -> None:
    none = np.array([], np.int64)
    assert cohen_kappa(none, none) is None
    assert cohen_kappa(np.zeros(3, np.int64), np.zeros(3, np.int64)) is None, "one category: chance agrees fully"
    assert fleiss_kappa(np.zeros((0, 3), np.int64)) is None
    assert fleiss_kappa(np.array([[1, 0], [0, 1]])) is None, "one rater"
    assert fleiss_kappa(np.array([[3, 0], [3, 0]])) is None


def test_items_rated_unequally_often_are_refused() -> None:
    with pytest.raises(ValueError, match="as many ratings"):
        fleiss_kappa(np.array([[2, 0], [1, 0]]))
