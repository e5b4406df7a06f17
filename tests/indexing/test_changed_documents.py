from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest

from hirag_dist.core.text.ids import document_id
from hirag_dist.errors import InputError
from hirag_dist.indexing.changed_documents import DocumentSelection, kept_beside, selected_documents
from hirag_dist.indexing.read_files import HELD
from hirag_dist.schemas import DOCUMENTS
from tests.table_rows import filled_table


def documents(*rows: tuple[str, str, int, Sequence[str]]) -> pa.Table:
    """Return DOCUMENTS: text, URI, record, source ids."""
    found = (
        {"document_id": document_id(text), "uri": uri, "record": record, "source_ids": list(source_ids), "text": text}
        for text, uri, record, source_ids in rows
    )
    return filled_table(DOCUMENTS, found)


def held(*rows: tuple[str, str, int, Sequence[str]]) -> pa.Table:
    """Return HELD: document id, URI, record, source ids."""
    columns = ("document_id", "name", "record", "source_ids")
    return pa.Table.from_pylist([dict(zip(columns, row, strict=True)) for row in rows], HELD)


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


def test_a_document_is_selected_by_the_path_of_a_copy() -> None:
    copies = held((document_id("two"), "s3://b/copy.txt", 0, ["copy.txt"]))
    assert texts(selected_documents(BASE, DocumentSelection(sources=("*/copy.txt",)), copies)) == ["two"]


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


@pytest.mark.parametrize(
    ("read", "kept", "renamed"),
    [
        ([("z.txt", 0)], ["alone", "twice", "here"], []),
        ([("b.txt", 0)], ["twice", "here"], []),
        ([("rows.jsonl", 1)], ["alone", "here", "twice"], [("twice", "rows.jsonl", 3, ["2", "9"])]),
        ([("rows.jsonl", 3)], ["alone", "twice", "here"], [("twice", "rows.jsonl", 1, ["1", "9"])]),
        ([("rows.jsonl", 1), ("rows.jsonl", 3)], ["alone", "here", "twice"], [("twice", "z.jsonl", 7, ["9"])]),
        ([("rows.jsonl", 1), ("rows.jsonl", 3), ("z.jsonl", 7)], ["alone", "here"], []),
        ([("rows.jsonl", 4)], ["alone", "twice", "here"], []),  # where its other place is, is not known
    ],
)
def test_a_document_stays_at_its_places_that_were_not_read_again(
    read: list[tuple[str, int]], kept: list[str], renamed: list[tuple[str, str, int, list[str]]]
) -> None:
    places = held(
        ("alone", "b.txt", 0, ["b.txt"]),
        ("twice", "rows.jsonl", 1, ["1"]),
        ("here", "rows.jsonl", 2, ["x"]),
        ("twice", "rows.jsonl", 3, ["2"]),
        ("twice", "z.jsonl", 7, ["9"]),
        ("lost", "rows.jsonl", 4, ["y", "z"]),
    )
    left, named = kept_beside(places, read, [False] * places.num_rows)
    assert list(dict.fromkeys(left["document_id"].to_pylist())) == [*kept, "lost"]
    assert named.equals(held(*renamed))
