"""The hierarchy on top of layer 0: cluster, summarise, embed, until the stop rule ends it (paper Algorithm 1)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from hirag_dist.config.model import Config
from hirag_dist.core.clustering.partition_tree import ClusterSettings
from hirag_dist.core.clustering.stop_rule import StopLimits, change_rate, stop_after_clustering, stop_before_clustering
from hirag_dist.core.prompts.templates import Prompts
from hirag_dist.execution.runner import Dataset, Run
from hirag_dist.indexing.context import ResolvedModels
from hirag_dist.indexing.layer_clustering import LayerClusteringOptions, LayerClusters, cluster_layer
from hirag_dist.indexing.stages.embed import EmbedEntities
from hirag_dist.indexing.stages.packed_calls import PackingOptions
from hirag_dist.indexing.stages.summarise import SummariseClusters
from hirag_dist.indexing.stages.summary_layer import (
    LinkMembers,
    MergeSummaryEntities,
    MergeSummaryRelations,
    NormaliseNames,
    RelateEqualNames,
)
from hirag_dist.schemas import ALIASES, CLAIMS

log = logging.getLogger(__name__)
DESCRIPTION_CHARS = 480  # of a member in a prompt
_SUMMARY_CHARS = 1200
_UNCOVERING_LIMIT = 0.3  # a layer with a larger share of summaries that cover nobody is dropped
_NOTHING: dict[str, Any] = {
    "n_clusters": 0,
    "median_cluster": 0.0,
    "largest_cluster": 0,
    "sparsity": None,
    "change_rate": None,
    "n_components": 0,
    "n_summaries": 0,
    "n_attached": 0,
    "n_unattached": 0,
}


@dataclass(frozen=True)
class ImportedCommunities:
    """Communities of layer 0 that another tool found, and their reports."""

    communities: Dataset
    reports: Dataset


@dataclass
class HierarchyState:
    """The hierarchy as it grows: entities and vectors by layer, relations of all, a record a layer.

    Attributes:
        mentions, relation_mentions: what layer 0 was merged from, by the names before resolution; None where it was
            imported.
        claims: what texts claim of entities.
        kept: communities to take over; None: they are found when all layers are there.
        summary_mentions: what each layer above was merged from, the first one's first.
    """

    entities: list[Dataset]
    vectors: list[Dataset]
    relations: Dataset
    clusters: Dataset
    rejects: Dataset
    aliases: Dataset = field(default_factory=lambda: Dataset(ALIASES, ()))
    claims: Dataset = field(default_factory=lambda: Dataset(CLAIMS, ()))
    kept: ImportedCommunities | None = None
    records: list[dict[str, Any]] = field(default_factory=list)
    mentions: Dataset | None = None
    relation_mentions: Dataset | None = None
    summary_mentions: list[Dataset] = field(default_factory=list)


@dataclass(frozen=True)
class _SummaryLayer:
    """A layer of summary entities, not yet embedded."""

    entities: Dataset
    names: Dataset
    relations: Dataset
    mentions: Dataset
    n_uncovering: int


class HierarchyBuilder:
    """Grows the layers of one build."""

    def __init__(
        self,
        run: Run,
        config: Config,
        prompts: Prompts,
        resolved: ResolvedModels,
        meta_types: Callable[[], tuple[str, ...]],
    ) -> None:
        """Prepare a growth; `meta_types` gives 𝒳, and is asked when the first layer is summarised."""
        self._run = run
        self._config = config
        self._prompts = prompts
        self._resolved = resolved
        self._meta_types = cache(meta_types)
        self._sparsities: list[float] = []
        self._names: list[Dataset] = []  # of the layers above 0
        clustering = config.clustering
        self._clustering = LayerClusteringOptions(
            ClusterSettings(
                clustering.target_size,
                clustering.max_size,
                clustering.threshold,
                config.seed,
                clustering.covariance,
            ),
            resolved.dim,
            clustering.reduce_dims,
            DESCRIPTION_CHARS,
            resolved.kernels,
            clustering.reduction,
        )
        self._limits = StopLimits(config.stop, config.min_change_rate, clustering.target_size, config.max_layers)

    def grow(self, layers: HierarchyState) -> None:
        """Add layers 1, 2, … until the stop rule ends them. Paper: Algorithm 1, lines 5–13."""
        while True:
            layer = len(layers.entities) - 1
            record: dict[str, Any] = {"layer": layer, "n_entities": layers.entities[layer].rows} | _NOTHING
            layers.records.append(record)
            below = layers.entities[layer - 1].rows if layer else None
            decision = stop_before_clustering(layer, record["n_entities"], below, self._limits)
            if decision is None:
                decision = self._grow_one(layers, layer, record)
            record["decision"] = decision or "go on"
            if decision is not None:
                log.info("the hierarchy ends at layer %d: %s", layer, decision)
                break
        if self._names:
            layers.relations += self._equal_names(layers.entities[0])

    def _grow_one(self, layers: HierarchyState, layer: int, record: dict[str, Any]) -> str | None:
        """Add a layer; return why there is none."""
        found = cluster_layer(self._run, self._clustering, layer, layers.vectors[layer], layers.entities[layer])
        record |= found.stats
        if self._sparsities:
            record["change_rate"] = change_rate(self._sparsities[-1], record["sparsity"])
        self._sparsities.append(record["sparsity"])
        decision = stop_after_clustering(self._sparsities, record["median_cluster"], self._limits)
        if decision is not None:
            return decision
        above = self._summarised(layers, layer, found, record)
        n_new = above.entities.rows
        if n_new == 0 or above.n_uncovering > _UNCOVERING_LIMIT * n_new:
            return f"layer {layer + 1} was dropped: {above.n_uncovering} of its {n_new} summaries cover no member"
        record["n_summaries"] = n_new
        layers.clusters += found.clusters
        layers.relations += above.relations
        layers.entities.append(above.entities)
        layers.vectors.append(embed_layer(self._run, self._resolved, above.entities, layer + 1))
        layers.summary_mentions.append(above.mentions)
        self._names.append(above.names)
        return None

    def _summarised(
        self, layers: HierarchyState, layer: int, found: LayerClusters, record: dict[str, Any]
    ) -> _SummaryLayer:
        config, run = self._config, self._run
        summarise = SummariseClusters(
            layer=layer + 1,
            structured=self._resolved.structured["summarise"],
            meta_types=self._meta_types(),
            packing=PackingOptions(config.clustering.summary_pack_tokens, config.pack_units),
            same_language=config.reply_language == "text",
            prompts=self._prompts,
            models=self._resolved.models["summarise"],
        )
        summaries = run.stage(summarise, f"summarise layer {layer}", members=found.members)
        layers.rejects += summaries["rejects"]
        label = f"merge layer {layer + 1}"
        linked = run.stage(LinkMembers(), f"{label}: links", members=found.members, summaries=summaries["summaries"])
        merge = MergeSummaryEntities(layer + 1, _SUMMARY_CHARS)
        entities = run.stage(merge, f"{label}: entities", mentions=linked["mentions"])
        relations = run.stage(MergeSummaryRelations(layer + 1), f"{label}: relations", links=linked["links"])
        record["n_attached"] = self._total(linked["stats"])
        record["n_unattached"] = self._total(relations["stats"])
        return _SummaryLayer(
            entities["entities"],
            entities["names"],
            relations["relations"],
            linked["mentions"],
            self._total(entities["stats"]),
        )

    def _equal_names(self, basic: Dataset) -> Dataset:
        names = self._run.stage(NormaliseNames(), "equal names: layer 0", entities=basic)["names"]
        return self._run.stage(RelateEqualNames(), "equal names: relations", names=sum(self._names, names))["relations"]

    def _total(self, stats: Dataset) -> int:
        """Return the sum of one figure over a stage's tasks."""
        (column,) = self._run.read(stats).columns
        return sum(column.to_pylist())


def embed_layer(run: Run, resolved: ResolvedModels, entities: Dataset, layer: int, label: str = "") -> Dataset:
    """Return the vectors of a layer's entities; `label` is put behind the stage's name."""
    stage = EmbedEntities(resolved.embedder, resolved.dim)
    return run.stage(stage, f"embed layer {layer}{label}", entities=entities)["vectors"]
