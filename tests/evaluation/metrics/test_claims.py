"""Claims counted and grouped: cases worked by hand, and scikit-learn's clustering, which the paper used."""

from __future__ import annotations

import random

import numpy as np
import pytest
from scipy.spatial.distance import squareform
from sklearn.cluster import AgglomerativeClustering

from hirag_dist.evaluation.metrics.overlap import cluster_counts, distinct_claims, rouge_l_distances


def test_claims_that_differ_in_form_alone_are_one() -> None:
    claims = ["Ann owns a mill.", "ann owns  a mill", "ANN OWNS A MILL!", "Ann owns two mills.", "  ", "—"]
    assert distinct_claims(claims) == ["Ann owns a mill.", "Ann owns two mills."]


@pytest.mark.parametrize(("claims", "counts"), [([], [0, 0, 0, 0]), (["one"], [1, 1, 1, 1])])
def test_fewer_than_two_claims(claims: list[str], counts: list[int]) -> None:
    assert cluster_counts(claims) == counts


def test_the_clusters_are_those_of_scikit_learn() -> None:
    draw = random.Random(3)
    claims = distinct_claims([" ".join(draw.choices("abcdefghij", k=draw.randrange(3, 9))) for _ in range(60)])
    distances = squareform(rouge_l_distances(claims))
    thresholds = [0.35, 0.52, 0.61, 0.73]  # no distance falls on one, where the two rules differ
    assert not np.any(np.isclose(distances[:, :, None], thresholds))
    expected = [
        AgglomerativeClustering(n_clusters=None, metric="precomputed", linkage="complete", distance_threshold=each)
        .fit(distances)
        .n_clusters_
        for each in thresholds
    ]
    assert cluster_counts(claims, thresholds) == expected
    assert expected == sorted(expected, reverse=True)
    assert 1 < expected[-1] < expected[0] < len(claims)
