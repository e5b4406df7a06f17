"""k-means against scikit-learn's from the same start, on copies, and in shards."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.cluster import KMeans

from hirag_dist.core.clustering.kmeans import labelled_sums, lloyd, nearest, start_means
from hirag_dist.types import FloatMatrix, GroupSums
from tests.core.planted_rows import Rows, blobs


def sums_of(rows: Rows, means: FloatMatrix) -> GroupSums:
    return labelled_sums(rows, nearest(rows, means), len(means))


@pytest.mark.parametrize("spread", [0.5, 8.0])
def test_ends_where_scikit_learn_does_from_the_same_means(spread: float) -> None:
    rows, _ = blobs(12, 60, 5, seed=3, spread=spread)
    start = start_means(rows, 12, seed=1)
    means, sums = lloyd(lambda means: sums_of(rows, means), start, 200)
    theirs: Any = KMeans(12, init=start.astype(float), n_init=1, tol=0).fit(rows.astype(float))
    assert sums.spread == pytest.approx(theirs.inertia_, rel=2e-3)
    assert means == pytest.approx(sums.sums / sums.counts[:, None], rel=1e-5)


def test_shards_add_up_to_the_whole_and_blocks_change_nothing() -> None:
    rows, _ = blobs(5, 100, 3, seed=1)
    means = start_means(rows, 7, seed=0)
    whole, parts = sums_of(rows, means), [sums_of(part, means) for part in np.split(rows, 5)]
    added = parts[0]
    for part in parts[1:]:
        added += part
    assert np.array_equal(added.counts, whole.counts)
    assert added.sums == pytest.approx(whole.sums)
    assert added.squares == pytest.approx(whole.squares)
    assert np.array_equal(nearest(rows, means, 33), nearest(rows, means))
