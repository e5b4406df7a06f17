"""Layer 0 of the documents of now: merged where a mention came or went, kept rows of the base elsewhere.

The result equals that of a fresh build of the same documents, whatever the history, but for descriptions that a model
has still to merge: these are debt.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hirag_dist.core.graph.csr import rows_of
from hirag_dist.core.row_changes import ChangedRows, changed_rows, rows_with
from hirag_dist.core.text.ids import entity_id, relation_id
from hirag_dist.core.text.normalize import name_key
from hirag_dist.core.vectors import Vectors, with_replaced
from hirag_dist.execution.dataset import Dataset
from hirag_dist.execution.stage_results import split_letters
from hirag_dist.indexing.base import UpdateBase
from hirag_dist.indexing.budget import CLAIMS_AGAIN, EXTRACT_AGAIN, TextCounts, UpdateSettings
from hirag_dist.indexing.changed_documents import ChangedDocuments
from hirag_dist.indexing.content_remarks import cut_ids
from hirag_dist.indexing.context import BuildContext
from hirag_dist.indexing.descriptions import TouchedMentions, describe_changed, keys_to_pay
from hirag_dist.indexing.mentions import (
    BaseLayer,
    GraphMentions,
    ImportedCommunities,
    check_entities,
    embed_entities,
    extract_base_layer,
    extract_claims,
    extract_mentions,
    find_aliases,
    merge_mentions,
)
from hirag_dist.indexing.stages.embed import EmbedEntities, vector_rows
from hirag_dist.indexing.stages.extract import ExtractClaims, ExtractGraph
from hirag_dist.indexing.stages.merge import DescribeEntities
from hirag_dist.indexing.stages.resolve import renamed, renamed_mentions, renamed_relations
from hirag_dist.schemas import (
    ALIASES,
    CHUNKS,
    CLAIMS,
    DESCRIPTION_DEBT,
    ENTITIES,
    EXTRACTION_COSTS,
    MENTIONS,
    REJECTS,
    RELATION_MENTIONS,
    RELATIONS,
)
from hirag_dist.storage import layout
from hirag_dist.types import IntVector

_BLOCK_ROWS = 1 << 18  # mentions that are looked through at a time
_ENTITY_KEY, _PAIR_KEY = ("name_key",), ("source_key", "target_key")


@dataclass(frozen=True)
class LayerEntities:
    """Entities of one layer after a change.

    Attributes:
        table: ENTITIES, sorted by id.
        vectors: (n, dim) float32.
        places: (n,) int64 row of each in the base's layer; −1 for a new one.
        changed: (n,) bool, new ones and those whose name, type or description is another one now.
        moved: (n,) bool, entities of the base whose name or description is another one now.
        gone: (n_gone,) int64 rows of the base's layer that are not in `table` as they were.
        datasets: ENTITIES and VECTORS of a layer that is new as a whole, as the stages gave them.
    """

    table: pa.Table
    vectors: Vectors
    places: IntVector
    changed: NDArray[np.bool_]
    moved: NDArray[np.bool_]
    gone: IntVector
    rejects: Dataset = Dataset(REJECTS)
    datasets: tuple[Dataset, Dataset] | None = None


@dataclass(frozen=True)
class RelationChanges:
    """Relations that came and went.

    Attributes:
        gone: (n_gone,) int64 rows of the base's relations, in any order; also of those that are merged again.
        new: RELATIONS.
    """

    gone: IntVector
    new: pa.Table


@dataclass(frozen=True)
class ChangedMentions:
    """MENTIONS or RELATION_MENTIONS of now, sorted, and those that came or went."""

    rows: ChangedRows
    gone: pa.Table
    new: pa.Table


@dataclass(frozen=True)
class ResolvedMentions:
    """Mentions of now by the keys that they are merged by.

    Attributes:
        entities: MENTIONS.
        relations: RELATION_MENTIONS.
        keys, pairs: keys of the entities and relations that are merged from other mentions than before.
        moved: names that are another entity's than before → its key.
    """

    entities: TouchedMentions
    relations: pa.Table
    keys: list[tuple[str, ...]]
    pairs: list[tuple[str, ...]]
    moved: dict[str, str]


@dataclass(frozen=True)
class WrittenBaseLayer:
    """Layer 0 after a change.

    Attributes:
        relations: those within the layer that came and went.
        mentions, relation_mentions: MENTIONS and RELATION_MENTIONS of now: sorted, or, where all are new, as the
            extraction gave them; None of an imported graph.
        counts: Numbers of descriptions that are too long to be joined.
    """

    entities: LayerEntities
    relations: RelationChanges
    mentions: ChangedRows | Dataset | None
    relation_mentions: ChangedRows | Dataset | None
    costs: Dataset
    rejects: Dataset
    aliases: Dataset
    claims: Dataset
    cut_ids: frozenset[str]
    debt: pa.Table
    counts: TextCounts
    imported: ImportedCommunities | None = None

    def datasets(self, context: BuildContext) -> GraphMentions | None:
        """Return the mentions as datasets; None of an imported graph."""
        if self.mentions is None or self.relation_mentions is None:
            return None

        def dataset(name: str, rows: ChangedRows | Dataset) -> Dataset:
            return context.datasets.put(name, rows.table) if isinstance(rows, ChangedRows) else rows

        mentions = dataset("mentions", self.mentions)
        return GraphMentions(mentions, dataset("relation_mentions", self.relation_mentions), self.costs)


def _new_base_layer(context: BuildContext, base: UpdateBase, layer: BaseLayer) -> WrittenBaseLayer:
    """Return layer 0 of a build from nothing, or of an imported graph."""
    found = layer.mentions
    return WrittenBaseLayer(
        new_entities(context, base, layer.entities, layer.vectors),
        RelationChanges(np.zeros(0, np.int64), base.mapped(context.datasets.tables(layer.relations), RELATIONS)),
        None if found is None else found.entities,
        None if found is None else found.relations,
        Dataset(EXTRACTION_COSTS) if found is None else found.costs,
        layer.rejects,
        layer.aliases,
        layer.claims,
        layer.cut_ids,
        DESCRIPTION_DEBT.empty_table(),
        TextCounts(),
        layer.imported,
    )


def new_entities(
    context: BuildContext, base: UpdateBase, entities: Dataset, vectors: Dataset, rejects: Dataset = Dataset(REJECTS)
) -> LayerEntities:
    """Return a layer of which the base has nothing."""
    table = base.sorted(context.datasets.tables(entities), ENTITIES, ("entity_id",))
    n_rows = table.num_rows
    return LayerEntities(
        table,
        base.arranged(context.datasets, vectors, table["entity_id"], context.models.dim),
        np.full(n_rows, -1, np.int64),
        np.ones(n_rows, bool),
        np.zeros(n_rows, bool),
        np.zeros(0, np.int64),
        rejects,
        (entities, vectors),
    )


def write_base_layer(
    context: BuildContext,
    base: UpdateBase,
    changed: ChangedDocuments,
    settings: UpdateSettings,
    imported: BaseLayer | None = None,
) -> WrittenBaseLayer:
    """Return layer 0 of the documents of now.

    Chunks of the base that are dead letters are asked for again: a reply that was refused to the last stays refused,
    without a call, unless this is a retry.
    """
    if base.is_nothing:
        return _new_base_layer(context, base, imported or extract_base_layer(context, changed.new_chunks))
    datasets = context.datasets
    both = base.table("rejects"), base.table(layout.DROPPED)
    letters = pa.concat_tables([some.select(REJECTS.names).cast(REJECTS) for some in both])
    chunks = (changed.new_chunks, _refused_chunks(context, base, changed, letters))
    asked = datasets.read(chunks[0] + chunks[1], ["chunk_id"])["chunk_id"].combine_chunks()
    stale = pa.concat_arrays([changed.removed_chunks, asked])
    found, rejects = extract_mentions(context, chunks[0])
    if chunks[1].rows:
        again, own_letters = extract_mentions(context, chunks[1], EXTRACT_AGAIN, any_letters=True)
        found, rejects = found + again, rejects + own_letters
    entity_mentions = _changed_mentions(context, base, "mentions", MENTIONS, stale, found.entities, _ENTITY_KEY)
    relation_mentions = _changed_mentions(
        context, base, "relation_mentions", RELATION_MENTIONS, stale, found.relations, _PAIR_KEY
    )
    costs = base.table(layout.EXTRACTION_COSTS).cast(EXTRACTION_COSTS)
    costs = costs.filter(pc.invert(pc.is_in(costs["chunk_id"], value_set=stale)))
    kept_costs = datasets.put("kept_costs", costs)
    rejects += _kept_letters(context, letters, ExtractGraph.name, stale)
    aliases = Dataset(ALIASES)
    if context.config.resolution.enabled:
        mentions = datasets.put("mentions_now", entity_mentions.rows.table)
        statements = datasets.put("relation_mentions_now", relation_mentions.rows.table)
        aliases, own_letters = find_aliases(context, GraphMentions(mentions, statements))
        rejects += own_letters
    owed: set[tuple[str, ...]] = {(key,) for key in keys_to_pay(base, settings)}
    resolved = _resolved(
        entity_mentions, relation_mentions, base.table("aliases").cast(ALIASES), datasets.read(aliases), owed
    )
    keys, pairs = resolved.keys, resolved.pairs
    touched = GraphMentions(
        _put_rows_with(context, "touched_mentions", resolved.entities.now, _ENTITY_KEY, keys),
        _put_rows_with(context, "touched_relation_mentions", resolved.relations, _PAIR_KEY, pairs),
    )
    merged = merge_mentions(context, touched, "merge")
    names = [key for (key,) in keys]
    described = describe_changed(context, base, merged, resolved.entities, names, settings)
    entity_ids = pa.array([entity_id(0, key) for key in names], pa.string())
    former = base.layer_entities(0)[0]
    gone = rows_with(former["entity_id"], entity_ids)
    rows = changed_rows(former, gone, described.entities, ("entity_id",), base.rows)
    check_entities(rows.table.num_rows, context.config)
    pair_ids = pa.array(
        [relation_id("extracted", *sorted((entity_id(0, low), entity_id(0, high)))) for low, high in pairs],
        pa.string(),
    )
    relations = RelationChanges(
        rows_with(base.table("relations", ["relation_id"])["relation_id"], pair_ids),
        datasets.read(merged.relations),
    )
    rejects += described.rejects + _kept_letters(context, letters, DescribeEntities.name, entity_ids)
    entities = kept_vectors(context, base, 0, rows, gone, "embed layer 0")
    layer = WrittenBaseLayer(
        entities,
        relations,
        entity_mentions.rows,
        relation_mentions.rows,
        kept_costs + found.costs,
        rejects,
        aliases,
        Dataset(CLAIMS),
        (cut_ids(base.snapshot.manifest) - {*entity_ids.to_pylist(), *pair_ids.to_pylist()}) | merged.cut_ids,
        described.debt,
        described.counts,
    )
    if not context.config.claims:
        return layer
    return _with_claims(context, base, layer, chunks, stale, letters, resolved.moved)


def kept_vectors(
    context: BuildContext, base: UpdateBase, layer: int, rows: ChangedRows, gone: IntVector, label: str
) -> LayerEntities:
    """Return a layer's entities with their vectors: those of the base where the text is the same, others embedded.

    Texts that the embedder refused before, whose dead letters are in the base, are embedded again.

    Args:
        rows: ENTITIES of the layer, sorted by id.
        gone: rows of the base's layer that were removed or replaced.
    """
    before, first = base.layer_entities(layer)
    entities, places = rows.table, rows.origin.copy()
    replaced = np.flatnonzero(places < 0)
    was, now = before.take(pa.array(gone)), entities.take(pa.array(replaced))
    at = rows_of(now["entity_id"], was["entity_id"])
    known = np.flatnonzero(at >= 0)
    places[replaced[known]] = gone[at[known]]
    moved, changed = np.zeros(len(places), bool), np.zeros(len(places), bool)
    changed[replaced] = True
    was, now = was.take(pa.array(at[known])), now.take(pa.array(known))
    same = pc.and_(pc.equal(was["name"], now["name"]), pc.equal(was["description"], now["description"])).to_numpy()
    moved[replaced[known[~same]]] = True
    changed[replaced[known]] = ~(same & pc.equal(was["type"], now["type"]).to_numpy())
    again = rows_with(entities["entity_id"], refused_units(base, EmbedEntities.name))
    asked = moved | (places < 0)
    asked[again] = True
    other, rejects = np.flatnonzero(asked), Dataset(REJECTS)
    given = np.zeros((0, context.models.dim), np.float32)
    if len(other):
        texts = context.datasets.put("embedded_entities", entities.take(pa.array(other)))
        embedded = embed_entities(context, texts, label)
        found, rejects = context.datasets.read(embedded.vectors), embedded.rejects
        order = rows_of(entities["entity_id"].take(pa.array(other)), found["id"])
        given = vector_rows(found, context.models.dim, order)
    sources = np.where((places >= 0) & ~moved, first + places, -1)
    vectors = with_replaced(base.snapshot.entity_vectors, sources, other, given)
    moved[again] |= vectors[again].any(axis=1) & (places[again] >= 0)
    return LayerEntities(entities, vectors, places, changed, moved, gone, rejects)


def refused_units(base: UpdateBase, stage: str) -> pa.Array:
    """Return the units of the base's dead letters of a stage."""
    letters = base.table("rejects")
    return letters.filter(pc.equal(letters["stage"], stage))["unit_id"].combine_chunks()


