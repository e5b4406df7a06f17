"""Compactness: worked by hand, and against the cosines one by one."""

from __future__ import annotations

import numpy as np
import pytest

from hirag_dist.core.drift import measures as module
from hirag_dist.core.drift.measures import compactness
from hirag_dist.types import FloatMatrix


def unit_rows(n: int, dim: int, seed: int) -> FloatMatrix:
    rows = np.random.default_rng(seed).standard_normal((n, dim))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def test_two_vectors_at_a_right_angle() -> None:
    vectors = np.eye(2, dtype=np.float32)
    assert compactness(vectors, np.array([0, 0])) == pytest.approx(np.sqrt(0.5))
    assert compactness(vectors, np.array([0, 1])) == 1.0
    assert compactness(vectors, np.array([-1, 3])) == 1.0, "rows in no cluster do not count"
    assert compactness(vectors, np.array([-1, -1])) == 1.0


@pytest.mark.parametrize("block_rows", [1, 7, 10_000])
def test_the_mean_cosine_to_the_centroid(block_rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BLOCK_ROWS", block_rows)
    vectors, labels = unit_rows(60, 5, seed=1), np.random.default_rng(2).integers(-1, 6, 60)
    cosines = []
    for row in np.flatnonzero(labels >= 0):
        centroid = vectors[labels == labels[row]].astype(np.float64).mean(axis=0)
        cosines.append(vectors[row] @ centroid / np.linalg.norm(centroid))
    assert compactness(vectors, labels) == pytest.approx(np.mean(cosines), abs=1e-7)
