"""Mentions of entities and relations in chunks, by the configured method."""

from __future__ import annotations

from dataclasses import dataclass

from hirag_dist.execution.dataset import Dataset
from hirag_dist.indexing.context import BuildContext
from hirag_dist.indexing.layers import GraphMentions
from hirag_dist.indexing.stages.extract import ExtractGraph
from hirag_dist.indexing.stages.extract_nlp import ExtractNames
from hirag_dist.schemas import REJECTS


@dataclass(frozen=True)
class ExtractedMentions:
    """Mentions in chunks, and dead letters of the extraction."""

    mentions: GraphMentions
    rejects: Dataset

    def __add__(self, other: ExtractedMentions) -> ExtractedMentions:
        return ExtractedMentions(
            GraphMentions(
                self.mentions.entities + other.mentions.entities,
                self.mentions.relations + other.mentions.relations,
                self.mentions.costs + other.mentions.costs,
            ),
            self.rejects + other.rejects,
        )


def extract_mentions(context: BuildContext, chunks: Dataset, label: str = "extract") -> ExtractedMentions:
    """Return the mentions of entities and relations in chunks.

    Args:
        label: label of the stage.

    Raises:
        StageFailed: too many dead letters.
    """
    by = _by_model if context.config.extraction.method == "llm" else _by_rules
    return by(context, chunks, label)


def extract_refused(context: BuildContext, chunks: Dataset, label: str) -> ExtractedMentions:
    """Return the mentions in chunks that were dead letters; any number of them may be again."""
    return _by_model(context, chunks, label, any_letters=True)


def _by_model(context: BuildContext, chunks: Dataset, label: str, any_letters: bool = False) -> ExtractedMentions:
    """Return the mentions that the extract model finds."""
    config = context.config
    extract = ExtractGraph(
        method=config.extraction.calls,
        structured=context.models.structured["extract"],
        gleaning_rounds=config.gleaning_rounds,
        entity_types=config.entity_types,
        same_language=context.same_language,
        prompts=context.prompts.of("extract-graph", "extract-entities", "extract-relations"),
        models=context.models.models["extract"],
    )
    run = context.runner.run_tolerant if any_letters else context.runner.run
    found = run(extract, label, chunks=chunks)
    return ExtractedMentions(GraphMentions(found.mentions, found.relation_mentions, found.costs), found.rejects)


def _by_rules(context: BuildContext, chunks: Dataset, label: str) -> ExtractedMentions:
    """Return the mentions that are found without a call."""
    extract = ExtractNames(context.config.entity_types)
    found = context.runner.run(extract, label, chunks=chunks)
    return ExtractedMentions(GraphMentions(found.mentions, found.relation_mentions, found.costs), Dataset(REJECTS))
