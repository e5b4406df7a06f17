"""Vectors in two matrices are read as those in one are, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

from hirag_dist.core.retrieval.bridge import nearest_chunks
from hirag_dist.core.retrieval.levels import exact_scores, nearest_of_all
from hirag_dist.core.retrieval.source_ranking import RelationProvenance
from hirag_dist.core.vectors import SlottedVectors, by_row
from hirag_dist.types import FloatMatrix


def divided(rng: np.random.Generator, n_rows: int, n_changed: int) -> tuple[FloatMatrix, SlottedVectors]:
    """Return vectors as one matrix, and in two with unused rows in the first."""
    vectors = rng.standard_normal((n_rows, 24), np.float32)
    changed = np.zeros(n_rows, bool)
    changed[rng.choice(n_rows, n_changed, replace=False)] = True
    stored = rng.standard_normal((n_rows + 3, 24), np.float32)
    own = np.sort(rng.choice(len(stored), n_rows - n_changed, replace=False))
    stored[own] = vectors[~changed]
    slots = np.empty(n_rows, np.int32)
    slots[~changed] = own
    slots[changed] = len(stored) + rng.permutation(n_changed)
    other = np.empty((n_changed, 24), np.float32)
    other[slots[changed] - len(stored)] = vectors[changed]
    return vectors, SlottedVectors(stored, other, slots)


@pytest.mark.parametrize("n_changed", [0, 1, 17, 40])
def test_vectors_are_read_as_from_one_matrix(n_changed: int) -> None:
    rng = np.random.default_rng(n_changed)
    whole, parts = divided(rng, 40, n_changed)
    rows = rng.integers(0, 40, 100)
    query = rng.standard_normal(24).astype(np.float32)
    assert (len(parts), parts.shape) == (40, (40, 24))
    for key in (rows, slice(3, 30), slice(None), np.array([], np.int64), 7, np.arange(40) % 3 == 0):
        assert np.array_equal(parts[key], whole[key])
    assert np.array_equal(np.asarray(parts), whole)
    assert np.array_equal(by_row(parts, lambda matrix: matrix.sum(axis=1)), whole.sum(axis=1))
    assert np.array_equal(exact_scores(parts, rows, query), exact_scores(whole, rows, query))


@pytest.mark.parametrize("end", [0, 1, 25, 40])
def test_the_nearest_are_those_of_one_matrix(end: int) -> None:
    """Of all rows, and for relations, of their chunks."""
    rng = np.random.default_rng(3)
    whole, parts = divided(rng, 40, 6)
    query = rng.standard_normal(24).astype(np.float32)
    for found, expected in zip(nearest_of_all(parts, query, 5, end), nearest_of_all(whole, query, 5, end), strict=True):
        assert np.array_equal(found, expected)
    provenance = RelationProvenance(np.array([0, 3, 3, 40]), rng.permutation(40).astype(np.int32))
    found, expected = (nearest_chunks(provenance, vectors, np.arange(3), query) for vectors in (parts, whole))
    assert np.array_equal(found, expected)
