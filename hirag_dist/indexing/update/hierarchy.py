"""The hierarchy after a change: anchored clusters, and summaries written again where enough of them has changed."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hirag_dist.core.clustering.stop_rule import change_rate, stop_before_clustering
from hirag_dist.core.graph.csr import rows_of
from hirag_dist.core.key_sets import KeySets, chunk_text_sets, key_sets
from hirag_dist.core.text.ids import entity_id
from hirag_dist.core.text.normalize import name_key
from hirag_dist.execution.dataset import Dataset
from hirag_dist.indexing.context import BuildContext
from hirag_dist.indexing.hierarchy import (
    clustering_options,
    merge_summaries,
    relate_equal_names,
    stop_limits,
    summary_stage,
)
from hirag_dist.indexing.layer_clustering import cluster_layer
from hirag_dist.indexing.layers import BaseLayer, Hierarchy, LayerRecord, SummaryLayer
from hirag_dist.indexing.stages.embed import vector_table
from hirag_dist.indexing.stages.summarise import SummariseClusters
from hirag_dist.indexing.update.base import UpdateBase
from hirag_dist.indexing.update.base_layer import LayerEntities, kept_vectors
from hirag_dist.indexing.update.budget import DueTexts, UpdateBudget, affordable
from hirag_dist.indexing.update.counts import TextCounts
from hirag_dist.indexing.update.layer_clusters import UpdatedClusters, update_clusters
from hirag_dist.indexing.update.written import (
    MODEL,
    STAND_IN,
    as_summaries,
    changed_share,
    member_inputs,
    summary_rows,
    written_inputs,
)
from hirag_dist.schemas import REJECTS, SUMMARIES, VECTORS
from hirag_dist.types import FloatVector, IntVector

logger = logging.getLogger(__name__)
_REQUEST_TOKENS = 90  # of a cluster's share of the instructions, about
_LOOSE_SHARE = 0.3  # of what is left of the budget, for clusters that are made again because they became loose
_LOOSE_TOKENS = 4_000  # of the summaries and reports that one of them changes, about
_REPLY_SHARE = (
    0.5  # of a layer's summaries at what is left of the budget: the layers above and the reports take the rest
)


@dataclass(frozen=True)
class UpdateSettings:
    """Settings of one update.

    Attributes:
        number: of the update, from 1 on.
        staleness: share of a text's inputs that may change before it is due.
        removed_keys: `text_key` of the texts that are in no chunk any more.
        labelled: whether documents carry labels: then a text must not outlive any input that it was written from.
        reply_tokens: of a summary and of a report, on average.
    """

    number: int
    staleness: float
    removed_keys: IntVector
    labelled: bool
    reply_tokens: tuple[float, float]


@dataclass(frozen=True)
class UpdatedHierarchy:
    """All layers after a change.

    Attributes:
        hierarchy: its `vectors` are empty.
        layers: entities and vectors of each layer.
        state: SUMMARIES of all layers.
        sources: texts that the entities of each layer derive from.
        counts: of summaries.
    """

    hierarchy: Hierarchy
    layers: tuple[LayerEntities, ...]
    state: pa.Table
    sources: tuple[KeySets, ...]
    counts: TextCounts


@dataclass(frozen=True)
class _Summaries:
    """Summaries of one layer's clusters: SUMMARIES by row of the members, dead letters, counts."""

    state: pa.Table
    rejects: Dataset
    counts: TextCounts
    rewritten: tuple[str, ...]


