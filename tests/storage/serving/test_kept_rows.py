"""Rows of a table that stay in the file of a former snapshot."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from hirag_dist.core.vectors import SlottedVectors
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


def test_changed_and_new_rows_are_written_behind_those_that_stay() -> None:
    rows = np.insert(np.arange(N), 50, -1)
    own = found(Base(rows, rows != 7))
    assert own is not None
    assert np.flatnonzero(own.changed).tolist() == [7, 50]
    assert own.slots[[6, 7, 49, 50, 51]].tolist() == [6, N, 49, N + 1, 50]
    batches = pa.table({"row": np.arange(N + 1)}).to_batches(max_chunksize=9)
    assert pa.Table.from_batches(own.written(batches))["row"].to_pylist() == [7, 50]


def test_a_row_whose_vector_differs_in_one_bit_is_changed() -> None:
    vectors = np.random.default_rng(0).standard_normal((N, 8)).astype(np.float32)
    vectors[9] = np.nan
    now = vectors.copy()
    now[3, 5] = np.nextafter(now[3, 5], np.float32(9))
    now[4, 0], vectors[4, 0] = -0.0, 0.0
    own = found(Base(np.arange(N), np.ones(N, bool)), now, vectors)
    assert own is not None
    assert np.flatnonzero(own.changed).tolist() == [3, 4]


def test_rows_of_the_second_file_of_the_base_are_written_again() -> None:
    slots = np.arange(N)
    slots[[5, 60]] = N, N + 1
    slots[61:] -= 1  # a row of the first file that is unused
    base = Base(np.arange(N), np.arange(N) != 80, slots)
    vectors = np.eye(N, 4, dtype=np.float32)
    stored = np.zeros((N, 4), np.float32)
    stored[slots[slots < N]] = vectors[slots < N]
    own = found(base, vectors, SlottedVectors(stored, vectors[[5, 60]], slots.astype(np.int32)))
    assert own is not None
    assert np.flatnonzero(own.changed).tolist() == [5, 60, 80]
    assert own.slots[[5, 60, 80, 81]].tolist() == [N, N + 1, N + 2, 80]


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
