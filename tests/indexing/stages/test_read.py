"""Files → documents: what counts as a copy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pyarrow as pa

from hirag_dist.execution.stage import Services
from hirag_dist.indexing.stages.read import SOURCES, ReadDocuments, UniqueDocuments
from hirag_dist.readers import ReadOptions


async def documents(folder: Path, files: dict[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    for name, records in files.items():
        (folder / name).write_text("".join(json.dumps(record) + "\n" for record in records))
    columns = {
        "uri": [str(folder / name) for name in files],
        "shown": list(files),
        "size_bytes": [(folder / name).stat().st_size for name in files],
        "format": ["jsonl" for _ in files],
        "compression": [None for _ in files],
        "modified": ["" for _ in files],
    }
    services = cast(Services, None)  # reading calls nothing
    read = await ReadDocuments(ReadOptions()).run({"sources": pa.table(columns, schema=SOURCES)}, services)
    unique = await UniqueDocuments().run({"documents": read["documents"]}, services)
    found: list[dict[str, Any]] = unique["documents"].to_pylist()
    return found


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
