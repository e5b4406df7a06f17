"""Files → documents: what counts as a copy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest

from hirag_dist.core.metadata.fields import FieldSource
from hirag_dist.execution.stage import Services
from hirag_dist.indexing.inputs import source_table
from hirag_dist.indexing.stages import read
from hirag_dist.indexing.stages.read import ReadDocuments, UniqueDocuments
from hirag_dist.readers import ReadOptions
from hirag_dist.storage.digest import table_digest
from hirag_dist.types import MetadataField

NO_SERVICES = cast(Services, None)  # reading calls nothing


async def documents(folder: Path, files: dict[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    for name, records in files.items():
        (folder / name).write_text("".join(json.dumps(record) + "\n" for record in records))
    sources = source_table([str(folder)]).sort_by([("shown", "descending")])  # who comes first does not decide
    read_rows = await ReadDocuments(ReadOptions()).run({"sources": sources}, NO_SERVICES)
    given = {name: read_rows[name] for name in ("documents", "places")}
    return (await UniqueDocuments().run(given, NO_SERVICES))["documents"].to_pylist()


async def test_a_copy_is_the_first_by_name(tmp_path: Path) -> None:
    record = {"text": "words", "labels": ["staff", "board"]}
    other = {"text": "words", "labels": ["board", "staff"]}
    (found,) = await documents(tmp_path, {"b.jsonl": [record | {"title": "B"}], "a.jsonl": [other | {"title": "A"}]})
    assert (found["title"], found["uri"], found["labels"]) == ("A", "a.jsonl", ["board", "staff"])


async def test_copies_with_other_labels_keep_their_own_names(tmp_path: Path) -> None:
    """Else who may see one of them learns what the other is called and where it lies."""
    board = {"text": "words", "title": "Dismissals, board only", "labels": ["board"]}
    staff = {"text": "words", "title": "Word list", "labels": ["staff"]}
    found = await documents(tmp_path, {"a.jsonl": [board], "b.jsonl": [staff, staff | {"labels": []}]})
    assert {(row["title"], row["uri"], *row["labels"]) for row in found} == {
        ("Dismissals, board only", "a.jsonl", "board"),
        ("Word list", "b.jsonl", "staff"),
        ("Word list", "b.jsonl"),
    }


async def test_a_document_keeps_the_ids_of_all_its_copies(tmp_path: Path) -> None:
    """Gold evidence names any of them. A record without one goes by its file and place."""
    files = {
        "b.jsonl": [{"text": "words", "id": "B/1"}, {"text": "words"}],
        "a.jsonl": [{"text": "words", "passage_id": 7}, {"text": "other"}, {"text": "words", "id": "B/1"}],
    }
    found = {row["text"]: row["source_ids"] for row in await documents(tmp_path, files)}
    assert found == {"words": ["7", "B/1", "b.jsonl#1"], "other": ["a.jsonl#1"]}


async def test_what_does_not_fit_into_memory_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a.jsonl", "b.jsonl"):
        lines = [{"text": f"{name} {number}"} if number % 3 else {"none": 1} for number in range(20)]
        (tmp_path / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
    (tmp_path / "c.md").write_text("".join(f"# Heading {number}\n\nwords\n" for number in range(10)))
    sources = {"sources": source_table([str(tmp_path)])}
    options = ReadOptions(metadata=(FieldSource(MetadataField("n", "number"), ("n",)),))
    whole = await ReadDocuments(options).run(sources, NO_SERVICES)
    monkeypatch.setattr(read, "_PART_ROWS", 3)
    monkeypatch.setattr(read, "_HELD_BYTES", 100)
    parts = await ReadDocuments(options).run(sources, NO_SERVICES)
    assert (parts["documents"].num_rows, parts["places"].num_rows) == (27, 10)
    for name, table in whole.items():
        assert parts[name].column(0).num_chunks > 1
        assert parts[name].equals(table)
        assert table_digest(parts[name]) == table_digest(table)
