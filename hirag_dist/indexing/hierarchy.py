"""The hierarchy over layer 0: cluster, summarise, embed, until the stop rule ends it (paper Algorithm 1).

Clusters are anchored in those of the base, and summaries written again where enough of them has changed; where the
base has none, all are new.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hirag_dist.config.model import META_TYPES
from hirag_dist.core.clustering.stop_rule import StopLimits, change_rate, stop_after_clustering, stop_before_clustering
from hirag_dist.core.entities.merging import CHARS_PER_TOKEN
from hirag_dist.core.graph.csr import rows_of
from hirag_dist.core.key_sets import KeySets, chunk_text_sets, key_sets
from hirag_dist.core.row_changes import ChangedRows, origin_of_same
from hirag_dist.core.text.ids import entity_id
from hirag_dist.core.text.normalize import name_key
from hirag_dist.execution.dataset import Dataset
from hirag_dist.indexing.base import UpdateBase
from hirag_dist.indexing.base_layer import (
    LayerEntities,
    RelationChanges,
    WrittenBaseLayer,
    kept_vectors,
    new_entities,
)
from hirag_dist.indexing.budget import TextCounts, UpdateSettings
from hirag_dist.indexing.context import BuildContext
from hirag_dist.indexing.layer_clusters import (
    LayerClusteringOptions,
    UpdatedClusters,
    cluster_layer,
    clustering_options,
    new_clusters,
    update_clusters,
)
from hirag_dist.indexing.mentions import embed_entities
from hirag_dist.indexing.stages.embed import vector_table
from hirag_dist.indexing.stages.summarise import EXCERPT_CHARS, N_EXCERPTS, ProposeMetaTypes, SampleChunks
from hirag_dist.indexing.summaries import OF_NOW, LayerSummaries, update_summaries
from hirag_dist.indexing.summary_entities import (
    FormerRelations,
    SummaryEntities,
    former_relations,
    update_equal_names,
    update_summary_entities,
)
from hirag_dist.indexing.window_sizes import excerpt_tokens
from hirag_dist.schemas import CLUSTERS, LAYERS, REJECTS, RELATIONS, SUMMARIES

logger = logging.getLogger(__name__)
_MAX_UNCOVERING_SHARE = 0.3  # a layer with a larger share of summaries that cover no member is discarded
_PIECE_ROWS = 65_536
_LOOSE_SHARE = 0.3  # share of the budget's rest that a layer may spend on clusters that have become loose


@dataclass(frozen=True)
class LayerRecord:
    """A row of LAYERS: the figures of one layer that the stop rule used, and its decision."""

    layer: int
    n_entities: int
    n_clusters: int = 0
    median_cluster: float = 0.0
    largest_cluster: int = 0
    sparsity: float | None = None
    change_rate: float | None = None
    n_components: int = 0
    n_summaries: int = 0
    n_attached: int = 0
    n_unattached: int = 0
    decision: str = "go on"


def layer_table(records: Sequence[LayerRecord]) -> pa.Table:
    """Return LAYERS.

    >>> layer_table([LayerRecord(0, 5, decision="max_layers")])["decision"].to_pylist()
    ['max_layers']
    """
    return pa.Table.from_pylist([asdict(record) for record in records], LAYERS)


@dataclass(frozen=True)
class Hierarchy:
    """All layers after a change.

    Attributes:
        clusters: CLUSTERS of all layers.
        relations: RELATIONS of all kinds, sorted by id.
        mentions: SUMMARY_MENTIONS of each summary layer; of all clusters only where documents carry labels.
        rejects: dead letters above layer 0.
        state: SUMMARIES of all layers, sorted by (layer, cluster).
        sources: texts that the entities of each layer derive from.
        meta_types: that summaries were guided by; none where there is no summary.
    """

    layers: tuple[LayerEntities, ...]
    clusters: pa.Table
    relations: ChangedRows
    relation_changes: RelationChanges
    records: tuple[LayerRecord, ...]
    mentions: tuple[Dataset, ...]
    rejects: Dataset
    state: ChangedRows
    sources: tuple[KeySets, ...]
    counts: TextCounts
    meta_types: tuple[str, ...]


def write_hierarchy(
    context: BuildContext,
    base: UpdateBase,
    layer: WrittenBaseLayer,
    chunks: Dataset,
    settings: UpdateSettings,
) -> Hierarchy:
    """Return the hierarchy over layer 0 of now, up to where the stop rule ends it. Paper: Algorithm 1, lines 5–13.

    Layers that the base has stay unless theirs fits one cluster.

    Args:
        chunks: sampled where meta types have to be proposed, which happens before the first layer is summarised.
    """
    former_records = {row["layer"]: row for row in base.table("layers").to_pylist()}
    config = context.config
    limits = StopLimits(config.stop, config.min_change_rate, config.clustering.target_size, config.max_layers)
    sources = [base.mapped_sets(_text_sources(layer))]
    layers, records = [layer.entities], list[LayerRecord]()
    states: list[ChangedRows] = []
    clusters_of, relations, mentions = [CLUSTERS.empty_table()], [layer.relations], []
    rejects, counts = Dataset(REJECTS), TextCounts()
    former = former_relations(base)
    hints: dict[str, str] = {}
    meta_types = None if base.is_nothing else base.note.meta_types
    while True:
        number, top = len(states), layers[-1]
        before = former_records.get(number)
        was_clustered = bool((before or {}).get("n_summaries"))
        n_below = layers[-2].table.num_rows if number else None
        decision = _decision(number, top.table.num_rows, n_below, before, limits)
        record = LayerRecord(number, top.table.num_rows)
        if decision is None:
            clusters = _clusters(context, base, number, top, hints, was_clustered, settings)
            record = _with_stats(record, clusters, records)
            if not was_clustered:
                sparsities = [each.sparsity for each in (*records, record) if each.sparsity is not None]
                decision = stop_after_clustering(sparsities, record.median_cluster, limits)
        if decision is None:
            if meta_types is None:
                meta_types, letters = resolve_meta_types(context, chunks)
                rejects += letters
            written = update_summaries(context, base, number, clusters, sources[-1], meta_types, settings)
            rejects += written.rejects
            counts += written.counts
            found = update_summary_entities(
                context, base, number, top, clusters, written, former, settings.has_provenance
            )
            n_new = found.entities.table.num_rows
            record = replace(record, n_attached=found.n_attached, n_unattached=found.n_unattached)
            if not n_new or found.n_uncovering > _MAX_UNCOVERING_SHARE * n_new:
                decision = (
                    f"layer {number + 1} was dropped: {found.n_uncovering} of its {n_new} summaries cover no member"
                )
        if decision is not None:
            records.append(replace(record, decision=decision))
            logger.info("the hierarchy ends at layer %d: %s", number, decision)
            break
        above = found.entities.table
        records.append(replace(record, n_summaries=above.num_rows))
        hints = _hints(base, number, written, above)
        layers.append(_embedded(context, base, number + 1, found))
        sources.append(base.mapped_sets(found.sources))
        states.append(_state(base, number, written))
        clusters_of.append(base.joined([clusters.clusters]))
        relations.append(found.relations)
        mentions.append(found.mentions)
    if states:
        relations.append(update_equal_names(context, base, tuple(layers), former))
    changes = _relation_changes(base, former, relations, len(layers), bool(states))
    before_all, new = base.table("relations").cast(RELATIONS), changes.new
    batches = (new.slice(first, _PIECE_ROWS) for first in range(0, new.num_rows, _PIECE_ROWS))  # without a copy
    return Hierarchy(
        tuple(layers),
        pa.concat_tables(clusters_of),
        base.changed(before_all, changes.gone, batches, RELATIONS, ("relation_id",)),
        changes,
        tuple(records),
        tuple(mentions),
        rejects,
        ChangedRows(
            base.joined([SUMMARIES.empty_table(), *(state.table for state in states)]),
            np.concatenate([np.zeros(0, np.int64), *(state.origin for state in states)]),
        ),
        tuple(sources),
        counts,
        meta_types or (),
    )


def _text_sources(layer: WrittenBaseLayer) -> KeySets:
    """Return the texts that each entity of layer 0 derives from: those that name it, and former texts of documents."""
    found, debt = chunk_text_sets(layer.entities.table["chunk_ids"]), key_sets(layer.debt["sources"])
    if not len(debt.keys):
        return found
    ids = pa.array([entity_id(0, key) for key in layer.debt["name_key"].to_pylist()], pa.string())
    rows = rows_of(pa.chunked_array([ids]), layer.entities.table["entity_id"])
    return found.with_keys(rows[debt.owners], debt.keys)


def _embedded(context: BuildContext, base: UpdateBase, number: int, found: SummaryEntities) -> LayerEntities:
    """Return the entities of a summary layer with their vectors."""
    label = f"embed layer {number}"
    if found.drafted is None:
        return kept_vectors(context, base, number, found.entities, found.gone, label)
    embedded = embed_entities(context, found.drafted, label)
    return new_entities(context, base, found.drafted, embedded.vectors, embedded.rejects)


def _decision(
    number: int, n_here: int, n_below: int | None, before: Mapping[str, Any] | None, limits: StopLimits
) -> str | None:
    """Return why the hierarchy ends at a layer with `n_here` entities, None where it goes on."""
    was_clustered = bool((before or {}).get("n_summaries"))
    reason = stop_before_clustering(number, n_here, n_below, limits)
    if reason is not None and not (was_clustered and n_here > limits.target_cluster_size):
        return reason
    if not was_clustered and before is not None and n_here < 2 * before["n_entities"]:
        return str(before["decision"])
    return None


def _relation_changes(
    base: UpdateBase, former: FormerRelations, changes: Sequence[RelationChanges], n_layers: int, has_summaries: bool
) -> RelationChanges:
    """Return the changes of relations of all kinds as one, `gone` ascending and distinct."""
    gone = [own.gone for own in changes] + [former.rows[former.above(n_layers)]]
    if not has_summaries:
        gone.append(former.rows)
    tables = [own.new for own in changes]
    new = pa.concat_tables(tables) if base.is_nothing else base.joined(tables)  # a build sorts them next
    return RelationChanges(np.unique(np.concatenate(gone)).astype(np.int64), new)


def _clusters(
    context: BuildContext,
    base: UpdateBase,
    number: int,
    top: LayerEntities,
    hints: dict[str, str],
    anchored: bool,
    settings: UpdateSettings,
) -> UpdatedClusters:
    """Return the clusters of a layer: anchored in the base's, or new where the base has none."""
    options, datasets = clustering_options(context), context.datasets
    if anchored:
        max_loose = _max_loose(options, top.table, settings)
        return update_clusters(base, options, number, top, hints, max_loose, settings.is_refresh)
    if top.datasets is None:
        vectors = datasets.put("layer_vectors", vector_table(top.table["entity_id"], np.asarray(top.vectors)))
        entities = datasets.put("layer_entities", top.table)
    else:
        entities, vectors = top.datasets
    found = cluster_layer(context.runner, options, number, vectors, entities)
    clusters = base.sorted(datasets.tables(found.clusters), CLUSTERS, ("cluster_id", "entity_id"))
    return new_clusters(top.table, clusters, found.stats, options.description_chars, found.members)


