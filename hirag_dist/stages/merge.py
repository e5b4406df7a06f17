"""Mentions → entities and relations of layer 0, and descriptions that grew too long made one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from hirag_dist.core.merging import SEPARATOR, join_descriptions, merge_entities, merge_relations
from hirag_dist.core.prompts import Prompts, describe_request
from hirag_dist.core.replies import parse_text
from hirag_dist.core.summaries import split_descriptions
from hirag_dist.core.text import one_line
from hirag_dist.schemas import ENTITIES, MENTIONS, REJECTS, RELATION_MENTIONS, RELATIONS
from hirag_dist.stages.base import ByKey, ByRows, Schemas, Services, Split, Tables, reject_row, together
from hirag_dist.types import Rejected

_CHARS_PER_TOKEN = 4


@dataclass(frozen=True)
class MergeEntities:
    """Mentions → entities of layer 0, with all their distinct descriptions. Paper: §4.1, Eq. 5."""

    name: ClassVar[str] = "merge_entities"
    version: ClassVar[int] = 1
    split: ClassVar[Split] = ByKey("name_key", 500_000)
    reads: ClassVar[Schemas] = {"mentions": MENTIONS}
    writes: ClassVar[Schemas] = {"entities": ENTITIES}

    async def run(self, tables: Tables, services: Services) -> Tables:
        """Return the entities of this partition of names."""
        return {"entities": merge_entities(tables["mentions"])}


@dataclass(frozen=True)
class MergeRelations:
    """Relation mentions → relations of layer 0. Paper: §4.1."""

    name: ClassVar[str] = "merge_relations"
    version: ClassVar[int] = 1
    split: ClassVar[Split] = ByKey("source_key", 500_000)
    reads: ClassVar[Schemas] = {"relation_mentions": RELATION_MENTIONS}
    writes: ClassVar[Schemas] = {"relations": RELATIONS}

    max_tokens: int

    async def run(self, tables: Tables, services: Services) -> Tables:
        """Return the relations whose first name falls into this partition."""
        return {"relations": merge_relations(tables["relation_mentions"], self.max_tokens * _CHARS_PER_TOKEN)}


@dataclass(frozen=True)
class DescribeEntities:
    """Descriptions longer than the limit → one description by a model; shorter ones are joined."""

    name: ClassVar[str] = "describe"
    version: ClassVar[int] = 1
    split: ClassVar[Split] = ByRows(512)
    reads: ClassVar[Schemas] = {"entities": ENTITIES}
    writes: ClassVar[Schemas] = {"entities": ENTITIES, "rejects": REJECTS}

    max_tokens: int
    prompt_tokens: int
    tokenizer: str
    prompts: Prompts
    models: tuple[str, ...]

    async def run(self, tables: Tables, services: Services) -> Tables:
        """Return the entities with one description each; where the model fails, the joined ones up to the limit."""
        entities = tables["entities"]
        rows = entities.select(["entity_id", "name", "type", "description"]).to_pylist()
        results = await together(self._describe(row, services) for row in rows)
        rejects = []
        texts = []
        for row, result in zip(rows, results, strict=True):
            if isinstance(result, Rejected):
                rejects.append(reject_row(self.name, result) | {"unit_id": row["entity_id"]})
                joined = join_descriptions(split_descriptions(row["description"]), self.max_tokens * _CHARS_PER_TOKEN)
                texts.append(joined)
            else:
                texts.append(result)
        at = entities.schema.get_field_index("description")
        return {
            "entities": entities.set_column(at, entities.schema.field(at), pa.array(texts, pa.string())),
            "rejects": pa.Table.from_pylist(rejects, REJECTS),
        }

    async def _describe(self, row: dict[str, Any], services: Services) -> str | Rejected:
        if SEPARATOR not in row["description"]:
            return str(row["description"])
        pieces = split_descriptions(row["description"])
        while True:
            # Cheap bound first: no text has more tokens than characters.
            n_chars = sum(len(piece) + 1 for piece in pieces)
            if n_chars <= self.max_tokens or services.count_tokens(" ".join(pieces)) <= self.max_tokens:
                return " ".join(pieces)
            batches = self._batches(pieces, services)
            shorter = []
            for batch in batches:
                request = describe_request(row["name"], row["type"], batch, self.prompts, self.max_tokens // 2)
                result = await services.chat.ask(request, parse_text)
                if isinstance(result, Rejected):
                    return result
                shorter.append(one_line(result))
            if len(batches) == 1 or sum(map(len, shorter)) > 0.8 * n_chars:  # one call did it, or none ever will
                return join_descriptions(shorter, self.max_tokens * _CHARS_PER_TOKEN * 2)
            pieces = shorter

    def _batches(self, pieces: list[str], services: Services) -> list[list[str]]:
        batches: list[list[str]] = [[]]
        room = self.prompt_tokens
        for piece in pieces:
            cost = services.count_tokens(piece) + 2
            if batches[-1] and cost > room:
                batches.append([])
                room = self.prompt_tokens
            batches[-1].append(piece)
            room -= cost
        return batches
