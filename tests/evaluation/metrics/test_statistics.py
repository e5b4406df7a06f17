"""Statistics of evaluations, against values worked by hand, the plainest loop, and scipy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from hirag_dist.evaluation.metrics.statistics import bootstrap_means, holm, wilcoxon
from hirag_dist.types.index_info import Interval


def test_the_interval_agrees_with_scipys() -> None:
    values = np.random.default_rng(8).normal(size=60)
    theirs = stats.bootstrap((values,), np.mean, method="percentile", random_state=3, n_resamples=9999)
    (found,) = bootstrap_means(values[:, None])
    low, high = theirs.confidence_interval
    assert (found.low, found.high) == pytest.approx((low, high), abs=0.02)


def test_columns_are_drawn_together() -> None:
    """A column that is another one plus a constant has a difference without any spread, however wide both are."""
    values = np.random.default_rng(2).random(40)
    together = bootstrap_means(np.stack([values, values + 1, values + 1 - values], axis=1))
    assert together[1].low == pytest.approx(together[0].low + 1)
    assert together[2] == Interval(*[pytest.approx(1.0)] * 3)
    assert together[2].beyond_zero
    assert not bootstrap_means((values - values)[:, None])[0].beyond_zero


def test_questions_without_a_value_count_for_nothing() -> None:
    values = np.array([1.0, np.nan, 0.0, np.nan])
    assert bootstrap_means(values[:, None])[0].value == 0.5
    assert math.isnan(bootstrap_means([[np.nan], [np.nan]])[0].value)


def test_a_table_without_two_dimensions_is_refused() -> None:
    with pytest.raises(ValueError, match="two dimensions"):
        bootstrap_means([1.0, 2.0])


def test_signed_ranks_agree_with_scipy() -> None:
    differences = np.random.default_rng(9).integers(-2, 4, 60).astype(float)
    theirs = stats.wilcoxon(differences, method="asymptotic").pvalue
    found = wilcoxon(np.append(differences, np.nan))
    assert found is not None
    assert found.p == pytest.approx(theirs)
    assert found.z > 0
    assert wilcoxon([0.0, 0.0]) == (0.0, 1.0)
    assert wilcoxon([np.nan]) is None


def test_holm_by_hand() -> None:
    """0.005·4, 0.01·3, 0.03·2, 0.04·1: the last is raised to the one before it."""
    assert holm([0.04, 0.005, 0.03, 0.01]) == pytest.approx([0.06, 0.02, 0.06, 0.03])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []
