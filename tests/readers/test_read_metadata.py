"""Metadata of every format: records, front matter, properties of pages, and the path where there is nothing else."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hirag_dist.core.metadata.fields import FieldSource
from hirag_dist.readers import Document, ReadOptions, find_inputs, read_source
from hirag_dist.types import MetadataField
from tests.readers.test_pdf import make_pdf

OPTIONS = ReadOptions(
    metadata=(
        FieldSource(
            MetadataField("published", "date"), ("published", "meta.date", "article:published_time", "CreationDate")
        ),
        FieldSource(MetadataField("tags", "string", list=True), ("tags", "keywords"), separator=","),
        FieldSource(MetadataField("folder", "string"), (), path="^([^/]+)/"),
    )
)


def found(folder: Path, name: str, data: str | bytes) -> list[Document]:
    path = folder / "in" / "wiki" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    documents = [each for source in find_inputs([str(folder / "in")]) for each in read_source(source, OPTIONS)]
    assert all(isinstance(each, Document) for each in documents)
    return [each for each in documents if isinstance(each, Document)]


WANTED = {"published": "2024-01-31", "tags": ["tax", "law"], "folder": "wiki"}
PAGE = """<html><head><meta property="article:published_time" content="2024-01-31T00:00:00Z">
<meta name="Keywords" content="tax, law"></head><body><p>words</p></body></html>"""


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.jsonl", json.dumps({"text": "words", "meta": {"Date": "2024-01-31"}, "tags": ["tax", "law"]})),
        ("a.json", json.dumps([{"text": "words", "published": "2024-01-31", "tags": "tax,law"}])),
        ("a.csv", 'text,published,tags\nwords,2024-01-31,"[""tax"", ""law""]"\n'),
        ("a.md", "---\npublished: 2024-01-31\ntags: [tax, law]\n---\nwords\n"),
        ("a.html", PAGE),
        ("a.html", PAGE.replace("meta name", "META itemprop")),
    ],
)
def test_fields_come_from_what_each_format_has(tmp_path: Path, name: str, data: str) -> None:
    (document,) = found(tmp_path, name, data)
    assert (document.metadata, document.faults) == (WANTED, ())


@pytest.mark.integration  # it starts the process that reads Parquet
def test_a_table_brings_its_columns(tmp_path: Path) -> None:
    columns: dict[str, Any] = {
        "text": ["words"],
        "meta": [{"date": date(2024, 1, 31), "other": 1}],
        "tags": [["tax", "law"]],
        "unused": [1],
    }
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), sink)
    (document,) = found(tmp_path, "a.parquet", sink.getvalue().to_pybytes())
    assert document.metadata == WANTED


@pytest.mark.integration  # it starts the process that reads PDFs
def test_a_pdf_has_its_properties(tmp_path: Path) -> None:
    title = "Report) /Keywords (tax, law) /CreationDate (D:20240131000000Z"
    (document,) = found(tmp_path, "a.pdf", make_pdf([["words"]], title=title))
    assert (document.title, document.metadata) == ("Report", WANTED)


def test_a_text_has_its_path(tmp_path: Path) -> None:
    (document,) = found(tmp_path, "a.txt", "words")
    assert document.metadata == {"folder": "wiki"}


def test_a_wrong_value_costs_the_field_and_not_the_document(tmp_path: Path) -> None:
    (document,) = found(tmp_path, "a.jsonl", json.dumps({"text": "words", "published": "next\nweek", "tags": ["tax"]}))
    assert document.metadata == {"tags": ["tax"], "folder": "wiki"}
    (fault,) = document.faults
    assert fault.startswith("metadata field published: 'next\\nweek' is no date")