def update_hierarchy(
    context: BuildContext,
    base: UpdateBase,
    layer: BaseLayer,
    entities: LayerEntities,
    meta_types: tuple[str, ...],
    budget: UpdateBudget,
    settings: UpdateSettings,
) -> UpdatedHierarchy:
    """Return the hierarchy over layer 0 of now. Layers that the base has stay unless theirs fits one cluster.

    Args:
        layer: 0, of now.
        entities: of layer 0, with vectors.
    """
    limits, datasets = stop_limits(context.config), context.datasets
    decisions = {row["layer"]: row for row in base.table("layers").to_pylist()}
    sources = [chunk_text_sets(entities.table["chunk_ids"])]
    layers, records, states = [entities], [], []
    summaries: list[SummaryLayer] = []
    rejects, counts = Dataset(REJECTS), TextCounts()
    hints: dict[str, str] = {}
    while True:
        number, top = len(summaries), layers[-1]
        n_here = top.table.num_rows
        n_below = layers[-2].table.num_rows if number else None
        record = LayerRecord(number, n_here)
        was_clustered = bool(decisions.get(number, {}).get("n_summaries"))
        reason = stop_before_clustering(number, n_here, n_below, limits)
        if reason is not None and not (was_clustered and n_here > limits.target_cluster_size):
            records.append(replace(record, decision=reason))
            break
        before = decisions.get(number)
        if not was_clustered and before is not None and n_here < 2 * before["n_entities"]:
            records.append(replace(record, decision=before["decision"]))
            break
        clusters = _clusters(context, base, number, top, hints, was_clustered, budget)
        record = _with_stats(record, clusters, records)
        label = f"summarise layer {number}"
        written = _summaries(context, base, number, top, clusters, sources[-1], meta_types, budget, settings, label)
        rejects += written.rejects
        counts += written.counts
        members = datasets.put("cluster_members", clusters.members)
        replies = as_summaries(written.state, clusters.members, top.table["entity_id"])
        draft = merge_summaries(context, number + 1, members, datasets.put("cluster_summaries", replies), rejects)
        record = replace(
            record,
            n_attached=draft.n_attached,
            n_unattached=draft.n_unattached,
            n_summaries=draft.entities.rows,
        )
        if draft.entities.rows == 0:
            records.append(replace(record, n_summaries=0, decision=f"layer {number + 1} has no entity"))
            break
        above = datasets.read(draft.entities).sort_by("entity_id").combine_chunks()
        hints = _hints(base, number, written, above)
        layers.append(kept_vectors(context, base, number + 1, above, f"embed layer {number + 1}"))
        sources.append(_sources_above(datasets.read(draft.mentions), above, written.state, number + 1))
        records.append(record)
        states.append(written.state)
        summaries.append(
            SummaryLayer(
                draft.entities,
                draft.relations,
                Dataset(VECTORS),
                datasets.put("clusters", clusters.clusters),
                draft.mentions,
                draft.names,
            )
        )
    equal = relate_equal_names(context, layer, summaries)
    hierarchy = Hierarchy(layer, tuple(summaries), equal, tuple(records), rejects)
    state = pa.concat_tables([SUMMARIES.empty_table(), *states])
    return UpdatedHierarchy(hierarchy, tuple(layers), state, tuple(sources), counts)


def _clusters(
    context: BuildContext,
    base: UpdateBase,
    number: int,
    top: LayerEntities,
    hints: dict[str, str],
    anchored: bool,
    budget: UpdateBudget,
) -> UpdatedClusters:
    """Return the clusters of a layer: anchored in the base's, or new where the base has none."""
    options, datasets = clustering_options(context), context.datasets
    if anchored:
        max_loose = None if np.isinf(budget.left) else int(_LOOSE_SHARE * budget.left / _LOOSE_TOKENS)
        return update_clusters(base, options, number, top, hints, max_loose)
    vectors = datasets.put("layer_vectors", vector_table(top.table["entity_id"], top.vectors))
    found = cluster_layer(context.runner, options, number, vectors, datasets.put("layer_entities", top.table))
    members = datasets.read(found.members)
    clusters = datasets.read(found.clusters)
    return UpdatedClusters(clusters, members, found.stats, np.zeros(members.num_rows, np.int64))


