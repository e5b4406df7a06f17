"""The entities of a layer above and their relations after a change of the summaries below.

Merged again are names and members that a changed cluster has or had; the rows of all others are those of the base.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hirag_dist.core.entities.summaries import NAMES, names_of
from hirag_dist.core.graph.csr import rows_of
from hirag_dist.core.key_sets import KeySets, key_sets
from hirag_dist.core.row_changes import ChangedRows, changed_rows, one_array, rows_with
from hirag_dist.core.text.ids import entity_id, name_keys
from hirag_dist.execution.dataset import Dataset
from hirag_dist.indexing.base import UpdateBase
from hirag_dist.indexing.base_layer import LayerEntities, RelationChanges
from hirag_dist.indexing.context import BuildContext
from hirag_dist.indexing.layer_clusters import UpdatedClusters
from hirag_dist.indexing.stages.summarise import (
    LinkMembers,
    MergeSummaryEntities,
    MergeSummaryRelations,
    RelateEqualNames,
)
from hirag_dist.indexing.summaries import LayerSummaries
from hirag_dist.indexing.written import as_summaries
from hirag_dist.schemas import ENTITIES, RELATIONS
from hirag_dist.types import IntVector

SUMMARY_CHARS = 1200  # of the description of a summary entity


@dataclass(frozen=True)
class SummaryEntities:
    """Summary entities after a change.

    Attributes:
        entities: ENTITIES of the layer, sorted by id.
        relations: those from the layer below that came and went.
        sources: texts that each entity derives from.
        mentions: SUMMARY_MENTIONS, those of all clusters where that was asked.
        n_attached: members of summarised clusters that their summaries do not name, which were attached by words.
        n_unattached: members without a summary.
        n_uncovering: Entities merged now that cover no member.
        drafted: ENTITIES of a layer that is new as a whole, as the stage gave them.
    """

    entities: ChangedRows
    gone: IntVector
    relations: RelationChanges
    sources: KeySets
    mentions: Dataset
    n_attached: int
    n_unattached: int
    n_uncovering: int = 0
    drafted: Dataset | None = None


@dataclass(frozen=True)
class FormerRelations:
    """Relations of the base above layer 0.

    Attributes:
        rows: of the base's relations.
        sources: id of the lower end of each.
        layers: its layer.
        is_summary: whether its kind is `summary`, else `same_name`.
    """

    rows: IntVector
    sources: pa.ChunkedArray
    layers: IntVector
    is_summary: NDArray[np.bool_]

    def of_summaries(self, layer: int, members: pa.Array) -> IntVector:
        """Return the places in `rows` of relations from members of a layer to their summaries."""
        return np.flatnonzero(_mask(self.sources, members) & self.is_summary & (self.layers == layer))

    def above(self, n_layers: int) -> IntVector:
        """Return the places in `rows` of relations to summaries of layers that do not exist any more."""
        return np.flatnonzero(self.is_summary & (self.layers >= n_layers - 1))

    def of_names(self, entities: pa.Array) -> IntVector:
        """Return the places in `rows` of relations between entities of equal names."""
        return np.flatnonzero(~self.is_summary & _mask(self.sources, entities))


@dataclass(frozen=True)
class _Changes:
    """Differences between the clusters of the base and those of now.

    Attributes:
        clusters: rows of the clusters of now whose members, texts or summary are others.
        former: CLUSTERS of the base's clusters that are among them or gone.
        members: ids of all members of both, distinct.
        n_before, n_now: members of these that are in a cluster of the base, and of now.
        is_member: (n_entities,) bool, entities of now that are among `members`.
    """

    clusters: IntVector
    former: pa.Table
    members: pa.Array
    n_before: int
    n_now: int
    is_member: NDArray[np.bool_]


def former_relations(base: UpdateBase) -> FormerRelations:
    """Return the relations of the base above layer 0."""
    table = base.table("relations", ["source_id", "kind", "layer"])
    rows = np.flatnonzero(pc.not_equal(table["kind"], "extracted").to_numpy(zero_copy_only=False))
    found = table.take(pa.array(rows)).combine_chunks()
    is_summary = pc.equal(found["kind"], "summary").to_numpy(zero_copy_only=False)
    return FormerRelations(rows, found["source_id"], found["layer"].to_numpy(), is_summary)


def update_summary_entities(
    context: BuildContext,
    base: UpdateBase,
    number: int,
    below: LayerEntities,
    clusters: UpdatedClusters,
    written: LayerSummaries,
    former: FormerRelations,
    all_mentions: bool,
) -> SummaryEntities:
    """Return the entities that the summaries of a layer's clusters name.

    Args:
        all_mentions: return the mentions of all clusters.
    """
    run, put, read, label = context.runner.run, context.datasets.put, context.datasets.read, f"merge layer {number + 1}"
    state = written.state
    if clusters.shown is not None and written.replies is not None:
        return _new_entities(context, base, number, clusters.shown, written.replies, state)
    place = rows_of(pa.chunked_array([clusters.ids]), state["cluster_id"])
    changes = _changes(base, number, below, clusters, written.origin, place)
    names = _Names.of(state)
    was = base.layer_rows("summaries", number)[0]
    was = was.take(pa.array(rows_with(was["cluster_id"], pc.unique(one_array(changes.former["cluster_id"])))))
    at = place[changes.clusters]
    is_changed = np.zeros(state.num_rows, bool)
    is_changed[at[at >= 0]] = True
    keys = pc.unique(pa.concat_arrays([names.keys.filter(pa.array(is_changed[names.owners])), _Names.of(was).keys]))
    chosen = np.zeros(len(clusters.ids), bool)
    chosen[changes.clusters] = True
    owners = np.repeat(np.arange(len(clusters.ids)), clusters.sizes)
    chosen[owners[changes.is_member[clusters.rows]]] = True
    cluster_of = np.full(state.num_rows, -1, np.int64)
    cluster_of[place[place >= 0]] = np.flatnonzero(place >= 0)
    chosen[cluster_of[names.owners[_mask(names.keys, keys)]]] = True
    linked = _linked(context, label, clusters, state, place, np.flatnonzero(chosen | all_mentions))
    mentions, links = read(linked.mentions), read(linked.links)
    merged = run(
        MergeSummaryEntities(number + 1, SUMMARY_CHARS),
        f"{label}: entities",
        mentions=put("changed_mentions", mentions.filter(pc.is_in(mentions["name_key"], value_set=keys))),
    )
    relations = run(
        MergeSummaryRelations(number + 1),
        f"{label}: relations",
        links=put("changed_links", links.filter(pc.is_in(links["member_id"], value_set=changes.members))),
    )
    before = base.layer_entities(number + 1)[0]
    gone = rows_with(
        before["entity_id"], pa.array([entity_id(number + 1, key) for key in keys.to_pylist()], pa.string())
    )
    entities = changed_rows(before, gone, read(merged.entities), ("entity_id",), base.rows)
    lost = former.of_summaries(number, changes.members)
    new = read(relations.relations)
    noted = next((row for row in base.table("layers").to_pylist() if row["layer"] == number), None)
    n_attached = 0 if noted is None else noted["n_attached"]
    links_at = KeySets(clusters.indptr, np.arange(len(clusters.rows))).take(changes.clusters).keys
    n_attached += _attached(state.take(pa.array(at[at >= 0])), clusters.clusters.take(pa.array(links_at)))
    n_attached -= _attached(was, changes.former)
    n_unattached = 0 if noted is None else noted["n_unattached"]
    n_unattached += changes.n_now - len(pc.unique(new["source_id"]))
    n_unattached -= changes.n_before - len(pc.unique(former.sources.take(pa.array(lost))))
    return SummaryEntities(
        entities,
        gone,
        RelationChanges(former.rows[lost], new),
        names.sources(state, entities.table, number + 1),
        linked.mentions,
        n_attached,
        n_unattached,
    )


def _new_entities(
    context: BuildContext, base: UpdateBase, number: int, members: Dataset, replies: Dataset, state: pa.Table
) -> SummaryEntities:
    """Return the entities that all summaries of a layer name, which the base has not clustered."""
    run, tables, label = context.runner.run, context.datasets.tables, f"merge layer {number + 1}"
    linked = run(LinkMembers(), f"{label}: links", members=members, summaries=replies)
    merged = run(MergeSummaryEntities(number + 1, SUMMARY_CHARS), f"{label}: entities", mentions=linked.mentions)
    relations = run(MergeSummaryRelations(number + 1), f"{label}: relations", links=linked.links)
    none = np.zeros(0, np.int64)
    table = base.sorted(tables(merged.entities), ENTITIES, ("entity_id",))
    return SummaryEntities(
        ChangedRows(table, np.full(table.num_rows, -1, np.int64)),
        none,
        RelationChanges(none, base.mapped(tables(relations.relations), RELATIONS)),
        sources_above(state, table, number + 1),
        linked.mentions,
        _total(context, linked.stats),
        _total(context, relations.stats),
        _total(context, merged.stats),
        merged.entities,
    )


def _total(context: BuildContext, stats: Dataset) -> int:
    """Return the sum of a stage's one statistic over its tasks."""
    (column,) = context.datasets.read(stats).columns
    return sum(column.to_pylist())


