"""The hierarchy on top of layer 0: cluster, summarise, embed, until the stop rule ends it (paper Algorithm 1)."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from hirag_dist.config.model import META_TYPES, Config
from hirag_dist.core.clustering.partition_tree import ClusterSettings
from hirag_dist.core.clustering.stop_rule import StopLimits
from hirag_dist.execution.dataset import Dataset
from hirag_dist.indexing.context import BuildContext
from hirag_dist.indexing.layer_clustering import LayerClusteringOptions
from hirag_dist.indexing.stages.meta_types import EXCERPT_CHARS, N_EXCERPTS, ProposeMetaTypes, SampleChunks
from hirag_dist.indexing.stages.packed_calls import PackingOptions
from hirag_dist.indexing.stages.summarise import SummariseClusters
from hirag_dist.indexing.window_sizes import excerpt_tokens, member_tokens
from hirag_dist.schemas import REJECTS

logger = logging.getLogger(__name__)
SUMMARY_CHARS = 1200


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
