"""The owner's ids of records: found in every format, case and form kept."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hirag_dist.readers import Document, ReadOptions, Unreadable, find_inputs, read_source


def read(file: Path, options: ReadOptions | None = None) -> list[Document | Unreadable]:
    (source,) = find_inputs([str(file)])
    return list(read_source(source, options or ReadOptions()))


def ids(file: Path, options: ReadOptions | None = None) -> list[str]:
    return [found.source_id if isinstance(found, Document) else f"! {found.reason}" for found in read(file, options)]


@pytest.mark.parametrize("name", ["id", "Doc_ID"])
def test_usual_names_and_what_an_id_looks_like(tmp_path: Path, name: str) -> None:
    records = [{name: "Ab/Ç 1 ", "text": "one"}, {name: 7, "text": "two"}, {name: None, "text": "three"}]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    assert ids(tmp_path / "a.jsonl") == ["Ab/Ç 1", "7", ""]


@pytest.mark.integration  # it starts the process that reads Parquet
def test_every_format_of_records(tmp_path: Path) -> None:
    records = [{"id": "a", "text": "one"}, {"id": "b", "text": "two"}]
    (tmp_path / "a.json").write_text(json.dumps(records))
    (tmp_path / "b.csv").write_text("id,text\na,one\nb,two\n")
    pq.write_table(pa.Table.from_pylist(records), tmp_path / "c.parquet")
    (tmp_path / "d.json").write_text(json.dumps({"a": "one", "b": "two"}))
    (tmp_path / "e.json").write_text(json.dumps({"a": {"text": "one"}, "x": {"text": "two", "id": "b"}}))
    for file in sorted(tmp_path.iterdir()):
        assert ids(file) == ["a", "b"], file.name


@pytest.mark.integration  # it starts the process that reads Parquet
def test_a_field_that_was_named_must_be_there(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"id": "a", "key": "k", "text": "one"}\n{"id": "b", "text": "two"}\n')
    first, second = ids(tmp_path / "a.jsonl", ReadOptions(id_field="key"))
    assert first == "k"
    assert "no field 'key' with the id" in second
    (tmp_path / "b.csv").write_text("id,text\na,one\n")
    assert "no field 'key' with the id" in ids(tmp_path / "b.csv", ReadOptions(id_field="key"))[0]
    pq.write_table(pa.Table.from_pylist([{"id": "a", "text": "one"}]), tmp_path / "c.parquet")
    assert "no field 'key' with the id" in ids(tmp_path / "c.parquet", ReadOptions(id_field="key"))[0]
