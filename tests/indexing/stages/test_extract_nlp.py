from __future__ import annotations

from typing import Any

import pyarrow as pa

from hirag_dist.config.model import ENTITY_TYPES
from hirag_dist.execution.stage import Services
from hirag_dist.indexing.stages.extract_nlp import ExtractNames
from hirag_dist.schemas import CHUNKS

STAGE = ExtractNames(ENTITY_TYPES)
TEXTS = ["Ada Lovelace met Charles Babbage in London.", "…", "Babbage lived in London with Ada Lovelace."]


def chunks(texts: list[str]) -> pa.Table:
    rows = [
        {"chunk_id": f"c{at}", "document_id": "d", "position": at, "start": 0, "end": len(text), "text": text}
        | {"n_tokens": 9}
        for at, text in enumerate(texts)
    ]
    return pa.Table.from_pylist([{name: row.get(name) for name in CHUNKS.names} for row in rows], CHUNKS)


async def run(texts: list[str]) -> dict[str, list[Any]]:
    services = Services(None, None, None, None, len)  # type: ignore[arg-type]
    tables = await STAGE.run({"chunks": chunks(texts)}, services)
    return {name: table.to_pylist() for name, table in tables.items()}


async def test_every_chunk_is_extracted_by_itself_and_costs_nothing() -> None:
    found = await run(TEXTS)
    assert [(row["chunk_id"], row["tokens"]) for row in found["costs"]] == [("c0", 0), ("c1", 0), ("c2", 0)]
    assert {row["chunk_id"] for row in found["mentions"]} == {"c0", "c2"}
    alone = await run(TEXTS[:1])
    assert alone["mentions"] == [row for row in found["mentions"] if row["chunk_id"] == "c0"]
    assert all(row["source_key"] < row["target_key"] for row in found["relation_mentions"])
