from __future__ import annotations

import numpy as np
import pytest

from hirag_dist.core.entities.skeleton import (
    RESTART,
    allowance,
    central_chunks,
    chosen,
    expected_tokens,
    keywords_of,
    term_hash,
)


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


def test_the_most_central_chunks_that_fit_are_chosen() -> None:
    sizes = np.array([10, 10, 10])
    scores = np.array([0.5, 0.5, 0.2])
    assert chosen(scores, ["b", "a", "c"], sizes, 19).tolist() == [False, True, False]  # ties by the smaller id
    assert chosen(scores, ["b", "a", "c"], sizes, 20).tolist() == [True, True, False]
    assert chosen(scores, ["b", "a", "c"], sizes, 30).all()
    assert not chosen(scores, ["b", "a", "c"], sizes, 9).any()
    assert chosen(np.zeros(0), [], np.zeros(0, np.int64), 9).tolist() == []


def test_the_share_is_kept_whatever_the_size_of_the_updates() -> None:
    """With one chunk of 10 tokens at a time, the model reads the share of all but for a chunk."""
    by_model = 0
    for before in range(0, 2000, 10):
        by_model += 10 if allowance(0.3, 10, before, by_model) >= 10 else 0
        assert 0 <= 0.3 * (before + 10) - by_model < 10
    assert allowance(0.3, 50, 1000, 1000) == 0  # chunks that stay keep what has read them


def test_keywords_are_bounded_and_of_any_writing() -> None:
    assert keywords_of("The plague, the plague of Athens")[0] == ("plague", 2)
    assert "of" not in dict(keywords_of("of of of Athens"))
    assert "東京" in dict(keywords_of("東京都と東京駅"))
    assert len(keywords_of(" ".join(f"word{number}" for number in range(1000)))) == 128
    assert keywords_of("") == []
    assert 0 <= term_hash("plague") < 1 << 63 != term_hash("athens")


def test_a_text_of_more_words_is_expected_to_cost_more() -> None:
    few, many = expected_tokens("0x" + 400 * "f", 100), expected_tokens("word " * 100, 100)
    assert 300 < few < many < 600
    assert expected_tokens("東京都" * 50, 100) > few
    assert expected_tokens("", 0) > 0


def test_no_chunks_have_no_scores() -> None:
    nothing = np.zeros(0, np.int64)
    assert central_chunks(nothing, nothing, nothing, 0).tolist() == []
    assert central_chunks(nothing, nothing, nothing, 2).tolist() == [0.5, 0.5]
