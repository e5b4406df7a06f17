from __future__ import annotations

import numpy as np
import pytest

from hirag_dist.core.entities.skeleton import RESTART, central_chunks, chosen, keywords_of, share_of, term_hash


def scores(*chunks: dict[int, int]) -> list[float]:
    pairs = [(row, term, count) for row, chunk in enumerate(chunks) for term, count in chunk.items()]
    chunk_of, term_of, counts = (np.array(column, np.int64) for column in zip(*pairs, strict=True))
    found: list[float] = central_chunks(chunk_of, term_of, counts, len(chunks)).tolist()
    return found


def dense_scores(chunks: list[dict[int, int]]) -> np.ndarray:
    """The same by a matrix of all transitions and an eigenvector."""
    n, terms = len(chunks), sorted({term for chunk in chunks for term in chunk})
    weights = np.zeros((n, len(terms)))
    for row, chunk in enumerate(chunks):
        for term, count in chunk.items():
            holders = sum(term in other for other in chunks)
            if holders > 1:
                weights[row, terms.index(term)] = np.log1p(count) * np.log((n + 1) / (holders + 0.5))
    weights = np.maximum(weights, 0)
    to_terms = weights / np.maximum(weights.sum(1, keepdims=True), 1e-300)
    to_chunks = weights.T / np.maximum(weights.sum(0)[:, None], 1e-300)
    walk = to_terms @ to_chunks
    walk[weights.sum(1) == 0] = 1 / n
    walk = (1 - RESTART) * walk + RESTART / n
    values, vectors = np.linalg.eig(walk.T)
    stationary = np.real(vectors[:, np.argmax(np.real(values))])
    return stationary / stationary.sum()


def test_the_chunk_that_shares_keywords_with_many_is_central() -> None:
    found = scores({1: 1, 2: 1, 3: 1}, {1: 2}, {2: 2}, {3: 2}, {9: 5})
    assert np.argmax(found) == 0
    assert sum(found) == pytest.approx(1)
    assert found[4] == min(found)


def test_scores_equal_those_of_the_dense_matrix() -> None:
    random = np.random.default_rng(3)
    chunks = [
        {int(term): int(random.integers(1, 5)) for term in random.choice(40, int(random.integers(1, 12)), False)}
        for _ in range(30)
    ]
    assert np.allclose(scores(*chunks), dense_scores(chunks), atol=1e-8)


def test_ties_go_to_the_smaller_id() -> None:
    assert chosen(np.array([0.5, 0.5, 0.2]), ["b", "a", "c"], 1).tolist() == [False, True, False]
    assert chosen(np.array([0.5, 0.5]), ["b", "a"], 5).all()
    assert not chosen(np.array([0.5, 0.5]), ["b", "a"], 0).any()


def test_the_share_is_kept_whatever_the_size_of_the_updates() -> None:
    """One chunk at a time, the model reads about the share of all chunks."""
    by_model = 0
    for before in range(200):
        by_model += share_of(0.3, 1, before, by_model)
        assert abs(by_model - 0.3 * (before + 1)) <= 1
    assert share_of(0.3, 5, 100, 100) == 0  # chunks that stay keep what has read them
    assert share_of(0.3, 5, 100, 0) == 5


def test_keywords_are_bounded_and_of_any_writing() -> None:
    assert keywords_of("The plague, the plague of Athens")[0] == ("plague", 2)
    assert "of" not in dict(keywords_of("of of of Athens"))
    assert "東京" in dict(keywords_of("東京都と東京駅"))
    assert len(keywords_of(" ".join(f"word{number}" for number in range(1000)))) == 128
    assert keywords_of("") == []
    assert 0 <= term_hash("plague") < 1 << 63 != term_hash("athens")


def test_no_chunks_have_no_scores() -> None:
    nothing = np.zeros(0, np.int64)
    assert central_chunks(nothing, nothing, nothing, 0).tolist() == []
    assert central_chunks(nothing, nothing, nothing, 2).tolist() == [0.5, 0.5]
