"""Starts from a tree of merges: the groups of a slower, obvious version, in the form of every covariance."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.cluster import AgglomerativeClustering

from hirag_dist.core.clustering.gaussian_mixture import MIN_VARIANCE, standardise
from hirag_dist.core.clustering.linkage import ward_tree
from hirag_dist.core.clustering.ward import cut_mixture
from hirag_dist.types import Covariance
from tests.core.planted_rows import blobs


def test_means_weights_and_width_are_those_of_the_merged_groups() -> None:
    rows = standardise(blobs(6, 10, 4, seed=3, spread=0.4)[0])
    found = cut_mixture(rows, ward_tree(rows), 6, "tied")
    labels = AgglomerativeClustering(6, linkage="ward").fit_predict(rows)
    groups = [rows[labels == label] for label in range(6)]
    means = np.stack([group.mean(axis=0) for group in groups])
    order, other = np.lexsort(found.means.T), np.lexsort(means.T)
    assert np.allclose(found.means[order], means[other], atol=1e-5)
    assert np.allclose(found.weights[order], np.array([len(group) / 60 for group in groups])[other])
    apart = sum(float(((group - group.mean(axis=0)) ** 2).sum()) for group in groups)
    assert np.allclose(found.variances, apart / ((60 - 6) * 4), rtol=1e-4)


@pytest.mark.parametrize(("covariance", "shape"), [("tied", (1,)), ("spherical", (1,)), ("diag", (3,))])
def test_every_covariance_starts_as_wide_in_all_directions(covariance: Covariance, shape: tuple[int, ...]) -> None:
    rows = standardise(blobs(3, 8, 3, seed=3, spread=0.4)[0])
    found = cut_mixture(rows, ward_tree(rows), 3, covariance)
    assert found.variances.shape == (3, *shape)
    assert np.ptp(found.variances) == 0
    full = cut_mixture(rows, ward_tree(rows), 3, "full").variances
    assert np.array_equal(full, found.variances.flat[0] * np.broadcast_to(np.eye(3, dtype=np.float32), (3, 3, 3)))


@pytest.mark.parametrize("n_rows", [1, 2, 9])
def test_copies_are_one_component_as_narrow_as_may_be(n_rows: int) -> None:
    rows = np.zeros((n_rows, 4), np.float32)
    found = cut_mixture(rows, ward_tree(rows), max(n_rows - 1, 1), "tied")
    assert found.weights.tolist() == [1.0]
    assert found.variances.tolist() == [[np.float32(MIN_VARIANCE)]]