def _max_loose(options: LayerClusteringOptions, entities: pa.Table, settings: UpdateSettings) -> int | None:
    """Return the maximum of clusters to make again, so that their texts fit into the budget; None for no limit.

    A cluster of usual size costs its summary, and about as much for a report: both read its members and write a reply.
    A budget of twice that allows one in any case, or small indexes that grow by few words would never be repaired.
    """
    tokens_left = settings.budget.left
    if np.isinf(tokens_left):
        return None
    chars = np.minimum(pc.utf8_length(entities["description"]).to_numpy(), options.description_chars).mean()
    n_tokens = 2 * options.settings.target_size * chars / CHARS_PER_TOKEN + sum(settings.reply_tokens)
    return max(int(_LOOSE_SHARE * tokens_left / n_tokens), int(tokens_left >= 2 * n_tokens))


def _with_stats(record: LayerRecord, clusters: UpdatedClusters, below: Sequence[LayerRecord]) -> LayerRecord:
    previous = next((layer.sparsity for layer in reversed(below) if layer.sparsity is not None), None)
    rate = None if previous is None else change_rate(previous, clusters.stats.sparsity)
    return replace(record, change_rate=rate, **asdict(clusters.stats))


def _state(base: UpdateBase, number: int, written: LayerSummaries) -> ChangedRows:
    """Return SUMMARIES of a layer, and the row of each in the base, −1 where it is not as it was."""
    before, first = base.layer_rows("summaries", number)
    origin = origin_of_same(written.state, before.cast(SUMMARIES), written.origin, OF_NOW)
    return ChangedRows(written.state, np.where(origin >= 0, first + origin, -1))


