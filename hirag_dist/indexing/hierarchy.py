"""The hierarchy on top of layer 0: cluster, summarise, embed, until the stop rule ends it (paper Algorithm 1)."""

from __future__ import annotations

import logging
from dataclasses import asdict, dataclass, replace

from hirag_dist.config.model import META_TYPES, Config
from hirag_dist.core.clustering.partition_tree import ClusterSettings
from hirag_dist.core.clustering.stop_rule import StopLimits, change_rate, stop_after_clustering, stop_before_clustering
from hirag_dist.execution.dataset import Dataset
from hirag_dist.indexing.context import BuildContext
from hirag_dist.indexing.layer_clustering import LayerClusteringOptions, LayerClusters, cluster_layer
from hirag_dist.indexing.layers import (
    BaseLayer,
    Hierarchy,
    LayerRecord,
    SummaryLayer,
    embed_entities,
)
from hirag_dist.indexing.stages.meta_types import EXCERPT_CHARS, N_EXCERPTS, ProposeMetaTypes, SampleChunks
from hirag_dist.indexing.stages.packed_calls import PackingOptions
from hirag_dist.indexing.stages.summarise import SummariseClusters
from hirag_dist.indexing.stages.summary_layer import (
    LinkMembers,
    MergeSummaryEntities,
    MergeSummaryRelations,
    NormaliseNames,
    RelateEqualNames,
)
from hirag_dist.indexing.window_sizes import excerpt_tokens, member_tokens
from hirag_dist.schemas import REJECTS, RELATIONS

logger = logging.getLogger(__name__)
SUMMARY_CHARS = 1200
_MAX_UNCOVERING_SHARE = 0.3  # a layer with a larger share of summaries that cover no member is discarded


def build_hierarchy(context: BuildContext, base: BaseLayer, chunks: Dataset) -> Hierarchy:
    """Return layers 0, 1, 2, … up to the layer where the stop rule ends. Paper: Algorithm 1, lines 5–13.

    Args:
        chunks: sampled if meta types have to be proposed, which happens before the first layer is summarised.
    """
    options, limits = clustering_options(context), stop_limits(context.config)
    layers: list[BaseLayer | SummaryLayer] = [base]
    summaries: list[SummaryLayer] = []
    records: list[LayerRecord] = []
    rejects = Dataset(REJECTS)
    meta_types: MetaTypes | None = None
    while True:
        number, top = len(summaries), layers[-1]
        record = LayerRecord(number, top.entities.rows)
        n_below = layers[-2].entities.rows if number else None
        decision = stop_before_clustering(number, record.n_entities, n_below, limits)
        if decision is None:
            clusters = cluster_layer(context.runner, options, number, top.vectors, top.entities)
            record = _with_clusters(record, clusters, records)
            sparsities = [layer.sparsity for layer in (*records, record) if layer.sparsity is not None]
            decision = stop_after_clustering(sparsities, record.median_cluster, limits)
        if decision is None:
            if meta_types is None:
                meta_types = resolve_meta_types(context, chunks)
                rejects += meta_types.rejects
            draft = _summarise(context, number + 1, clusters, meta_types.names)
            rejects += draft.rejects
            record = replace(record, n_attached=draft.n_attached, n_unattached=draft.n_unattached)
            n_new = draft.entities.rows
            if n_new == 0 or draft.n_uncovering > _MAX_UNCOVERING_SHARE * n_new:
                decision = (
                    f"layer {number + 1} was dropped: {draft.n_uncovering} of its {n_new} summaries cover no member"
                )
        if decision is not None:
            records.append(replace(record, decision=decision))
            logger.info("the hierarchy ends at layer %d: %s", number, decision)
            break
        records.append(replace(record, n_summaries=draft.entities.rows))
        summaries.append(_embed(context, number + 1, clusters, draft))
        rejects += summaries[-1].rejects
        layers.append(summaries[-1])
    names = () if meta_types is None else meta_types.names
    equal = relate_equal_names(context, base, summaries)
    return Hierarchy(base, tuple(summaries), equal, tuple(records), rejects, names)


@dataclass(frozen=True)
class SummaryDraft:
    """A layer of summary entities before it is embedded, and what its record notes."""

    entities: Dataset
    relations: Dataset
    mentions: Dataset
    names: Dataset
    replies: Dataset
    rejects: Dataset
    n_uncovering: int
    n_attached: int
    n_unattached: int


def _with_clusters(record: LayerRecord, clusters: LayerClusters, below: list[LayerRecord]) -> LayerRecord:
    """Return the record with the figures of the layer's clusters."""
    previous = next((layer.sparsity for layer in reversed(below) if layer.sparsity is not None), None)
    rate = None if previous is None else change_rate(previous, clusters.stats.sparsity)
    return replace(record, change_rate=rate, **asdict(clusters.stats))


