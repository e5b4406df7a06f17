"""Datasets, and the table sets that stages declare."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Annotated

import pyarrow as pa
import pytest

from hirag_dist.execution.dataset import Dataset, DatasetStore, TableSet
from hirag_dist.storage.store import Store

WORDS = pa.schema([pa.field("word", pa.string(), nullable=False)])
COUNTS = pa.schema([pa.field("n", pa.int64(), nullable=False)])


class Tables(TableSet):
    words: Annotated[Dataset, WORDS]
    counts: Annotated[Dataset | None, COUNTS] = None


def test_a_table_set_has_the_schemas_of_its_fields_in_order() -> None:
    assert list(Tables.schemas.items()) == [("words", WORDS), ("counts", COUNTS)]


def test_an_optional_table_may_be_left_out() -> None:
    words, counts = Dataset(WORDS), Dataset(COUNTS)
    assert Tables(words=words).datasets() == {"words": words}
    assert Tables(words=words, counts=counts).datasets() == {"words": words, "counts": counts}


def test_an_unknown_table_is_refused() -> None:
    with pytest.raises(TypeError, match="word"):
        Tables(word=Dataset(WORDS))  # type: ignore[call-arg]


def test_a_table_set_is_frozen() -> None:
    tables = Tables(words=Dataset(WORDS))
    with pytest.raises(FrozenInstanceError):
        tables.words = Dataset(WORDS)  # type: ignore[misc]


def test_a_table_comes_back_as_it_was_put(tmp_path: Path) -> None:
    datasets = DatasetStore(Store(str(tmp_path)))
    first, second = (pa.table({"word": words}, schema=WORDS) for words in (["a", "b"], ["c"]))
    dataset = datasets.put("words", first) + datasets.put("words", second)
    assert dataset.rows == 3
    assert datasets.read(dataset)["word"].to_pylist() == ["a", "b", "c"]
    assert [table.num_rows for table in datasets.tables(dataset)] == [2, 1]
    assert datasets.put("words", first).parts == dataset.parts[:1], "the path is a hash of the content"
    assert datasets.put("words", WORDS.empty_table()) == Dataset(WORDS)
