"""The search over all rows gives the result of scoring every row exactly, for all kinds of vectors of unit length."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from hirag_dist.core.retrieval.vector_scoring import nearest, nearest_of_all


def made(kind: str, n: int, dim: int, rng: np.random.Generator) -> NDArray[np.float32]:
    plain = rng.normal(size=(n, dim))
    match kind:
        case "close":  # all nearly the same, some twice
            plain = plain[:1] + rng.integers(0, 2, (n, dim)) * 1e-7
        case "sparse":
            plain *= rng.random((n, dim)) < 0.1
        case "whole":  # many ties
            plain = rng.integers(-1, 2, (n, dim)).astype(np.float64)
    lengths = np.linalg.norm(plain, axis=1, keepdims=True)
    return (plain / np.where(lengths > 0, lengths, 1.0)).astype(np.float32)


@settings(deadline=None, max_examples=300, derandomize=True)
@given(
    st.sampled_from(["unit", "close", "sparse", "whole"]),
    st.integers(1, 300),
    st.integers(1, 40),
    st.integers(1, 40),
    st.integers(0, 2**32),
)
def test_the_nearest_of_all_are_those_of_scoring_all(kind: str, n: int, dim: int, limit: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    vectors = made(kind, n, dim, rng)
    query = made(kind, 1, dim, rng)[0]
    end = int(rng.integers(0, n + 1))
    rows, scores = nearest_of_all(vectors, query, limit, end)
    wanted, wanted_scores = nearest(vectors, np.arange(end), query, limit)
    assert rows.tolist() == wanted.tolist()
    assert scores.tolist() == wanted_scores.tolist()


@pytest.mark.parametrize("broken", [np.nan, np.inf, -np.inf])
def test_a_vector_that_is_not_finite_disturbs_no_other(broken: float) -> None:
    rng = np.random.default_rng(3)
    vectors = made("unit", 200, 16, rng)
    query = vectors[5].copy()
    whole, _ = nearest(vectors, np.arange(200), query, 200)
    vectors[77, 3] = broken
    rows, _ = nearest_of_all(vectors, query, 10, 200)
    assert [row for row in rows.tolist() if row != 77] == [row for row in whole.tolist() if row != 77][
        : len(rows) - (77 in rows)
    ]


def test_a_question_without_direction_takes_the_first_rows() -> None:
    vectors = made("unit", 50, 8, np.random.default_rng(4))
    rows, scores = nearest_of_all(vectors, np.zeros(8, np.float32), 5, 50)
    assert (rows.tolist(), scores.tolist()) == ([0, 1, 2, 3, 4], [0.0] * 5)


def test_no_rows_have_no_scores() -> None:
    vectors = np.zeros((0, 4), np.float32)
    assert nearest_of_all(vectors, np.ones(4, np.float32), 5, 0)[0].tolist() == []
