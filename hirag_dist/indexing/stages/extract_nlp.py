"""Chunks → mentions of entities and relations, without a call."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import pyarrow as pa

from hirag_dist.core.entities.merging import mentions_of
from hirag_dist.execution.dataset import Dataset, TableSet
from hirag_dist.execution.stage import ByRows, Services, Split, Tables
from hirag_dist.llm.rule_based.finder import extract_records
from hirag_dist.schemas import CHUNKS, EXTRACTION_COSTS, MENTIONS, RELATION_MENTIONS


@dataclass(frozen=True)
class ExtractNames:
    """Chunks → mentions: names and noun phrases, the sentences about them, and their co-occurrence.

    A chunk's rows depend on its text alone.
    """

    name: ClassVar[str] = "extract_nlp"
    version: ClassVar[int] = 3
    split: ClassVar[Split] = ByRows(64)

    class Inputs(TableSet):
        chunks: Annotated[Dataset, CHUNKS]

    class Outputs(TableSet):
        mentions: Annotated[Dataset, MENTIONS]
        relation_mentions: Annotated[Dataset, RELATION_MENTIONS]
        costs: Annotated[Dataset, EXTRACTION_COSTS]

    entity_types: tuple[str, ...]

    async def run(self, tables: Tables, services: Services) -> Tables:
        """Return the mentions in chunk order; each chunk costs no token."""
        chunks = tables["chunks"].select(["chunk_id", "text"]).to_pylist()
        replies = await asyncio.to_thread(
            lambda: [extract_records(chunk["text"], self.entity_types) for chunk in chunks]
        )
        mentions: list[Any] = []
        relations: list[Any] = []
        for chunk, reply in zip(chunks, replies, strict=True):
            rows, links = mentions_of(reply, chunk["chunk_id"])
            mentions.extend(rows)
            relations.extend(links)
        costs = [{"chunk_id": chunk["chunk_id"], "stage": self.name, "tokens": 0} for chunk in chunks]
        return {
            "mentions": pa.Table.from_pylist(mentions, MENTIONS),
            "relation_mentions": pa.Table.from_pylist(relations, RELATION_MENTIONS),
            "costs": pa.Table.from_pylist(costs, EXTRACTION_COSTS),
        }
