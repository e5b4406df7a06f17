"""Passages of the drawn entities, as far as the limit of bytes allows."""

from __future__ import annotations

import pyarrow as pa

from hirag_dist import schemas
from hirag_dist.inspection.passages import choose_passages
from tests.inspection.indexes import tiny_index

TEXT = "Ann 🐚 met Ben. Ben left."


def tables_with(texts: list[str], chunk_ids: dict[str, list[str]]) -> dict[str, pa.Table]:
    """The tiny index with other documents, a chunk c{i} for each, and other chunks of its entities."""
    tables = tiny_index()
    documents = [tables["documents"].to_pylist()[0] | {"document_id": f"d{i}", "text": t} for i, t in enumerate(texts)]
    spans = [{"chunk_id": f"c{i}", "document_id": f"d{i}", "start": 4, "end": len(t)} for i, t in enumerate(texts)]
    chunks = [tables["chunks"].to_pylist()[0] | span for span in spans]
    rows = tables["entities"].to_pylist()
    entities = [row | {"chunk_ids": chunk_ids.get(row["name"], [])} for row in rows]
    return tables | {
        "documents": pa.Table.from_pylist(documents, schemas.DOCUMENTS),
        "chunks": pa.Table.from_pylist(chunks, schemas.CHUNKS),
        "entities": pa.Table.from_pylist(entities, schemas.ENTITIES),
    }


def test_chunks_are_counted_as_scripts_count() -> None:
    found = choose_passages(tables_with([TEXT], {"a": ["c0"], "b": ["c0", "gone"]}), ["0:b", "1:S", "0:a"])
    assert found.documents["text"] == [TEXT]
    assert found.of_entity == [[0], [], [0]]
    start, end = found.chunks["start"][0], found.chunks["end"][0]
    assert TEXT.encode("utf-16-le")[2 * start : 2 * end].decode("utf-16-le") == TEXT[4:]
    assert found.total == 1
