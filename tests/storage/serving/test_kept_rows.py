"""Rows of a table that stay in the file of a former snapshot."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hirag_dist.storage.serving import base_values as kept
from hirag_dist.storage.serving.base_values import KeptRows, kept_rows

N = 100


class Base:
    """Stands in for `BaseValues`: a base of N rows, of which the first ones are gone and the next ones changed."""

    def __init__(self, n_gone: int = 0, n_changed: int = 0) -> None:
        self._rows, self._n_changed = np.arange(n_gone, N, dtype=np.int32), n_changed

    def rows(self, batches: Any, table: str) -> np.ndarray:
        return self._rows

    def unchanged(self, batches: Any, table: str) -> np.ndarray:
        return np.arange(len(self._rows)) >= self._n_changed

    def slots(self, table: str, rows: np.ndarray) -> tuple[np.ndarray, int]:
        return rows.copy(), N


@pytest.fixture(autouse=True)
def of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "MIN_ROWS", 1)


def found(base: Base, *vectors: Any) -> KeptRows | None:
    return kept_rows(base, lambda name, columns: iter(()), "entities", vectors or None)


def test_a_row_whose_vector_differs_in_one_bit_is_changed() -> None:
    vectors = np.random.default_rng(0).standard_normal((N, 8)).astype(np.float32)
    vectors[9] = np.nan
    now = vectors.copy()
    now[3, 5] = np.nextafter(now[3, 5], np.float32(9))
    now[4, 0], vectors[4, 0] = -0.0, 0.0
    own = found(Base(), now, vectors)
    assert np.flatnonzero(own.changed).tolist() == [3, 4]


@pytest.mark.parametrize(
    ("n_changed", "n_gone", "is_kept"), [(10, 0, True), (11, 0, False), (0, 20, True), (0, 21, False), (9, 13, False)]
)
def test_a_table_is_written_whole_when_much_of_the_first_file_is_unused(
    n_changed: int, n_gone: int, is_kept: bool
) -> None:
    assert (found(Base(n_gone, n_changed)) is not None) == is_kept


def test_a_small_table_is_written_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "MIN_ROWS", N + 1)
    assert found(Base()) is None