def summary_stage(context: BuildContext, layer: int, meta_types: tuple[str, ...]) -> SummariseClusters:
    """Return the stage that summarises clusters as entities of a layer."""
    config = context.config
    prompts = context.prompts.of("summarise")
    window = context.models.windows.get("summarise")
    return SummariseClusters(
        layer=layer,
        structured=context.models.structured["summarise"],
        meta_types=meta_types,
        packing=PackingOptions(config.pack_tokens),
        same_language=context.same_language,
        prompts=prompts,
        models=context.models.models["summarise"],
        member_tokens=0 if window is None else member_tokens(window, prompts, meta_types, config.tokenizer),
    )


def _summarise(context: BuildContext, layer: int, clusters: LayerClusters, meta_types: tuple[str, ...]) -> SummaryDraft:
    """Return the summaries of clusters as entities and relations of a layer."""
    stage = summary_stage(context, layer, meta_types)
    found = context.runner.run(stage, f"summarise layer {layer - 1}", members=clusters.members)
    return merge_summaries(context, layer, clusters.members, found.summaries, found.rejects)


def merge_summaries(
    context: BuildContext, layer: int, members: Dataset, summaries: Dataset, rejects: Dataset
) -> SummaryDraft:
    """Return summaries of clusters as entities and relations of a layer.

    Args:
        layer: of the summary entities.
        members: CLUSTER_MEMBERS of all clusters.
        summaries: CLUSTER_SUMMARIES of those that have one.
        rejects: dead letters of the others.
    """
    run, label = context.runner.run, f"merge layer {layer}"
    linked = run(LinkMembers(), f"{label}: links", members=members, summaries=summaries)
    entities = run(MergeSummaryEntities(layer, SUMMARY_CHARS), f"{label}: entities", mentions=linked.mentions)
    relations = run(MergeSummaryRelations(layer), f"{label}: relations", links=linked.links)
    return SummaryDraft(
        entities=entities.entities,
        relations=relations.relations,
        mentions=linked.mentions,
        names=entities.names,
        replies=summaries,
        rejects=rejects,
        n_uncovering=_total(context, entities.stats),
        n_attached=_total(context, linked.stats),
        n_unattached=_total(context, relations.stats),
    )


def _embed(context: BuildContext, layer: int, clusters: LayerClusters, draft: SummaryDraft) -> SummaryLayer:
    embedded = embed_entities(context, draft.entities, f"embed layer {layer}")
    return SummaryLayer(
        draft.entities,
        draft.relations,
        embedded.vectors,
        clusters.clusters,
        draft.mentions,
        draft.names,
        clusters.members,
        draft.replies,
        embedded.rejects,
    )


def relate_equal_names(context: BuildContext, base: BaseLayer, summaries: list[SummaryLayer]) -> Dataset:
    """Return relations between entities that have the same name in different layers."""
    if not summaries:
        return Dataset(RELATIONS)
    run = context.runner.run
    names = run(NormaliseNames(), "equal names: layer 0", entities=base.entities).names
    all_names = sum((layer.names for layer in summaries), names)
    return run(RelateEqualNames(), "equal names: relations", names=all_names).relations


def _total(context: BuildContext, stats: Dataset) -> int:
    """Return the sum of a stage's one statistic over its tasks."""
    (column,) = context.datasets.read(stats).columns
    return sum(column.to_pylist())


def clustering_options(context: BuildContext) -> LayerClusteringOptions:
    """Return the options of clustering layers."""
    config = context.config.clustering
    return LayerClusteringOptions(
        ClusterSettings(config.target_size, config.max_size, config.threshold, context.config.seed),
        context.models.dim,
        config.reduce_dims,
        config.member_chars,
        context.models.kernels,
        config.reduction,
    )


def stop_limits(config: Config) -> StopLimits:
    """Return the limits of the stop rule."""
    return StopLimits(config.stop, config.min_change_rate, config.clustering.target_size, config.max_layers)


@dataclass(frozen=True)
class MetaTypes:
    """Names of the meta types, and the dead letters of proposing them."""

    names: tuple[str, ...]
    rejects: Dataset = Dataset(REJECTS)


def resolve_meta_types(context: BuildContext, chunks: Dataset) -> MetaTypes:
    """Return the configured meta types, or those that the summarise model proposes; the defaults if it fails."""
    config, runner = context.config, context.runner
    if config.meta_types != "generate":
        return MetaTypes(config.meta_types)
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
    return MetaTypes(tuple(names) or META_TYPES, proposed.rejects)
