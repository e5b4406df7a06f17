"""Clusters by the promises of Eq. 8, also on bad input, and against planted blobs; cells against one whole."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.special import logsumexp
from sklearn.metrics import adjusted_rand_score

from hirag_dist.compute.kernels import CpuKernels
from hirag_dist.core.clustering.gaussian_mixture import standardised
from hirag_dist.core.clustering.partition_tree import ClusterSettings
from hirag_dist.core.clustering.soft_clusters import SoftClusters, soft_clusters
from hirag_dist.core.clustering.ward import row_tree
from tests.core.planted_rows import Rows, blobs, densities, expected_mixture, labelled_mixture

KERNELS = CpuKernels()


def wanted(target_size: int, max_size: int, threshold: float, seed: int) -> ClusterSettings:
    return ClusterSettings(target_size, max_size, threshold, seed)


def clusters_of(rows: Rows, target_size: int, max_size: int, threshold: float, seed: int) -> SoftClusters:
    return soft_clusters(rows, wanted(target_size, max_size, threshold, seed), KERNELS)


def check_promises(found: SoftClusters, n_rows: int, max_size: int, threshold: float) -> None:
    assert set(found.rows.tolist()) == set(range(n_rows)), "the clusters cover the layer"
    assert (np.bincount(found.rows[found.best], minlength=n_rows) == 1).all(), "one best cluster for every row"
    assert (found.sizes > 0).all()
    assert found.sizes.max() <= max_size
    assert len(set(zip(found.clusters.tolist(), found.rows.tolist(), strict=True))) == len(found.rows)
    assert (np.lexsort((found.rows, found.clusters)) == np.arange(len(found.rows))).all(), "sorted by (cluster, row)"
    assert np.isfinite(found.responsibilities).all()
    assert (found.responsibilities[~found.best] >= threshold).all()
    best = dict(zip(found.rows[found.best].tolist(), found.responsibilities[found.best].tolist(), strict=True))
    assert all(
        share <= best[row] for row, share in zip(found.rows.tolist(), found.responsibilities.tolist(), strict=True)
    )
    members = [tuple(found.rows[found.clusters == cluster].tolist()) for cluster in range(len(found.sizes))]
    assert len(set(members)) == len(members), "no cluster twice"


def same(first: SoftClusters, second: SoftClusters) -> bool:
    return first.n_components == second.n_components and all(
        np.array_equal(getattr(first, name), getattr(second, name))
        for name in ("clusters", "rows", "responsibilities", "best")
    )


@pytest.mark.parametrize("n_dims", [2, 16])
def test_planted_blobs_are_recovered(n_dims: int) -> None:
    rows, labels = blobs(12, 20, n_dims, seed=n_dims, spread=0.2)
    found = clusters_of(rows, 20, 40, 0.1, 0)
    best = np.empty(len(rows), np.int64)
    best[found.rows[found.best]] = found.clusters[found.best]
    assert adjusted_rand_score(labels, best) > 0.9
    check_promises(found, len(rows), 40, 0.1)


def test_a_row_between_two_blobs_belongs_to_both() -> None:
    right = np.linspace(0.8, 6, 20)
    rows = np.concatenate([-right, right, [0.0]]).astype(np.float32).reshape(-1, 1)
    found = clusters_of(rows, 20, 40, 0.1, 0)
    shares = found.responsibilities[found.rows == 40]
    assert found.n_components == 2
    assert shares == pytest.approx([0.5, 0.5], abs=0.35)
    assert float(shares.sum()) == pytest.approx(1, abs=1e-5)
    assert found.sizes.sum() < 2 * 41, "the outer rows are members of one each"


def test_responsibilities_are_those_of_the_formula_and_sum_to_one() -> None:
    rows = standardised(np.random.default_rng(1).normal(size=(120, 4)).astype(np.float32))[0]
    settings = ClusterSettings(20, 1000, 0.01, 9)
    mixture = expected_mixture(rows, labelled_mixture(rows, row_tree(rows).cut(6)))
    expected = np.exp(densities(rows, mixture) - logsumexp(densities(rows, mixture), axis=1, keepdims=True))
    found = soft_clusters(rows, settings, KERNELS)
    for row in range(len(rows)):
        ours = np.sort(found.responsibilities[found.rows == row])
        share = np.sort(expected[row])[-len(ours) :]
        assert ours == pytest.approx(share, abs=1e-3)
        assert 1 - 0.01 * len(mixture.weights) <= ours.sum() <= 1.0001
        assert len(ours) == pytest.approx((expected[row] >= 0.01).sum(), abs=1)


@pytest.mark.parametrize("max_size", [2, 7])
@pytest.mark.parametrize("kind", ["noise", "copies", "mostly copies", "lumps"])
def test_no_cluster_is_larger_than_it_may_be(kind: str, max_size: int) -> None:
    rng = np.random.default_rng(max_size)
    rows = {
        "noise": rng.normal(size=(200, 4)),
        "copies": np.ones((200, 4)),
        "mostly copies": np.concatenate([np.zeros((190, 4)), rng.normal(size=(10, 4))]),
        "lumps": np.repeat(rng.normal(size=(4, 4)), 50, axis=0),
    }[kind].astype(np.float32)
    found = clusters_of(rows, min(max_size, 10), max_size, 0.1, 0)
    check_promises(found, 200, max_size, 0.1)


@pytest.mark.parametrize(
    "rows",
    [
        np.ones((1, 3)),
        np.array([[0.0, 1], [5, 5]]),
        np.zeros((2, 4)),
        np.zeros((50, 4)),
        np.full((50, 4), 7.0),
        np.repeat([[0.0, 1], [1, 0], [3, 3]], [30, 30, 1], axis=0),
        np.full((30, 2), np.nan),
        np.where(np.eye(40, 3) > 0, np.nan, np.arange(120).reshape(40, 3)),
        np.where(np.eye(40, 3) > 0, -np.inf, 1.0),
        np.concatenate([np.zeros((60, 2)), np.full((1, 2), 1e12)]),
        np.arange(100).reshape(100, 1) * 1e-30,
        np.concatenate([np.random.default_rng(0).normal(size=(60, 2)), np.zeros((60, 2))]) * 1e6,
    ],
    ids=["one row", "two rows", "two zeros", "zeros", "copies", "fewer points than components", "all NaN", "some NaN",
         "infinite", "far outlier", "tiny", "large"],
)  # fmt: skip
def test_bad_input_is_grouped_all_the_same(rows: NDArray[np.float64]) -> None:
    single = rows.astype(np.float32)
    found = clusters_of(single, 5, 10, 0.1, 0)
    check_promises(found, len(rows), 10, 0.1)
    assert same(found, clusters_of(single, 5, 10, 0.1, 0))


@examples(derandomize=True, deadline=None, max_examples=30)
@given(st.integers(1, 60), st.integers(1, 5), st.integers(2, 8), st.integers(0, 9), st.integers(0, 1000), st.data())
def test_any_layer_keeps_the_promises(
    n_rows: int, n_dims: int, target: int, slack: int, seed: int, data: st.DataObject
) -> None:
    distinct = data.draw(st.integers(1, n_rows))
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(distinct, n_dims))[rng.integers(0, distinct, n_rows)].astype(np.float32)
    check_promises(clusters_of(rows, target, target + slack, 0.1, seed), n_rows, target + slack, 0.1)


def test_the_seed_alone_decides() -> None:
    """It draws what the cut into cells starts from; a layer of one cell needs none."""
    rows = np.random.default_rng(4).normal(size=(400, 6)).astype(np.float32)
    first = clusters_of(rows, 20, 40, 0.1, 1)
    assert same(first, clusters_of(rows.copy(order="F"), 20, 40, 0.1, 1))
    assert same(first, clusters_of(rows, 20, 40, 0.1, 2))
    one, other = (soft_clusters(rows, replace(wanted(20, 40, 0.1, seed), cell_rows=100), KERNELS) for seed in (1, 2))
    assert not same(one, other)
