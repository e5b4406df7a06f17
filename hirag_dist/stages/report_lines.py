"""The text that reports are written from: of each entity and relation that a tree of reports shows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from hirag_dist.core.graph import rows_of
from hirag_dist.core.outlines import ENTITY_PLACES, RELATION_PLACES
from hirag_dist.core.text import one_line, shorten
from hirag_dist.schemas import ENTITIES, RELATIONS
from hirag_dist.stages.base import ByKey, Schemas, Services, Split, Tables

ENTITY_TEXTS = pa.schema([ENTITIES.field(name) for name in ("entity_id", "name", "type", "description")])
RELATION_TEXTS = pa.schema(
    [RELATIONS.field(name) for name in ("relation_id", "source_id", "target_id", "description", "weight")]
)
ENTITY_LINES = pa.schema([*ENTITY_PLACES, *list(ENTITY_TEXTS)[1:]])
RELATION_LINES = pa.schema([*RELATION_PLACES, *list(RELATION_TEXTS)[1:]])


@dataclass(frozen=True)
class EntityLines:
    """Entities → those that reports show, once for each tree of reports."""

    name: ClassVar[str] = "report_entities"
    version: ClassVar[int] = 1
    split: ClassVar[Split] = ByKey("entity_id", 50_000)
    reads: ClassVar[Schemas] = {"places": ENTITY_PLACES, "entities": ENTITY_TEXTS}
    writes: ClassVar[Schemas] = {"lines": ENTITY_LINES}

    description_chars: int

    async def run(self, tables: Tables, services: Services) -> Tables:
        """Return the places with their entities' texts, sorted by (tree, id)."""
        return {"lines": _joined(tables["places"], tables["entities"], "entity_id", self.description_chars)}


@dataclass(frozen=True)
class RelationLines:
    """Relations → those that reports show, once for each tree of reports."""

    name: ClassVar[str] = "report_relations"
    version: ClassVar[int] = 1
    split: ClassVar[Split] = ByKey("relation_id", 50_000)
    reads: ClassVar[Schemas] = {"places": RELATION_PLACES, "relations": RELATION_TEXTS}
    writes: ClassVar[Schemas] = {"lines": RELATION_LINES}

    description_chars: int

    async def run(self, tables: Tables, services: Services) -> Tables:
        """Return the places with their relations' ends and texts, sorted by (tree, id)."""
        return {"lines": _joined(tables["places"], tables["relations"], "relation_id", self.description_chars)}


def _joined(places: pa.Table, texts: pa.Table, key: str, description_chars: int) -> pa.Table:
    """Return each place with the other columns of its text, descriptions on one line and cut to length."""
    places = places.sort_by([("tree", "ascending"), (key, "ascending")])
    found = texts.take(pa.array(rows_of(places[key], texts[key]))).drop_columns(key)
    cut = pa.array(
        [shorten(one_line(text), description_chars) for text in found["description"].to_pylist()], pa.string()
    )
    at = found.schema.get_field_index("description")
    found = found.set_column(at, found.schema.field(at), cut)
    columns = [*places.columns, *found.columns]
    return pa.table(columns, schema=pa.schema([*places.schema, *found.schema])).combine_chunks()
