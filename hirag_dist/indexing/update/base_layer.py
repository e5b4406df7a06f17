"""Layer 0 after a change of documents: merged again where a mention came or went, kept rows of the base elsewhere.

The result equals that of a fresh build of the same documents, whatever the history.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hirag_dist.core.graph.csr import rows_of
from hirag_dist.core.text.ids import entity_id, relation_id
from hirag_dist.execution.dataset import Dataset
from hirag_dist.execution.dead_letters import split_letters
from hirag_dist.indexing.base_layer import (
    ExtractedMentions,
    check_entities,
    describe_entities,
    extract_claims,
    extract_mentions,
    merge_base_layer,
    merge_mentions,
)
from hirag_dist.indexing.content_remarks import cut_ids
from hirag_dist.indexing.context import BuildContext
from hirag_dist.indexing.layers import BaseLayer, GraphMentions, embed_entities
from hirag_dist.indexing.stages.claims import ExtractClaims
from hirag_dist.indexing.stages.embed import vector_rows
from hirag_dist.indexing.stages.extract import ExtractGraph
from hirag_dist.indexing.stages.merge import DescribeEntities
from hirag_dist.indexing.update.base import UpdateBase
from hirag_dist.indexing.update.budget import CLAIMS_AGAIN, EXTRACT_AGAIN
from hirag_dist.indexing.update.documents import ChangedDocuments
from hirag_dist.schemas import (
    CHUNKS,
    CLAIMS,
    EXTRACTION_COSTS,
    MENTIONS,
    REJECTS,
    RELATION_MENTIONS,
    RELATIONS,
    VECTORS,
)
from hirag_dist.storage import layout
from hirag_dist.types import FloatMatrix


@dataclass(frozen=True)
class LayerEntities:
    """Entities of one layer after a change.

    Attributes:
        table: ENTITIES, sorted by id.
        vectors: (n, dim) float32.
        moved: (n,) bool, entities of the base whose name or description is another one now.
    """

    table: pa.Table
    vectors: FloatMatrix
    moved: NDArray[np.bool_]


def update_base_layer(
    context: BuildContext, base: UpdateBase, changed: ChangedDocuments
) -> tuple[BaseLayer, LayerEntities]:
    """Return layer 0 of the documents of now. Its `vectors` are in the second value alone.

    Chunks of the base that are dead letters are asked for again: a reply that was refused to the last stays refused,
    without a call, unless this is a retry.

    Raises:
        StageFailed: too many dead letters, or no entity is left.
    """
    datasets = context.datasets
    letters = _letters(base)
    chunks = (changed.new_chunks, _refused_chunks(context, base, changed, letters))
    asked = datasets.read(chunks[0] + chunks[1], ["chunk_id"])["chunk_id"].combine_chunks()
    stale = pa.concat_arrays([changed.removed_chunks, asked])
    found = _extracted(context, *chunks)
    mentions, keys = _merged_rows(context, base, "mentions", MENTIONS, stale, found.mentions.entities, ("name_key",))
    relation_mentions, pairs = _merged_rows(
        context,
        base,
        "relation_mentions",
        RELATION_MENTIONS,
        stale,
        found.mentions.relations,
        ("source_key", "target_key"),
    )
    now = GraphMentions(
        datasets.put("mentions", mentions),
        datasets.put("relation_mentions", relation_mentions),
        _kept_costs(context, base, stale) + found.mentions.costs,
    )
    kept_letters = _of_stage(letters, ExtractGraph.name, stale)
    rejects = found.rejects + datasets.put("kept_letters", kept_letters)
    if context.config.resolution.enabled:
        layer = merge_base_layer(context, changed.documents.chunks, now, rejects)
        return layer, _resolved_entities(context, base, layer)
    touched = GraphMentions(
        datasets.put("touched_mentions", _rows_with(mentions, ("name_key",), keys)),
        datasets.put("touched_relation_mentions", _rows_with(relation_mentions, ("source_key", "target_key"), pairs)),
    )
    merged = merge_mentions(context, touched, "merge")
    described = describe_entities(context, merged.entities, "describe")
    entity_ids = pa.array([entity_id(0, key) for (key,) in keys], pa.string())
    entities = _replaced(base.layer_rows(0)[0], "entity_id", entity_ids, datasets.read(described.entities))
    check_entities(entities.num_rows, context.config)
    pair_ids = pa.array(
        [relation_id("extracted", *sorted((entity_id(0, low), entity_id(0, high)))) for low, high in pairs],
        pa.string(),
    )
    extracted = base.table("relations").cast(RELATIONS)
    extracted = extracted.filter(pc.equal(extracted["kind"], "extracted"))
    relations = _replaced(extracted, "relation_id", pair_ids, datasets.read(merged.relations))
    rejects += described.rejects + datasets.put("kept_letters", _of_stage(letters, DescribeEntities.name, entity_ids))
    layer = BaseLayer(
        datasets.put("base_entities", entities),
        datasets.put("base_relations", relations),
        Dataset(VECTORS),
        rejects,
        mentions=now,
        cut_ids=(cut_ids(base.snapshot.manifest) - {*entity_ids.to_pylist(), *pair_ids.to_pylist()}) | merged.cut_ids,
    )
    if context.config.claims:
        layer = _with_claims(context, base, layer, chunks, stale, letters)
    return layer, kept_vectors(context, base, 0, entities, "embed layer 0")


def kept_vectors(context: BuildContext, base: UpdateBase, layer: int, entities: pa.Table, label: str) -> LayerEntities:
    """Return a layer's entities with their vectors: those of the base where the text is the same, others embedded.

    Args:
        entities: ENTITIES of the layer, sorted by id.
    """
    before, rows = base.layer_rows(layer)
    vectors, places = base.vectors_of(entities["entity_id"], before, rows)
    known = np.flatnonzero(places >= 0)
    same = np.zeros(entities.num_rows, bool)
    if len(known):
        was, now = before.take(places[known]), entities.take(known)
        equal = pc.and_(pc.equal(was["name"], now["name"]), pc.equal(was["description"], now["description"]))
        same[known] = equal.to_numpy()
    other = np.flatnonzero(~same)
    if len(other):
        texts = context.datasets.put("embedded_entities", entities.take(other))
        found = context.datasets.read(embed_entities(context, texts, label))
        vectors[other] = vector_rows(found, context.models.dim, rows_of(entities["entity_id"].take(other), found["id"]))
    return LayerEntities(entities, vectors, (places >= 0) & ~same)


def _resolved_entities(context: BuildContext, base: UpdateBase, layer: BaseLayer) -> LayerEntities:
    datasets, dim = context.datasets, context.models.dim
    entities = datasets.read(layer.entities).sort_by("entity_id").combine_chunks()
    found = datasets.read(layer.vectors)
    vectors = vector_rows(found, dim, rows_of(entities["entity_id"], found["id"]))
    before, rows = base.layer_rows(0)
    was, places = base.vectors_of(entities["entity_id"], before, rows)
    return LayerEntities(entities, vectors, (places >= 0) & (was != vectors).any(axis=1))


def _letters(base: UpdateBase) -> pa.Table:
    """Return all dead letters of the base, dropped ones too."""
    return pa.concat_tables(
        [base.table("rejects").cast(REJECTS), base.table(layout.DROPPED).select(REJECTS.names).cast(REJECTS)]
    )


def _of_stage(letters: pa.Table, stage: str, without: pa.Array) -> pa.Table:
    """Return the dead letters of a stage, except those of some units."""
    own = letters.filter(pc.equal(letters["stage"], stage))
    return own.filter(pc.invert(pc.is_in(own["unit_id"], value_set=without)))


def _extracted(context: BuildContext, new: Dataset, refused: Dataset) -> ExtractedMentions:
    """Return the mentions of new chunks, and of those that were refused before, any number of which may be again."""
    found = extract_mentions(context, new, "extract")
    if not refused.rows:
        return found
    again = extract_mentions(context, refused, EXTRACT_AGAIN, any_letters=True)
    mentions = GraphMentions(
        found.mentions.entities + again.mentions.entities,
        found.mentions.relations + again.mentions.relations,
        found.mentions.costs + again.mentions.costs,
    )
    return ExtractedMentions(mentions, found.rejects + again.rejects)


def _refused_chunks(context: BuildContext, base: UpdateBase, changed: ChangedDocuments, letters: pa.Table) -> Dataset:
    """Return the chunks that are open dead letters of the base."""
    still_open = split_letters(letters, context.runner.drops)[0]
    refused = still_open.filter(
        pc.is_in(still_open["stage"], value_set=pa.array([ExtractGraph.name, ExtractClaims.name]))
    )
    if not refused.num_rows:
        return Dataset(CHUNKS)
    chunks = base.table("chunks").cast(CHUNKS)
    wanted = pc.and_(
        pc.is_in(chunks["chunk_id"], value_set=refused["unit_id"].combine_chunks()),
        pc.invert(pc.is_in(chunks["chunk_id"], value_set=changed.removed_chunks)),
    )
    return context.datasets.put("refused_chunks", chunks.filter(wanted))


def _merged_rows(
    context: BuildContext,
    base: UpdateBase,
    name: str,
    schema: pa.Schema,
    stale: pa.Array,
    found: Dataset,
    keys: tuple[str, ...],
) -> tuple[pa.Table, list[tuple[str, ...]]]:
    """Return the mentions of now, sorted, and the distinct keys of those that came or went.

    Args:
        stale: chunks whose mentions of the base do not count any more.
        found: mentions that are new.
    """
    before, new = base.table(name).cast(schema), context.datasets.read(found)
    gone = pc.is_in(before["chunk_id"], value_set=stale)
    now = pa.concat_tables([before.filter(pc.invert(gone)), new])
    by = [(column, "ascending") for column in (*keys, "chunk_id", "position")]
    changes = pa.concat_tables([before.filter(gone).select(keys), new.select(keys)])
    columns = [column.to_pylist() for column in changes.columns]
    return now.sort_by(by), sorted(set(zip(*columns, strict=True)))


def _kept_costs(context: BuildContext, base: UpdateBase, stale: pa.Array) -> Dataset:
    """Return EXTRACTION_COSTS of the base's chunks that stay; not of claims where all are extracted again."""
    before = base.table(layout.EXTRACTION_COSTS).cast(EXTRACTION_COSTS)
    if context.config.resolution.enabled:
        before = before.filter(pc.equal(before["stage"], ExtractGraph.name))
    return context.datasets.put("kept_costs", before.filter(pc.invert(pc.is_in(before["chunk_id"], value_set=stale))))


