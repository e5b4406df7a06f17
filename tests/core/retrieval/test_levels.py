"""Exact scores and the nearest of some rows (Eq. 12) against slower versions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from hirag_dist.core.retrieval.levels import exact_scores, nearest, nearest_of_all
from hirag_dist.core.vectors import encode, product_bounds


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


@settings(deadline=None, max_examples=40, derandomize=True)
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
    wanted, wanted_scores = nearest(vectors, np.arange(end), query, limit)
    for codes in (None, encode(vectors)):
        rows, scores = nearest_of_all(vectors, query, limit, end, codes=codes)
        assert rows.tolist() == wanted.tolist()
        assert scores.tolist() == wanted_scores.tolist()


@pytest.mark.parametrize("length", [0.0, 1e-30, 1.0, 1e30])
@pytest.mark.parametrize("dim", [1, 384, 4096])
def test_products_are_within_the_bounds_that_their_codes_give(length: float, dim: int) -> None:
    rng = np.random.default_rng(dim)
    vectors = (rng.normal(size=(50, dim)) * 10.0 ** rng.integers(-3, 3, (50, 1))).astype(np.float32)
    query = (rng.normal(size=dim) * length).astype(np.float32)
    least, most = product_bounds(encode(vectors), query, 50)
    exact = (vectors.astype(np.float64) @ query.astype(np.float64)).astype(np.float32)
    assert ((least <= exact) & (exact <= most)).all()
    lengths = np.linalg.norm(vectors.astype(np.float64), axis=1) * np.linalg.norm(query.astype(np.float64))
    assert (most - least <= 0.06 * lengths).all()


@pytest.mark.parametrize("is_coded", [False, True])
@pytest.mark.parametrize("broken", [np.nan, np.inf, -np.inf])
def test_a_vector_that_is_not_finite_disturbs_no_other(broken: float, is_coded: bool) -> None:
    rng = np.random.default_rng(3)
    vectors = made("unit", 200, 16, rng)
    query = vectors[5].copy()
    whole, _ = nearest(vectors, np.arange(200), query, 200)
    vectors[77, 3] = broken
    rows, _ = nearest_of_all(vectors, query, 10, 200, codes=encode(vectors) if is_coded else None)
    assert [row for row in rows.tolist() if row != 77] == [row for row in whole.tolist() if row != 77][
        : len(rows) - (77 in rows)
    ]


@pytest.mark.parametrize("dim", [1, 7, 8, 9, 384])
def test_scores_are_products_in_float64(dim: int) -> None:
    rng = np.random.default_rng(dim)
    vectors = rng.normal(size=(100, dim)).astype(np.float32)
    query = rng.normal(size=dim).astype(np.float32)
    rows = rng.permutation(100)[:30]
    wanted = vectors[rows].astype(np.float64) @ query.astype(np.float64)
    np.testing.assert_allclose(exact_scores(vectors, rows, query), wanted, rtol=1e-6, atol=1e-7)


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
