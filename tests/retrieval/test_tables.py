"""Rows by id, against a dictionary; values of a column, against a list."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hirag_dist.retrieval.lookup.tables import IdLookup
from hirag_dist.storage.serving.text_columns import TextColumns, text_schema
from tests.storage.serving.test_text_columns import columns_of

IDS = st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=80), unique=True, max_size=12)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("texts")


def ids_in(folder: Path, values: list[str], wide: bool = False) -> TextColumns:
    schema = text_schema(["id"], wide=["id"] if wide else [])
    return columns_of(folder / "ids.arrow", schema, pa.record_batch([pa.array(values, pa.string())], ["id"]))


@given(IDS, st.booleans())
def test_rows_of_any_ids(folder: Path, ids: list[str], wide: bool) -> None:
    lookup = IdLookup(ids_in(folder, ids, wide), "id")
    assert [lookup.row(own) for own in ids] == list(range(len(ids)))
    for other in ("", "\ud800", "x" * 81, *(own + "x" for own in ids)):
        assert lookup.row(other) == (ids.index(other) if other in ids else None)


@given(st.lists(st.sampled_from(["", "a", "ab", "ba", "é"]), max_size=20), st.sampled_from(["", "a", "ab", "é", "x"]))
def test_rows_with_a_value(folder: Path, values: list[str], wanted: str) -> None:
    assert ids_in(folder, values).equal_to("id", wanted).tolist() == [value == wanted for value in values]