def _rows_with(table: pa.Table, keys: tuple[str, ...], values: list[tuple[str, ...]]) -> pa.Table:
    """Return the rows with some values of the key columns."""
    first = pc.is_in(table[keys[0]], value_set=pa.array([value[0] for value in values], pa.string()))
    found = table.filter(first)
    if len(keys) == 1:
        return found
    wanted = set(values)
    columns = [found[key].to_pylist() for key in keys]
    return found.filter(pa.array([value in wanted for value in zip(*columns, strict=True)], pa.bool_()))


def _replaced(before: pa.Table, key: str, ids: pa.Array, rows: pa.Table) -> pa.Table:
    """Return a table sorted by its key, with the rows of some ids replaced."""
    kept = before.filter(pc.invert(pc.is_in(before[key], value_set=ids)))
    return pa.concat_tables([kept, rows]).sort_by(key).combine_chunks()


def _with_claims(
    context: BuildContext,
    base: UpdateBase,
    layer: BaseLayer,
    chunks: tuple[Dataset, Dataset],
    stale: pa.Array,
    letters: pa.Table,
) -> BaseLayer:
    """Return the layer with the base's claims of chunks that stay, and those of new and of refused chunks."""
    assert layer.mentions is not None
    datasets = context.datasets
    new, refused = chunks
    found = extract_claims(context, new, layer.mentions, layer.aliases, "claims")
    claims, own_letters, costs = found.claims, found.rejects, layer.mentions.costs + found.costs
    if refused.rows:
        again = extract_claims(context, refused, layer.mentions, layer.aliases, CLAIMS_AGAIN, any_letters=True)
        claims, own_letters = claims + again.claims, own_letters + again.rejects
        costs += again.costs
    before = base.table("claims").cast(CLAIMS)
    kept = before.filter(pc.invert(pc.is_in(before["chunk_id"], value_set=stale)))
    rejects = own_letters + datasets.put("kept_letters", _of_stage(letters, ExtractClaims.name, stale))
    return replace(
        layer,
        claims=datasets.put("kept_claims", kept) + claims,
        rejects=layer.rejects + rejects,
        mentions=replace(layer.mentions, costs=costs),
    )