def update_equal_names(
    context: BuildContext, base: UpdateBase, layers: tuple[LayerEntities, ...], former: FormerRelations
) -> RelationChanges:
    """Return the relations between entities of equal names in different layers that came and went."""
    changed, gone = [], []
    n_before = int(base.table("entities", ["layer"])["layer"].to_numpy().max(initial=-1)) + 1
    for number in range(max(n_before, len(layers))):
        was = base.layer_entities(number)[0].select(["entity_id", "name"])
        if number < len(layers):
            layer = layers[number]
            changed.append(layer.table["name"].filter(pa.array(layer.changed)))
            was = was.take(pa.array(layer.gone))
        gone.append(was)
    lost = pa.concat_tables(gone)
    keys = pc.unique(
        name_keys(
            pa.chunked_array([*lost["name"].chunks, *(c for names in changed for c in names.chunks)], pa.string())
        )
    )
    found = [NAMES.empty_table()]
    for layer in layers:
        own = names_of(layer.table)
        found.append(own.filter(pc.is_in(own["name_key"], value_set=keys)))
    names = pa.concat_tables(found)
    entities = pc.unique(pa.chunked_array([*lost["entity_id"].chunks, *names["entity_id"].chunks], pa.string()))
    given = context.datasets.put("changed_names", names)
    new = context.runner.run(RelateEqualNames(), "equal names: relations", names=given).relations
    return RelationChanges(former.rows[former.of_names(entities)], context.datasets.read(new))


