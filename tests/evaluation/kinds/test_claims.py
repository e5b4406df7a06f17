"""ROUGE-L: the examples of the paper that defines it, scripts other than Latin, and the obvious slow way."""

from __future__ import annotations

import random
from functools import lru_cache

import numpy as np
import pytest
from scipy.spatial.distance import squareform
from sklearn.cluster import AgglomerativeClustering

from hirag_dist.evaluation.kinds.claims import cluster_counts, distinct_claims, rouge_l_distances


def test_claims_that_differ_in_form_alone_are_one() -> None:
    claims = ["Ann owns a mill.", "ann owns  a mill", "ANN OWNS A MILL!", "Ann owns two mills.", "  ", "—"]
    assert distinct_claims(claims) == ["Ann owns a mill.", "Ann owns two mills."]


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
    assert (cluster_counts([]), cluster_counts(["one"])) == ([0] * 4, [1] * 4)


GUNMAN = "police killed the gunman"


@pytest.mark.parametrize(
    ("candidate", "expected"),
    [
        ("police kill the gunman", 3 / 4),  # Lin (2004), section 3.1: S2
        ("the gunman kill police", 2 / 4),  # S3
        ("the gunman police killed", 2 / 4),  # S4: only one of two common pairs counts
        ("the POLICE killed, at last, the gunman!", 2 * 4 / (4 + 7)),
        ("police", 2 * 1 / (4 + 1)),
        ("it rained", 0.0),
        ("", 0.0),
        ("…", 0.0),
    ],
)
def test_the_worked_examples(candidate: str, expected: float) -> None:
    assert rouge_l_distances([GUNMAN, candidate, GUNMAN])[:2] == pytest.approx([1 - expected, 0.0])
    assert rouge_l_distances([candidate, GUNMAN]) == pytest.approx([1 - expected])


def slow_distance(one: list[str], other: list[str]) -> float:
    @lru_cache(None)
    def common(i: int, j: int) -> int:
        if i == len(one) or j == len(other):
            return 0
        if one[i] == other[j]:
            return 1 + common(i + 1, j + 1)
        return max(common(i + 1, j), common(i, j + 1))

    return 1 - 2 * common(0, 0) / max(len(one) + len(other), 1)


def test_all_pairs_are_as_the_definition_says_one_by_one() -> None:
    draw = random.Random(5)
    texts = [" ".join(draw.choices("abcde", k=draw.randrange(0, 9))) for _ in range(25)]
    found = squareform(rouge_l_distances(texts))
    for row, one in enumerate(texts):
        for column, other in enumerate(texts[:row]):
            assert found[row, column] == pytest.approx(slow_distance(one.split(), other.split())), (one, other)