def _summaries(
    context: BuildContext,
    base: UpdateBase,
    number: int,
    top: LayerEntities,
    clusters: UpdatedClusters,
    sources: KeySets,
    meta_types: tuple[str, ...],
    budget: UpdateBudget,
    settings: UpdateSettings,
    label: str,
) -> _Summaries:
    """Return the summaries of a layer's clusters: kept, written again, or stand-ins for what may not stay."""
    members, ids = clusters.members, top.table["entity_id"]
    state = base.table("summaries").cast(SUMMARIES)
    state = state.filter(pc.equal(state["layer"], number))
    at = rows_of(members["cluster_id"], state["cluster_id"])
    known = np.flatnonzero(at >= 0)
    n_clusters = members.num_rows
    inputs = member_inputs(members, ids)
    share = np.ones(n_clusters, np.float32)
    since = np.full(n_clusters, settings.number, np.int64)
    urgent, unwritten = np.zeros(n_clusters, bool), np.ones(n_clusters, bool)
    before = state.take(pa.array(at[known]))
    if len(known):
        share[known] = changed_share(written_inputs(before["inputs"], ids), inputs.take(known))
        stored = key_sets(before["sources"])
        urgent[known] = stored.hits(settings.removed_keys)
        if settings.labelled:
            now = inputs.take(known)
            urgent[known] |= ~stored.within(sources.unions(now.owners, now.ids, len(known)))
        stand_in = pc.equal(before["origin"], STAND_IN).to_numpy()
        unwritten[known] = stand_in
        share[known[stand_in]] = 1.0
        was_due = before["stale_since"].to_numpy()
        since[known] = np.where(was_due > 0, was_due, settings.number)
    due = urgent | unwritten | is_stale(share, settings.staleness)
    tokens = _tokens(members) + settings.reply_tokens[0]
    weight = share * np.diff(inputs.indptr)
    wanted = np.flatnonzero(due)
    chosen = affordable(
        DueTexts(urgent[wanted], since[wanted], weight[wanted], tokens[wanted]),
        budget.left * _REPLY_SHARE,
    )
    stage = summary_stage(context, number + 1, meta_types)
    new, rejects = _write(context, stage, label, members, wanted[chosen], sources, ids, number, MODEL, settings)
    done = np.zeros(n_clusters, bool)
    done[rows_of(new["cluster_id"], members["cluster_id"])] = True
    replaced = np.flatnonzero(due & ~done & (urgent | (at < 0)))
    rules = replace(stage, stand_in=True, models=())
    stood, _ = _write(
        context, rules, f"{label}: stand-ins", members, replaced, sources, ids, number, STAND_IN, settings
    )
    parts = [new, stood]
    gone = np.zeros(n_clusters, bool)
    for part in parts:
        gone[rows_of(part["cluster_id"], members["cluster_id"])] = True
    stays = np.flatnonzero(~gone & (at >= 0) & ~urgent)
    kept = _restated(state.take(pa.array(at[stays])), share[stays], np.where(due[stays], since[stays], 0))
    whole = pa.concat_tables([*parts, kept]).sort_by("cluster_id").combine_chunks()
    whole = _with_turnover(whole, members, clusters.n_turned)
    left = due & ~done
    counts = TextCounts(
        new.num_rows,
        int((~due).sum()),
        int(left.sum()),
        stood.num_rows + int((left & unwritten & ~gone).sum()),
        int(tokens[left].sum()),
    )
    rewritten = tuple(new["cluster_id"].to_pylist() + stood["cluster_id"].to_pylist())
    return _Summaries(whole, rejects, counts, rewritten)


def is_stale(share: NDArray[np.float32], staleness: float) -> NDArray[np.bool_]:
    """Return (n,) whether so much of a text's inputs has changed that it is due."""
    return (share > 0) & (share >= np.float32(staleness))


def _write(
    context: BuildContext,
    stage: SummariseClusters,
    label: str,
    members: pa.Table,
    rows: IntVector,
    sources: KeySets,
    ids: pa.ChunkedArray,
    layer: int,
    origin: str,
    settings: UpdateSettings,
) -> tuple[pa.Table, Dataset]:
    """Return SUMMARIES of some clusters, written now, and dead letters."""
    if not len(rows):
        return SUMMARIES.empty_table(), Dataset(REJECTS)
    some = members.take(pa.array(rows))
    given = context.datasets.put("due_clusters", some)
    found = context.runner.run_tolerant(stage, label, members=given)
    replies = context.datasets.read(found.summaries)
    return summary_rows(layer, some, replies, sources, ids, origin, settings.number), found.rejects


