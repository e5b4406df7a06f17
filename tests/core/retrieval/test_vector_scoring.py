"""Exact scores and the nearest of some rows (Eq. 12) against slower versions."""

from __future__ import annotations

import numpy as np
import pytest

from hirag_dist.core.retrieval.vector_scoring import exact_scores, nearest


@pytest.mark.parametrize("dim", [1, 7, 8, 9, 384])
def test_scores_are_products_in_float64(dim: int) -> None:
    rng = np.random.default_rng(dim)
    vectors = rng.normal(size=(100, dim)).astype(np.float32)
    query = rng.normal(size=dim).astype(np.float32)
    rows = rng.permutation(100)[:30]
    wanted = vectors[rows].astype(np.float64) @ query.astype(np.float64)
    np.testing.assert_allclose(exact_scores(vectors, rows, query), wanted, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("limit", [1, 3, 10, 1000])
def test_the_best_rows_come_first_and_ties_go_by_row(limit: int) -> None:
    """Eq. 12."""
    rng = np.random.default_rng(limit)
    for _ in range(50):
        n_scores = int(rng.integers(1, 60))
        rows = rng.permutation(200)[:n_scores].astype(np.int64)
        scores = rng.integers(0, 5, n_scores).astype(np.float32)
        vectors = np.zeros((200, 1), np.float32)
        vectors[rows, 0] = scores
        found = nearest(vectors, rows, np.ones(1, np.float32), limit)[0].tolist()
        by_score = sorted(zip((-scores).tolist(), rows.tolist(), strict=True))
        assert found == [row for _, row in by_score[:limit]]


def test_equal_vectors_have_equal_scores_wherever_they_lie() -> None:
    rng = np.random.default_rng(5)
    vectors = rng.standard_normal((5003, 384)).astype(np.float32)
    vectors[[7, 2500, 5002]] = vectors[0]
    query = rng.standard_normal(384).astype(np.float32)
    rows = np.array([5002, 7, 0, 2500])
    assert len(set(exact_scores(vectors, rows, query).tolist())) == 1
    found, scores = nearest(vectors, rows, query, 3)
    assert found.tolist() == [0, 7, 2500]
    assert np.array_equal(scores, exact_scores(vectors, found, query))
