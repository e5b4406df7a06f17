"""Clusters by the promises of Eq. 8, also on bad input, and against planted blobs; cells against one whole."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st
from scipy.special import logsumexp

from hirag_dist.compute.kernels import CpuKernels
from hirag_dist.core.clustering.gaussian_mixture import standardised
from hirag_dist.core.clustering.partition_tree import ClusterSettings
from hirag_dist.core.clustering.soft_clusters import SoftClusters, soft_clusters
from hirag_dist.core.clustering.ward import row_tree
from tests.core.planted_rows import Rows, densities, expected_mixture, labelled_mixture

KERNELS = CpuKernels()


def clusters_of(rows: Rows, target_size: int, max_size: int, threshold: float, seed: int) -> SoftClusters:
    return soft_clusters(rows, ClusterSettings(target_size, max_size, threshold, seed), KERNELS)


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


NOISE = np.random.default_rng(0).normal(size=(200, 4))
BAD = {
    "noise": NOISE,
    "one row": NOISE[:1],
    "two rows": NOISE[:2],
    "zeros": np.zeros((200, 4)),
    "mostly copies": np.concatenate([np.zeros((190, 4)), NOISE[:10]]),
    "lumps": np.repeat(NOISE[:4], 50, axis=0),
    "fewer points than components": np.repeat(NOISE[:3], [30, 30, 1], axis=0),
    "all NaN": np.full((30, 2), np.nan),
    "some NaN": np.where(NOISE > 2, np.nan, NOISE),
    "infinite": np.where(NOISE > 2, -np.inf, NOISE),
    "far outlier": np.concatenate([NOISE, np.full((1, 4), 1e12)]),
    "tiny": NOISE * 1e-30,
    "large": np.concatenate([NOISE[:60], np.zeros((60, 4))]) * 1e6,
}


@pytest.mark.parametrize("kind", BAD)
def test_no_cluster_is_larger_than_it_may_be(kind: str) -> None:
    rows = BAD[kind].astype(np.float32)
    found = clusters_of(rows, 5, 10, 0.1, 0)
    check_promises(found, len(rows), 10, 0.1)
    assert same(found, clusters_of(rows, 5, 10, 0.1, 0))


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
    one, other = (soft_clusters(rows, ClusterSettings(20, 40, 0.1, seed, cell_rows=100), KERNELS) for seed in (1, 2))
    assert not same(one, other)