def _restated(state: pa.Table, share: NDArray[np.float32], since: IntVector) -> pa.Table:
    """Return SUMMARIES with the shares and numbers of now."""
    for name, values in (("stale_share", share), ("stale_since", since)):
        at = state.schema.get_field_index(name)
        field = state.schema.field(at)
        state = state.set_column(at, field, pa.array(values, field.type))
    return state


def _with_turnover(state: pa.Table, members: pa.Table, n_turned: IntVector) -> pa.Table:
    at = state.schema.get_field_index("n_turned")
    found = n_turned[rows_of(state["cluster_id"], members["cluster_id"])]
    return state.set_column(at, state.schema.field(at), pa.array(found, pa.int32()))


def _with_stats(record: LayerRecord, clusters: UpdatedClusters, below: Sequence[LayerRecord]) -> LayerRecord:
    previous = next((layer.sparsity for layer in reversed(below) if layer.sparsity is not None), None)
    rate = None if previous is None else change_rate(previous, clusters.stats.sparsity)
    return replace(record, change_rate=rate, **asdict(clusters.stats))


def _tokens(members: pa.Table) -> FloatVector:
    """Return the estimated tokens of each cluster's request."""
    total = np.full(members.num_rows, float(_REQUEST_TOKENS))
    for name in ("names", "types", "descriptions"):
        lists = members[name].combine_chunks()
        sizes = pc.list_value_length(lists).to_numpy(zero_copy_only=False)
        lengths = pc.binary_length(lists.flatten()).to_numpy(zero_copy_only=False)
        bounds = np.concatenate([[0], np.cumsum(sizes)])
        sums = np.concatenate([[0], np.cumsum(lengths)])
        total += (sums[bounds[1:]] - sums[bounds[:-1]]) / 4 + sizes
    return total


def _hints(base: UpdateBase, number: int, written: _Summaries, above: pa.Table) -> dict[str, str]:
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


def _sources_above(mentions: pa.Table, above: pa.Table, state: pa.Table, layer: int) -> KeySets:
    """Return the texts that summary entities derive from: those of all clusters whose summaries name them."""
    keys = mentions["name_key"].to_pylist()
    ids = pa.chunked_array([pa.array([entity_id(layer, key) for key in keys], pa.string())])
    owners = rows_of(ids, above["entity_id"])
    clusters = rows_of(mentions["cluster_id"], state["cluster_id"])
    return key_sets(state["sources"]).unions(owners, clusters, above.num_rows)


def fresh_state(context: BuildContext, hierarchy: Hierarchy) -> tuple[pa.Table, tuple[KeySets, ...]]:
    """Return SUMMARIES of a hierarchy that was built from nothing, and the texts that its entities derive from."""
    datasets = context.datasets
    entities = datasets.read(hierarchy.base.entities, ["entity_id", "chunk_ids"]).sort_by("entity_id")
    sources = [chunk_text_sets(entities["chunk_ids"])]
    ids = entities["entity_id"]
    states = []
    for number, layer in enumerate(hierarchy.summaries):
        assert layer.members is not None
        assert layer.replies is not None
        members, replies = datasets.read(layer.members), datasets.read(layer.replies)
        state = (
            summary_rows(number, members, replies, sources[-1], ids, MODEL, 0).sort_by("cluster_id").combine_chunks()
        )
        above = datasets.read(layer.entities, ["entity_id"]).sort_by("entity_id")
        sources.append(_sources_above(datasets.read(layer.mentions), above, state, number + 1))
        ids = above["entity_id"]
        states.append(state)
    return pa.concat_tables([SUMMARIES.empty_table(), *states]), tuple(sources)
