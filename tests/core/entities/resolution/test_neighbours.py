"""Near vectors: the exact pairs, against every pair compared; partitions find nearly all of them."""

from __future__ import annotations

import numpy as np
import pytest

from hirag_dist.core.entities.resolution import neighbours
from hirag_dist.core.entities.resolution.neighbours import near_pairs
from hirag_dist.types import FloatMatrix


def unit(vectors: FloatMatrix) -> FloatMatrix:
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def planted(n_pairs: int, n_others: int, dim: int = 32) -> FloatMatrix:
    """Pairs of vectors near each other (cosine about 0.97), then others."""
    random = np.random.default_rng(7)
    ones = unit(random.normal(size=(n_pairs, dim)))
    twins = unit(ones + 0.25 * unit(random.normal(size=(n_pairs, dim))))
    return np.concatenate([ones, twins, unit(random.normal(size=(n_others, dim)))])


def every_pair(vectors: FloatMatrix, least: float, n_nearest: int) -> set[tuple[int, int]]:
    """The obvious version: each row's nearest of all, and pairs that name each other."""
    product = vectors @ vectors.T
    np.fill_diagonal(product, -2)
    near = [set(np.argsort(-row)[:n_nearest][np.sort(-row)[:n_nearest] <= -least].tolist()) for row in product]
    return {(a, b) for a in range(len(near)) for b in near[a] if a < b and a in near[b]}


@pytest.mark.parametrize("n_nearest", [1, 3])
def test_all_pairs_are_compared(n_nearest: int) -> None:
    vectors = planted(40, 100, dim=8)
    lefts, rights, cosines = near_pairs(vectors, np.arange(len(vectors)), 0.6, n_nearest)
    assert set(zip(lefts.tolist(), rights.tolist(), strict=True)) == every_pair(vectors, 0.6, n_nearest)
    expected = np.sum(vectors[lefts] * vectors[rights], axis=1)
    np.testing.assert_allclose(cosines, expected, atol=1e-5)


def test_partitions_find_nearly_all_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = planted(300, 1400)
    exact = set(zip(*(part.tolist() for part in near_pairs(vectors, np.arange(len(vectors)), 0.9, 2)[:2]), strict=True))
    monkeypatch.setattr(neighbours, "EXACT_ROWS", 500)
    monkeypatch.setattr(neighbours, "_PARTITION_ROWS", 200)
    monkeypatch.setattr(neighbours, "_BLOCK_ROWS", 64)
    found = set(zip(*(part.tolist() for part in near_pairs(vectors, np.arange(len(vectors)), 0.9, 2)[:2]), strict=True))
    again = set(zip(*(part.tolist() for part in near_pairs(vectors, np.arange(len(vectors)), 0.9, 2)[:2]), strict=True))
    assert found == again
    assert len(exact) == 300
    assert found <= exact
    assert len(found) > 0.9 * len(exact)


def test_copies_of_one_vector_are_cut_into_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbours, "EXACT_ROWS", 50)
    monkeypatch.setattr(neighbours, "_PARTITION_ROWS", 40)
    lefts, rights, _ = near_pairs(unit(np.ones((300, 4), np.float32)), np.arange(300), 0.9, 3)
    assert len(lefts)
    assert (lefts < rights).all()


def test_rows_of_zeros_are_nobodys_neighbours() -> None:
    vectors = np.zeros((4, 3), np.float32)
    vectors[1, 0] = vectors[3, 0] = 1
    lefts, rights, _ = near_pairs(vectors, np.arange(len(vectors)), -1.0, 3)
    assert list(zip(lefts.tolist(), rights.tolist(), strict=True)) == [(1, 3)]


@pytest.mark.parametrize("n_copies", [40, 3000])
def test_of_equally_near_rows_the_first_count(n_copies: int) -> None:
    vectors = np.zeros((n_copies, 4), np.float32)
    vectors[:, 0] = 1.0
    lefts, rights, _ = near_pairs(vectors, np.arange(n_copies), 0.9, 2)
    # Each row names the first two others, so only those of the first three are named by each other.
    assert list(zip(lefts.tolist(), rights.tolist(), strict=True)) == [(0, 1), (0, 2), (1, 2)]
