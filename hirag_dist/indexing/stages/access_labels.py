"""Provenance of entities and relations that documents of several label sets mention.

Where every mention of an entity or relation is in documents of one label set, it is visible as a whole or not at
all, and the merged text is enough. Of the others the mentions are kept, and the mentions of an entity in each label set
are merged to a part of it, which has a vector of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hirag_dist.core.access import description_of
from hirag_dist.core.entities.merging import merge_groups
from hirag_dist.core.entities.summaries import SUMMARY_MENTIONS
from hirag_dist.core.graph.csr import rows_of
from hirag_dist.core.groupby import numbered
from hirag_dist.core.text.ids import entity_id, relation_id
from hirag_dist.execution.dataset import Dataset, TableSet
from hirag_dist.execution.stage import ByKey, ByRows, Services, Split, Tables
from hirag_dist.indexing.stages.merge import with_descriptions
from hirag_dist.schemas import (
    ALIASES,
    ENTITIES,
    ENTITY_MENTIONS,
    MENTIONS,
    RELATION_MENTIONS,
    RELATIONS,
    STATEMENTS,
    SUMMARY_SOURCES,
)

CHUNK_SETS = pa.schema(
    [pa.field("chunk_id", pa.string(), nullable=False), pa.field("label_set", pa.int32(), nullable=False)]
)
ENTITY_CHUNKS = pa.schema([ENTITIES.field("entity_id"), ENTITIES.field("chunk_ids")])
RELATION_CHUNKS = pa.schema([RELATIONS.field("relation_id"), RELATIONS.field("chunk_ids")])
MIXED_ENTITIES = pa.schema([ENTITIES.field("entity_id")])
MIXED_RELATIONS = pa.schema([RELATIONS.field("relation_id")])
_ROWS = 200_000
_BETWEEN = "/"  # an entity's id and the number of a label set


@dataclass(frozen=True)
class FindMixedEntities:
    """Entities → the ids of those that documents of several label sets mention."""

    name: ClassVar[str] = "mixed_entities"
    version: ClassVar[int] = 1
    split: ClassVar[Split] = ByRows(_ROWS)

    class Inputs(TableSet):
        entities: Annotated[Dataset, ENTITY_CHUNKS]
        chunk_sets: Annotated[Dataset, CHUNK_SETS]

    class Outputs(TableSet):
        mixed: Annotated[Dataset, MIXED_ENTITIES]

    async def run(self, tables: Tables, services: Services) -> Tables:
        """Return the ids."""
        return {"mixed": _mixed(tables["entities"], tables["chunk_sets"])}


@dataclass(frozen=True)
class FindMixedRelations:
    """Relations → the ids of those that documents of several label sets state."""

    name: ClassVar[str] = "mixed_relations"
    version: ClassVar[int] = 1
    split: ClassVar[Split] = ByRows(_ROWS)

    class Inputs(TableSet):
        relations: Annotated[Dataset, RELATION_CHUNKS]
        chunk_sets: Annotated[Dataset, CHUNK_SETS]

    class Outputs(TableSet):
        mixed: Annotated[Dataset, MIXED_RELATIONS]

    async def run(self, tables: Tables, services: Services) -> Tables:
        """Return the ids."""
        return {"mixed": _mixed(tables["relations"], tables["chunk_sets"])}


@dataclass(frozen=True)
class KeepMentions:
    """Mentions → those of mixed entities, by the entity that their name was resolved to."""

    name: ClassVar[str] = "keep_mentions"
    version: ClassVar[int] = 1
    split: ClassVar[Split] = ByRows(_ROWS)

    class Inputs(TableSet):
        mentions: Annotated[Dataset, MENTIONS]
        aliases: Annotated[Dataset, ALIASES]
        mixed: Annotated[Dataset, MIXED_ENTITIES]

    class Outputs(TableSet):
        mentions: Annotated[Dataset, ENTITY_MENTIONS]

    async def run(self, tables: Tables, services: Services) -> Tables:
        """Return the mentions."""
        mentions = tables["mentions"]
        ids = _entity_ids(mentions["name_key"], tables["aliases"])
        at = mentions.schema.get_field_index("name_key")
        renamed = mentions.set_column(at, ENTITY_MENTIONS.field("entity_id"), ids)
        return {"mentions": _among(renamed.select(ENTITY_MENTIONS.names), "entity_id", tables["mixed"])}


@dataclass(frozen=True)
class KeepStatements:
    """Mentions of relations → those of mixed relations, by the entities that their ends were resolved to."""

    name: ClassVar[str] = "keep_statements"
    version: ClassVar[int] = 1
    split: ClassVar[Split] = ByRows(_ROWS)

    class Inputs(TableSet):
        mentions: Annotated[Dataset, RELATION_MENTIONS]
        aliases: Annotated[Dataset, ALIASES]
        mixed: Annotated[Dataset, MIXED_RELATIONS]

    class Outputs(TableSet):
        statements: Annotated[Dataset, STATEMENTS]

    async def run(self, tables: Tables, services: Services) -> Tables:
        """Return the mentions. One between two names of an entity is of no relation."""
        mentions = tables["mentions"]
        ends = [_entity_ids(mentions[name], tables["aliases"]).to_pylist() for name in ("source_key", "target_key")]
        ids = [relation_id("extracted", *sorted(pair)) for pair in zip(*ends, strict=True)]
        columns = {"relation_id": pa.array(ids, pa.string())}
        columns |= {name: mentions[name] for name in STATEMENTS.names[1:]}
        return {"statements": _among(pa.table(columns, schema=STATEMENTS), "relation_id", tables["mixed"])}


@dataclass(frozen=True)
class DivideEntities:
    """Mentions of mixed entities → what each label set says of an entity, as an entity of its own."""

    name: ClassVar[str] = "divide_entities"
    version: ClassVar[int] = 1
    split: ClassVar[Split] = ByKey("entity_id", 100_000)

    class Inputs(TableSet):
        mentions: Annotated[Dataset, ENTITY_MENTIONS]
        chunk_sets: Annotated[Dataset, CHUNK_SETS]

    class Outputs(TableSet):
        parts: Annotated[Dataset, ENTITIES]

    max_tokens: int

    async def run(self, tables: Tables, services: Services) -> Tables:
        """Return the parts, their ids those of the entities with the number of the label set; see `part_rows`."""
        mentions, chunk_sets = tables["mentions"], tables["chunk_sets"]
        sets = chunk_sets["label_set"].to_numpy()[rows_of(mentions["chunk_id"], chunk_sets["chunk_id"])]
        owners, ids = numbered(mentions["entity_id"])
        width = int(sets.max(initial=0)) + 1
        pairs, groups = np.unique(owners.astype(np.int64) * width + sets, return_inverse=True)
        names = ids.to_pylist()
        parts = merge_groups(
            mentions, groups, [f"{names[pair // width]}{_BETWEEN}{pair % width}" for pair in pairs.tolist()]
        )
        texts = [description_of(text, self.max_tokens) for text in parts["description"].to_pylist()]
        return {"parts": with_descriptions(parts, texts)}


@dataclass(frozen=True)
class NameSources:
    """Mentions of summary entities → the clusters that each was made from."""

    name: ClassVar[str] = "summary_sources"
    version: ClassVar[int] = 1
    split: ClassVar[Split] = ByRows(_ROWS)

    class Inputs(TableSet):
        mentions: Annotated[Dataset, SUMMARY_MENTIONS]

    class Outputs(TableSet):
        sources: Annotated[Dataset, SUMMARY_SOURCES]

    layer: int

    async def run(self, tables: Tables, services: Services) -> Tables:
        """Return the pairs; one may come several times."""
        key_of, keys = numbered(tables["mentions"]["name_key"])
        ids = pa.array([entity_id(self.layer, key) for key in keys.to_pylist()], pa.string())
        return {"sources": pa.table([ids.take(pa.array(key_of)), tables["mentions"]["cluster_id"]], SUMMARY_SOURCES)}


def part_rows(ids: pa.ChunkedArray) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
    """Return the entity ids of parts, and the numbers of their label sets as int32.

    >>> [column.to_pylist() for column in part_rows(pa.chunked_array([["ab/7", "c/12"]]))]
    [['ab', 'c'], [7, 12]]
    """
    halves = pc.split_pattern(ids, _BETWEEN)
    return pc.list_element(halves, 0), pc.list_element(halves, 1).cast(pa.int32())


def _mixed(table: pa.Table, chunk_sets: pa.Table) -> pa.Table:
    """Return the ids, in the first column, of the rows whose chunks are of several label sets."""
    lists = table["chunk_ids"].combine_chunks()
    owner = np.repeat(np.arange(len(lists)), lists.value_lengths().to_numpy(zero_copy_only=False))
    at = rows_of(pa.chunked_array([lists.flatten()]), chunk_sets["chunk_id"])
    known = at >= 0
    sets = chunk_sets["label_set"].to_numpy()[at[known]].astype(np.int64)
    width = int(sets.max(initial=0)) + 1
    n_sets = np.bincount(np.unique(owner[known] * width + sets) // width, minlength=len(lists))
    return table.select([0]).filter(pa.array(n_sets > 1))


def _entity_ids(keys: pa.ChunkedArray, aliases: pa.Table) -> pa.Array:
    """Return the ids of the entities of layer 0 that names are of, now that some were resolved to others."""
    key_of, names = numbered(keys)
    found = pc.index_in(names, value_set=aliases["name_key"].combine_chunks())
    resolved = pc.coalesce(aliases["canonical_key"].combine_chunks().take(found), names)
    return pa.array([entity_id(0, key) for key in resolved.to_pylist()], pa.string()).take(pa.array(key_of))


def _among(table: pa.Table, column: str, ids: pa.Table) -> pa.Table:
    return table.filter(pc.is_in(table[column], value_set=ids[column].combine_chunks()))