def _hints(base: UpdateBase, number: int, written: LayerSummaries, above: pa.Table) -> dict[str, str]:
    """Return new summary entity → cluster of the base, at its layer, of the entity that its cluster had before."""
    if not written.rewritten:
        return {}
    links = base.table("clusters")
    links = links.filter(pc.and_(pc.equal(links["layer"], number + 1), links["best"]))
    home = dict(zip(links["entity_id"].to_pylist(), links["cluster_id"].to_pylist(), strict=True))
    former = base.table("summaries", ["layer", "cluster_id", "entities"])
    former = former.filter(pc.equal(former["layer"], number))
    changed = pa.array(written.rewritten, pa.string())
    was = _names_by_cluster(former.filter(pc.is_in(former["cluster_id"], value_set=changed)))
    now = _names_by_cluster(written.state.filter(pc.is_in(written.state["cluster_id"], value_set=changed)))
    present = set(above["entity_id"].to_pylist()) - set(home)
    hints: dict[str, str] = {}
    for cluster in sorted(now):
        before = [entity_id(number + 1, name_key(name)) for name in was.get(cluster, ())]
        homes = [home[own] for own in before if own in home]
        for place, name in enumerate(now[cluster]):
            own = entity_id(number + 1, name_key(name))
            if homes and own in present:
                hints.setdefault(own, homes[min(place, len(homes) - 1)])
    return hints


