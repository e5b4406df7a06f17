from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from hirag_dist.core.text.ids import document_id
from hirag_dist.errors import InputError
from hirag_dist.indexing.changed_documents import DocumentSelection, kept_beside, selected_documents
from hirag_dist.schemas import DOCUMENTS
from tests.table_rows import filled_table


def documents(*rows: tuple[str, str, int, Sequence[str]]) -> pa.Table:
    """Return DOCUMENTS: text, URI, record, source ids."""
    found = (
        {"document_id": document_id(text), "uri": uri, "record": record, "source_ids": list(source_ids), "text": text}
        for text, uri, record, source_ids in rows
    )
    return filled_table(DOCUMENTS, found)


BASE = documents(
    ("one", "s3://b/reports/2019/a.txt", 0, []),
    ("two", "s3://b/reports/2020/b.txt", 0, []),
    ("three", "s3://b/rows.jsonl", 0, ["wiki/3", "3"]),
    ("four", "s3://b/rows.jsonl", 1, ["wiki/4"]),
    ("five", "s3://b/[x].txt", 0, ["*"]),
)


def texts(table: pa.Table) -> list[str]:
    return table["text"].to_pylist()


@pytest.mark.parametrize(
    ("selection", "wanted"),
    [
        ({"ids": [document_id("two")]}, ["two"]),
        ({"ids": ["3"]}, ["three"]),
        ({"sources": ["s3://b/reports/2019/*"]}, ["one"]),
        ({"sources": ["s3://b/[[]x].txt"]}, ["five"]),
        ({"ids": ["*"]}, ["five"]),
        ({"sources": ["s3://b/rows.jsonl, record 2"]}, ["four"]),
        ({"ids": ["3"], "sources": ["*/2020/?.txt", "*2020*"]}, ["two", "three"]),
    ],
)
def test_documents_are_selected_by_id_by_source_id_and_by_pattern(
    selection: dict[str, list[str]], wanted: list[str]
) -> None:
    made = DocumentSelection(**{name: tuple(values) for name, values in selection.items()})
    found = selected_documents(BASE, made)
    assert texts(found) == wanted
    assert found.schema == DOCUMENTS


@pytest.mark.parametrize(
    ("selection", "said"),
    [
        (DocumentSelection(("3", "33")), "is named 33;"),
        (DocumentSelection(("S3",), ("S3://*", "*.pdf")), r"is named \*.pdf, S3, S3://\*;"),
        (DocumentSelection(tuple(f"x{at}" for at in range(7))), "is named x0, x1, x2, x3, x4 and 2 more;"),
    ],
)
def test_names_of_no_document_are_refused(selection: DocumentSelection, said: str) -> None:
    with pytest.raises(InputError, match=said):
        selected_documents(BASE, selection)


B, ROWS = "s3://b/reports/2020/b.txt", "s3://b/rows.jsonl"


@pytest.mark.parametrize(
    ("new", "kept"),
    [
        (("six", B, 0, []), ["one", "three", "four", "five"]),  # the same place
        (("six", ROWS, 1, []), ["one", "two", "three", "five"]),
        (("six", ROWS, 2, []), ["one", "two", "three", "four", "five"]),
        (("six", "s3://b/new.txt", 0, ["wiki/3"]), ["one", "two", "three", "four", "five"]),  # owner's ids: no place
        (("two", B, 0, ["new"]), ["one", "two", "three", "four", "five"]),  # `unique_documents` makes them one
        (("two", ROWS, 0, []), ["one", "two", "four", "five"]),  # it moved to the place of another
    ],
)
def test_a_new_document_replaces_that_of_its_place(new: Any, kept: list[str]) -> None:
    assert texts(BASE.take(kept_beside(BASE, documents(new)))) == kept