def _changes(
    base: UpdateBase,
    number: int,
    below: LayerEntities,
    clusters: UpdatedClusters,
    origin: IntVector,
    place: IntVector,
) -> _Changes:
    """Return the differences between the clusters of the base and those of now.

    Args:
        origin: row in the base's SUMMARIES of each summary of now, −1 where its text is new.
        place: row of each cluster's summary, −1 for none.
    """
    kept = place >= 0
    kept[kept] = origin[place[kept]] >= 0
    same = kept & ~clusters.touched
    links = base.layer_rows("clusters", number)[0]
    former = links.filter(pc.invert(pc.is_in(links["cluster_id"], value_set=clusters.ids.filter(pa.array(same)))))
    former_ids = pc.unique(one_array(former["entity_id"]))
    ids = below.table["entity_id"]
    was_member = _mask(ids, former_ids)
    is_member = was_member.copy()
    is_member[clusters.rows[np.repeat(~same, clusters.sizes)]] = True
    members = pc.unique(pa.concat_arrays([former_ids, one_array(ids.filter(pa.array(is_member)))]))
    stayed = int((is_member & ~was_member & (below.places >= 0)).sum()) if links.num_rows else 0
    return _Changes(np.flatnonzero(~same), former, members, len(former_ids) + stayed, int(is_member.sum()), is_member)


def _linked(
    context: BuildContext,
    label: str,
    clusters: UpdatedClusters,
    state: pa.Table,
    place: IntVector,
    which: IntVector,
) -> LinkMembers.Outputs:
    """Return the mentions and links of some clusters."""
    members = clusters.members(which)
    rows = place[which]
    ids = pa.chunked_array([pc.unique(members["member_ids"].combine_chunks().flatten())])
    replies = as_summaries(state.take(pa.array(rows[rows >= 0])), members, ids)
    put = context.datasets.put
    return context.runner.run(
        LinkMembers(),
        f"{label}: links",
        members=put("changed_clusters", members),
        summaries=put("changed_summaries", replies),
    )


@dataclass(frozen=True)
class _Names:
    """Names of summary entities: the row of SUMMARIES that each is of, and its key."""

    owners: IntVector
    keys: pa.Array

    @classmethod
    def of(cls, state: pa.Table) -> _Names:
        lists = one_array(state["entities"])
        owners = np.repeat(np.arange(len(lists)), pc.list_value_length(lists).to_numpy(zero_copy_only=False))
        return cls(owners, name_keys(lists.flatten().field("name")))

    def sources(self, state: pa.Table, above: pa.Table, layer: int) -> KeySets:
        """Return the texts that entities derive from: those of all clusters whose summaries name them."""
        ids = pa.array([entity_id(layer, key) for key in self.keys.to_pylist()], pa.string())
        owners = rows_of(pa.chunked_array([ids]), above["entity_id"])
        return key_sets(state["sources"]).unions(owners, self.owners, above.num_rows)


def sources_above(state: pa.Table, above: pa.Table, layer: int) -> KeySets:
    """Return the texts that summary entities derive from: those of all clusters whose summaries name them.

    Args:
        state: SUMMARIES of the layer below.
        above: ENTITIES.
    """
    return _Names.of(state).sources(state, above, layer)


def _attached(state: pa.Table, links: pa.Table) -> int:
    """Return the number of members, by CLUSTERS, that the summaries of their clusters do not name."""
    owner = rows_of(links["cluster_id"], state["cluster_id"])
    links, owner = links.filter(pa.array(owner >= 0)), owner[owner >= 0]
    ids = pa.chunked_array([pc.unique(one_array(links["entity_id"]))])
    there = owner * len(ids) + rows_of(links["entity_id"], ids)
    covers = one_array(state["covers"])
    cluster = np.repeat(np.arange(len(covers)), pc.list_value_length(covers).to_numpy(zero_copy_only=False))
    member = rows_of(pa.chunked_array([covers.flatten().field("member_id")]), ids)
    named = np.unique((cluster * len(ids) + member)[member >= 0])
    return len(there) - int(np.isin(named, there).sum())


def _mask(column: pa.ChunkedArray | pa.Array, values: pa.Array) -> NDArray[np.bool_]:
    """Return (n,) whether a text is one of some values."""
    found: NDArray[np.bool_] = pc.is_in(column, value_set=values).to_numpy(zero_copy_only=False)
    return found
