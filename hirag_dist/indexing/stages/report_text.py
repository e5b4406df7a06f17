"""The text that reports are written from: of each entity and relation that a tree of reports shows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import pyarrow as pa

from hirag_dist.core.graph.csr import rows_of
from hirag_dist.core.reports.selection import ENTITY_PLACES, RELATION_PLACES
from hirag_dist.core.text.normalize import one_line, shorten
from hirag_dist.execution.dataset import Dataset, TableSet
from hirag_dist.execution.stage import ByKey, Services, Split, Tables
from hirag_dist.schemas import CLAIMS, ENTITIES, RELATIONS
from hirag_dist.types import ClaimItem

ENTITY_TEXTS = pa.schema([ENTITIES.field(name) for name in ("entity_id", "name", "type", "description")])
RELATION_TEXTS = pa.schema(
    [RELATIONS.field(name) for name in ("relation_id", "source_id", "target_id", "description", "weight")]
)
ENTITY_LINES = pa.schema([*ENTITY_PLACES, *list(ENTITY_TEXTS)[1:]])
ENTITY_CHUNKS = pa.schema([ENTITIES.field(name) for name in ("entity_id", "chunk_ids")])
CLAIM_LINES = pa.schema(
    [
        *(ENTITY_PLACES.field(name) for name in ("tree", "entity_id")),
        CLAIMS.field("claim_id"),
        pa.field("text", pa.string(), nullable=False),
    ]
)
RELATION_LINES = pa.schema([*RELATION_PLACES, *list(RELATION_TEXTS)[1:]])


@dataclass(frozen=True)
class EntityLines:
    """Entities → those that reports show, once for each tree of reports."""

    name: ClassVar[str] = "report_entities"
    version: ClassVar[int] = 1
    split: ClassVar[Split] = ByKey("entity_id", 50_000)

    class Inputs(TableSet):
        places: Annotated[Dataset, ENTITY_PLACES]
        entities: Annotated[Dataset, ENTITY_TEXTS]

    class Outputs(TableSet):
        lines: Annotated[Dataset, ENTITY_LINES]

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

    class Inputs(TableSet):
        places: Annotated[Dataset, RELATION_PLACES]
        relations: Annotated[Dataset, RELATION_TEXTS]

    class Outputs(TableSet):
        lines: Annotated[Dataset, RELATION_LINES]

    description_chars: int

    async def run(self, tables: Tables, services: Services) -> Tables:
        """Return the places with their relations' ends and texts, sorted by (tree, id)."""
        return {"lines": _joined(tables["places"], tables["relations"], "relation_id", self.description_chars)}


@dataclass(frozen=True)
class ClaimLines:
    """Claims → those about entities that reports show, once for each tree of reports.

    A claim of a chunk that does not mention its subject is left out: a report is visible to a caller who may read
    all chunks that mention its members, and such a claim may come from a document that this caller may not read.
    """

    name: ClassVar[str] = "report_claims"
    version: ClassVar[int] = 1
    split: ClassVar[Split] = ByKey("entity_id", 50_000)

    class Inputs(TableSet):
        places: Annotated[Dataset, ENTITY_PLACES]
        entities: Annotated[Dataset, ENTITY_CHUNKS]
        claims: Annotated[Dataset, CLAIMS]

    class Outputs(TableSet):
        lines: Annotated[Dataset, CLAIM_LINES]

    text_chars: int

    async def run(self, tables: Tables, services: Services) -> Tables:
        """Return the claims by their subjects' places, sorted by (tree, entity, claim)."""
        entities = tables["entities"]
        chunks = dict(zip(entities["entity_id"].to_pylist(), map(set, entities["chunk_ids"].to_pylist()), strict=True))
        of_entity: dict[str, list[tuple[str, str]]] = {}
        for row in tables["claims"].sort_by("claim_id").to_pylist():
            own = row["subject_id"]
            if row["chunk_id"] in chunks.get(own, ()):
                item = ClaimItem(**row | {"object_id": row["object_id"] or ""})
                of_entity.setdefault(own, []).append((item.claim_id, shorten(one_line(item.line), self.text_chars)))
        lines = [
            {"tree": place["tree"], "entity_id": place["entity_id"], "claim_id": own, "text": text}
            for place in tables["places"].sort_by([("tree", "ascending"), ("entity_id", "ascending")]).to_pylist()
            for own, text in of_entity.get(place["entity_id"], ())
        ]
        return {"lines": pa.Table.from_pylist(lines, CLAIM_LINES)}


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