def _resolved(
    entities: ChangedMentions,
    relations: ChangedMentions,
    before: pa.Table,
    now: pa.Table,
    owed: set[tuple[str, ...]],
) -> ResolvedMentions:
    """Return mentions by resolved keys, and the keys whose entity has other mentions than before.

    Args:
        before, now: ALIASES.
        owed: keys of entities that are merged again whether their mentions changed or not.
    """
    mentions, statements = entities.rows.table, relations.rows.table
    columns = ("name_key", "canonical_key")
    places = [set(zip(*(table[name].to_pylist() for name in columns), strict=True)) for table in (before, now)]
    moved = {key for key, _ in places[0] ^ places[1]}
    names = pa.array(sorted(moved), pa.string())
    gone, new = renamed_mentions(entities.gone, before), renamed_mentions(entities.new, now)
    named = {key for table in (before, now) for key in renamed(pa.chunked_array([names]), table).to_pylist()}
    keys = {*_keys(gone, _ENTITY_KEY), *_keys(new, _ENTITY_KEY), *((key,) for key in named), *owed}
    ends = (pc.is_in(statements[name], value_set=names) for name in _PAIR_KEY)
    of_moved = statements.filter(pc.or_(*ends))
    pairs = set(_keys(renamed_relations(pa.concat_tables([relations.gone, of_moved]), before), _PAIR_KEY))
    pairs |= set(_keys(renamed_relations(pa.concat_tables([relations.new, of_moved]), now), _PAIR_KEY))
    return ResolvedMentions(
        TouchedMentions(renamed_mentions(mentions, now) if now.num_rows else mentions, gone, new, frozenset(named)),
        renamed_relations(statements, now) if now.num_rows else statements,
        sorted(keys),
        sorted(pairs),
        {key: renamed(pa.chunked_array([pa.array([key])]), now)[0].as_py() for key in moved},
    )


