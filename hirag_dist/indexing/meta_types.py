"""Meta types 𝒳 of summary entities: configured, or proposed by a model."""

from __future__ import annotations

from dataclasses import dataclass

from hirag_dist.config.model import META_TYPES
from hirag_dist.execution.dataset import Dataset
from hirag_dist.indexing.context import BuildContext
from hirag_dist.indexing.stages.meta_types import EXCERPT_CHARS, N_EXCERPTS, ProposeMetaTypes, SampleChunks
from hirag_dist.indexing.window_sizes import excerpt_tokens
from hirag_dist.schemas import REJECTS


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
