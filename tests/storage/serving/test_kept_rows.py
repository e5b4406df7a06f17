"""Rows of a table that stay in the file of a former snapshot."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from hirag_dist.storage.serving import kept_rows as kept
from hirag_dist.storage.serving.kept_rows import KeptRows, kept_rows

N = 100


class Base:
    """Stands in for `BaseValues`: a base of N rows in order, of which some have other texts now."""

    def __init__(self, rows: np.ndarray, same: np.ndarray, slots: np.ndarray | None = None, n_stored: int = N) -> None:
        self._rows, self._same, self._n_stored = rows.astype(np.int32), same, n_stored
        self._slots = np.arange(N, dtype=np.int32) if slots is None else slots.astype(np.int32)

    def rows(self, batches: Any, table: str) -> np.ndarray:
        return self._rows.copy()

    def unchanged(self, batches: Any, table: str) -> np.ndarray:
        return self._same & (self._rows >= 0)

    def slots(self, table: str, rows: np.ndarray) -> tuple[np.ndarray, int]:
        return self._slots[rows], self._n_stored


def none(name: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    return iter(())


@pytest.fixture(autouse=True)
def of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "MIN_ROWS", 1)


def found(base: Base, *vectors: Any) -> KeptRows | None:
    return kept_rows(base, none, "entities", vectors or None)  # type: ignore[arg-type]


def test_a_row_whose_vector_differs_in_one_bit_is_changed() -> None:
    vectors = np.random.default_rng(0).standard_normal((N, 8)).astype(np.float32)
    vectors[9] = np.nan
    now = vectors.copy()
    now[3, 5] = np.nextafter(now[3, 5], np.float32(9))
    now[4, 0], vectors[4, 0] = -0.0, 0.0
    own = found(Base(np.arange(N), np.ones(N, bool)), now, vectors)
    assert own is not None
    assert np.flatnonzero(own.changed).tolist() == [3, 4]


@pytest.mark.parametrize(
    ("n_changed", "n_gone", "is_kept"), [(10, 0, True), (11, 0, False), (0, 20, True), (0, 21, False), (9, 13, False)]
)
def test_a_table_is_written_whole_when_much_of_the_first_file_is_unused(
    n_changed: int, n_gone: int, is_kept: bool
) -> None:
    rows = np.arange(n_gone, N)
    assert (found(Base(rows, np.arange(len(rows)) >= n_changed)) is not None) == is_kept


def test_a_small_table_is_written_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "MIN_ROWS", N + 1)
    assert found(Base(np.arange(N), np.ones(N, bool))) is None
