"""Mixtures against scikit-learn's, against the formula, and against themselves in other numbers of shards."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.special import logsumexp
from sklearn.mixture import GaussianMixture

from hirag_dist.core.mixture import expectation_maximisation, standardise
from hirag_dist.types import Mixture
from tests.core.planted_rows import Rows, blobs, densities


def fitted(rows: Rows, n_components: int, seed: int) -> Mixture:
    return expectation_maximisation(np, rows, n_components, seed)


@pytest.mark.parametrize(("n_blobs", "per_blob", "n_dims"), [(4, 60, 2), (10, 30, 16), (25, 20, 8)])
def test_likelihood_is_not_worse_than_scikit_learns(n_blobs: int, per_blob: int, n_dims: int) -> None:
    rows = standardise(blobs(n_blobs, per_blob, n_dims, seed=n_blobs)[0])
    ours = fitted(rows, n_blobs, seed=0)
    theirs = GaussianMixture(n_blobs, covariance_type="diag", reg_covar=1e-4, init_params="k-means++", random_state=0)
    theirs.fit(rows)
    best = theirs.score(rows) * len(rows)
    achieved = float(logsumexp(densities(rows, ours), axis=1).sum())
    assert achieved >= best - 0.01 * abs(best)
    assert ours.log_likelihood == pytest.approx(achieved, abs=0.01 * len(rows))


def test_expectation_and_maximisation_reach_scikit_learns_optimum_from_the_same_start() -> None:
    """Two well separated blobs: there is one optimum, and both must be at it."""
    rows = standardise(blobs(2, 200, 3, seed=5)[0])
    ours = fitted(rows, 2, seed=3)
    theirs: Any = GaussianMixture(
        2, covariance_type="diag", reg_covar=1e-9, means_init=ours.means.astype(float), tol=1e-6
    ).fit(rows.astype(float))
    assert ours.weights == pytest.approx(theirs.weights_, abs=1e-3)
    assert ours.means == pytest.approx(theirs.means_, abs=1e-3)
    assert ours.variances == pytest.approx(theirs.covariances_, rel=0.02, abs=1e-4)
    assert ours.bic == pytest.approx(theirs.bic(rows.astype(float)), rel=1e-3)


def test_weights_sum_to_one_and_variances_keep_their_floor() -> None:
    rows = standardise(np.repeat(np.eye(3, dtype=np.float32), 20, axis=0))
    mixture = fitted(rows, 5, seed=1)
    assert mixture.weights.sum() == pytest.approx(1)
    assert mixture.variances.min() >= np.float32(1e-4)
    assert np.isfinite(mixture.log_likelihood)


@pytest.mark.parametrize("n_components", [0, 4, -1])
def test_a_mixture_needs_a_row_for_every_component(n_components: int) -> None:
    with pytest.raises(ValueError, match="between 1 and the 3 rows"):
        fitted(np.zeros((3, 2), np.float32), n_components, seed=0)


def test_standardise_centres_and_scales_by_one_factor() -> None:
    rows = np.array([[0.0, 0], [2, 200]], np.float32)
    scaled = standardise(rows)
    assert scaled.mean(axis=0) == pytest.approx([0, 0], abs=1e-6)
    assert float(np.mean(scaled**2)) == pytest.approx(1, rel=1e-5)
    assert scaled[1, 1] / scaled[1, 0] == pytest.approx(100, rel=1e-4), "directions are kept"
    assert (standardise(np.full((3, 2), np.nan, np.float32)) == 0).all()
