"""Mixtures against scikit-learn's, against the formula, and against themselves in other numbers of shards."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest
from scipy.special import logsumexp
from sklearn.mixture import GaussianMixture

from hirag_dist.core.clustering.gaussian_mixture import (
    assign,
    mixture_statistics,
    sample_numbers,
    standardise,
)
from tests.core.planted_rows import blobs, densities, fitted_mixture


def test_expectation_and_maximisation_reach_the_optimum_of_separate_blobs() -> None:
    """There is one optimum. Scikit-learn's spherical components have a width each: the common one is their mean."""
    rows = standardise(blobs(2, 200, 3, seed=5)[0])
    ours = fitted_mixture(rows, 2, seed=3)
    theirs: Any = GaussianMixture(
        2, covariance_type="spherical", reg_covar=1e-9, means_init=ours.means.astype(float), tol=1e-6
    ).fit(rows.astype(float))
    assert ours.weights == pytest.approx(theirs.weights_, abs=1e-3)
    assert ours.means == pytest.approx(theirs.means_, abs=1e-3)
    assert ours.variance == pytest.approx(theirs.weights_ @ theirs.covariances_, rel=0.01)


def test_weights_sum_to_one_and_variances_keep_their_floor() -> None:
    rows = standardise(np.repeat(np.eye(3, dtype=np.float32), 20, axis=0))
    mixture = fitted_mixture(rows, 5, seed=1)
    assert mixture.weights.sum() == pytest.approx(1)
    assert mixture.variance >= np.float32(1e-4)
    assert np.isfinite(mixture.log_likelihood)


def test_standardise_centres_and_scales_by_one_factor() -> None:
    rows = np.array([[0.0, 0], [2, 200]], np.float32)
    scaled = standardise(rows)
    assert scaled.mean(axis=0) == pytest.approx([0, 0], abs=1e-6)
    assert float(np.mean(scaled**2)) == pytest.approx(1, rel=1e-5)
    assert scaled[1, 1] / scaled[1, 0] == pytest.approx(100, rel=1e-4), "directions are kept"
    assert (standardise(np.full((3, 2), np.nan, np.float32)) == 0).all()


class Device(ModuleType):
    """Stands for CuPy: numpy whose arrays must be fetched, and the arrays that it was given."""

    def __init__(self) -> None:
        super().__init__("device")
        self.fetched = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)

    def asnumpy(self, values: Any) -> Any:
        self.fetched += 1
        return np.asarray(values)


def test_the_likelihood_is_the_formulas() -> None:
    rows = standardise(blobs(3, 300, 3, seed=2, spread=4.0)[0])
    mixture = fitted_mixture(rows, 3, 0)
    statistics = mixture_statistics(np, rows, mixture)
    log_joint = densities(rows, mixture)
    shares = np.exp(log_joint - logsumexp(log_joint, axis=1, keepdims=True))
    assert statistics.log_likelihood == pytest.approx(logsumexp(log_joint, axis=1).sum(), rel=1e-4)
    assert statistics.counts == pytest.approx(shares.sum(axis=0), rel=1e-3)
    assert statistics.sums == pytest.approx(shares.T @ rows, abs=0.1)
    assert statistics.squares == pytest.approx(shares.T @ (rows**2).sum(axis=1), rel=1e-3)


def test_another_array_module_goes_the_same_way() -> None:
    rows = standardise(blobs(4, 50, 3, seed=1)[0])
    device = Device()
    ours, theirs = (fitted_mixture(rows, 4, 0, xp) for xp in (np, device))
    assert ours.means.tobytes() == theirs.means.tobytes()
    assert device.fetched > 0
    near, far = (assign(xp, rows, ours, 0.2) for xp in (np, device))
    assert np.array_equal(near.rows, far.rows)
    assert np.array_equal(near.shares, far.shares)
    assert np.array_equal(near.log_densities, far.log_densities)


def test_an_assignment_holds_the_best_and_what_passes_the_threshold() -> None:
    rows = standardise(blobs(5, 40, 2, seed=4, spread=6.0)[0])
    mixture = fitted_mixture(rows, 5, 0)
    log_joint = densities(rows, mixture)
    shares = np.exp(log_joint - logsumexp(log_joint, axis=1, keepdims=True))
    found = assign(np, rows, mixture, 0.2)
    expected = shares > 0.2
    expected[np.arange(len(rows)), shares.argmax(axis=1)] = True
    assert set(zip(found.rows.tolist(), found.components.tolist(), strict=True)) == set(
        zip(*(each.tolist() for each in np.nonzero(expected)), strict=True)
    )
    assert found.shares == pytest.approx(shares[found.rows, found.components], abs=1e-3)
    assert np.array_equal(assign(np, rows, mixture, 1.0).components, shares.argmax(axis=1))
    assert found.log_densities == pytest.approx(logsumexp(log_joint, axis=1), abs=1e-3)


def test_a_sample_is_of_distinct_rows_in_order_and_the_seeds() -> None:
    numbers = sample_numbers(1000, 100, 7)
    assert (np.diff(numbers) > 0).all()
    assert len(numbers) == 100
    assert np.array_equal(numbers, sample_numbers(1000, 100, 7))
    assert not np.array_equal(numbers, sample_numbers(1000, 100, 8))
    assert np.array_equal(sample_numbers(5, 100, 7), np.arange(5))


def test_no_responsibility_is_subnormal() -> None:
    """Some processors take tens of times as long for operations on such numbers."""
    rows = standardise(blobs(40, 30, 8, seed=4, spread=0.1)[0])
    mixture = fitted_mixture(rows, 40, 0)
    found = assign(np, rows, mixture, 0.0)
    assert len(found.shares) == len(rows) * 40
    assert found.shares.min() > 1e-30
    assert found.shares.max() <= 1