def _keys(table: pa.Table, names: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    return zip(*(table[name].to_pylist() for name in names), strict=True)


def _kept_letters(context: BuildContext, letters: pa.Table, stage: str, without: pa.Array) -> Dataset:
    """Return the dead letters of a stage, except those of some units."""
    own = letters.filter(pc.equal(letters["stage"], stage))
    return context.datasets.put("kept_letters", own.filter(pc.invert(pc.is_in(own["unit_id"], value_set=without))))


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


def _changed_mentions(
    context: BuildContext,
    base: UpdateBase,
    name: str,
    schema: pa.Schema,
    stale: pa.Array,
    found: Dataset,
    keys: tuple[str, ...],
) -> ChangedMentions:
    """Return the mentions of now, and those that came or went; none of the base's from stale chunks."""
    before, new = base.table(name).cast(schema), context.datasets.read(found)
    gone = rows_with(before["chunk_id"], stale)
    found_rows = changed_rows(before, gone, new, (*keys, "chunk_id", "position"), base.runs)
    now = ChangedRows(found_rows.table, *base.mapped_arrays(found_rows.origin))
    return ChangedMentions(now, before.take(pa.array(gone)), new)


def _put_rows_with(
    context: BuildContext, name: str, table: pa.Table, keys: tuple[str, ...], values: list[tuple[str, ...]]
) -> Dataset:
    """Return the rows with some values of the key columns as a dataset; a block of them is in memory at a time."""
    found, wanted = Dataset(table.schema), set(values)
    firsts = pa.array([value[0] for value in values], pa.string())
    for first in range(0, table.num_rows, _BLOCK_ROWS):
        rows = table.slice(first, _BLOCK_ROWS)
        rows = rows.filter(pc.is_in(rows[keys[0]], value_set=firsts))
        if len(keys) > 1:
            columns = [rows[key].to_pylist() for key in keys]
            rows = rows.filter(pa.array([value in wanted for value in zip(*columns, strict=True)], pa.bool_()))
        if rows.num_rows:
            found += context.datasets.put(name, rows)
    return found


def _with_claims(
    context: BuildContext,
    base: UpdateBase,
    layer: WrittenBaseLayer,
    chunks: tuple[Dataset, Dataset],
    stale: pa.Array,
    letters: pa.Table,
    moved: Mapping[str, str],
) -> WrittenBaseLayer:
    """Return the layer with the base's claims of chunks that stay, and those of new and of refused chunks."""
    datasets, mentions = context.datasets, layer.datasets(context)
    assert mentions is not None
    new, refused = chunks
    found = extract_claims(context, new, mentions, layer.aliases, "claims")
    claims, own_letters, costs = found.claims, found.rejects, layer.costs + found.costs
    if refused.rows:
        again = extract_claims(context, refused, mentions, layer.aliases, CLAIMS_AGAIN, any_letters=True)
        claims, own_letters = claims + again.claims, own_letters + again.rejects
        costs += again.costs
    before = base.table("claims").cast(CLAIMS)
    kept = _with_ends(before.filter(pc.invert(pc.is_in(before["chunk_id"], value_set=stale))), moved)
    rejects = layer.rejects + own_letters + _kept_letters(context, letters, ExtractClaims.name, stale)
    return replace(layer, claims=datasets.put("kept_claims", kept) + claims, rejects=rejects, costs=costs)


def _with_ends(claims: pa.Table, moved: Mapping[str, str]) -> pa.Table:
    """Return CLAIMS whose ends are the entities that names are resolved to now."""
    for end in ("subject", "object") if moved else ():
        names = zip(claims[end].to_pylist(), claims[f"{end}_id"].to_pylist(), strict=True)
        ids = [
            own if own is None or (key := name_key(name)) not in moved else entity_id(0, moved[key])
            for name, own in names
        ]
        at = claims.schema.get_field_index(f"{end}_id")
        claims = claims.set_column(at, CLAIMS.field(at), pa.array(ids, pa.string()))
    return claims