def _names_by_cluster(state: pa.Table) -> dict[str, list[str]]:
    rows = state.select(["cluster_id", "entities"]).to_pylist()
    return {row["cluster_id"]: [entity["name"] for entity in row["entities"]] for row in rows}


def resolve_meta_types(context: BuildContext, chunks: Dataset) -> tuple[tuple[str, ...], Dataset]:
    """Return the configured meta types, or those that the summarise model proposes, and dead letters of proposing them.

    Where the model fails, the types are the defaults.
    """
    config, runner = context.config, context.runner
    if config.meta_types != "generate":
        return config.meta_types, Dataset(REJECTS)
    sample = runner.run(SampleChunks(N_EXCERPTS, EXCERPT_CHARS), "meta types: sample", chunks=chunks)
    prompts, window = context.prompts.of("meta-types"), context.models.windows.get("summarise")
    propose = ProposeMetaTypes(
        N_EXCERPTS,
        prompts,
        context.models.models["summarise"],
        None if window is None else excerpt_tokens(window, prompts, config.tokenizer),
    )
    proposed = runner.run_tolerant(propose, "meta types", excerpts=sample.excerpts)
    names = context.datasets.read(proposed.meta_types)["meta_type"].to_pylist()
    return tuple(names) or META_TYPES, proposed.rejects
