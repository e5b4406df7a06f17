"""Stages of entity resolution: keys renamed, relations sorted again."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from hirag_dist.core.text.ids import entity_id
from hirag_dist.execution.stage import Stage, Tables
from hirag_dist.indexing.stages.resolve import RenameMentions, RenameRelations
from hirag_dist.schemas import ALIASES, MENTIONS, RELATION_MENTIONS


def aliases(**canonical: str) -> pa.Table:
    rows = [
        {
            "name_key": key,
            "canonical_key": to,
            "name": key,
            "canonical_name": to,
            "entity_id": entity_id(0, to),
            "tier": "alias",
            "score": 1.0,
            "evidence": "",
        }
        for key, to in canonical.items()
    ]
    return pa.Table.from_pylist(rows, ALIASES)


async def run(stage: Stage, **tables: pa.Table) -> Tables:
    services: Any = None
    return await stage.run(dict(tables), services)


def mention(key: str) -> dict[str, Any]:
    return {
        "name_key": key,
        "chunk_id": "c",
        "position": 0,
        "name": key.upper(),
        "type": "person",
        "description": "",
        "described": True,
    }


def related(source: str, target: str) -> dict[str, Any]:
    return {
        "source_key": source,
        "target_key": target,
        "chunk_id": "c",
        "position": 0,
        "description": "",
        "strength": 1.0,
    }


async def test_mentions_keep_their_names() -> None:
    mentions = pa.Table.from_pylist([mention(key) for key in ("a", "b", "c")], MENTIONS)
    found = (await run(RenameMentions(), mentions=mentions, aliases=aliases(b="a")))["mentions"]
    assert [(row["name_key"], row["name"]) for row in found.to_pylist()] == [("a", "A"), ("a", "B"), ("c", "C")]
    assert found.schema.equals(MENTIONS)


async def test_relations_are_sorted_again_and_those_within_an_entity_go() -> None:
    mentions = pa.Table.from_pylist([related("a", "b"), related("b", "c"), related("c", "d")], RELATION_MENTIONS)
    found = (await run(RenameRelations(), relation_mentions=mentions, aliases=aliases(b="z", a="z")))[
        "relation_mentions"
    ]
    assert [(row["source_key"], row["target_key"]) for row in found.to_pylist()] == [("c", "z"), ("c", "d")]
    assert found.schema.equals(RELATION_MENTIONS)
