"""Mentions of entities and relations in chunks, by the configured method."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow.compute as pc

from hirag_dist.core.entities.skeleton import allowance
from hirag_dist.core.entities.verification import VERIFY_TASK
from hirag_dist.execution.dataset import Dataset
from hirag_dist.indexing.context import BuildContext
from hirag_dist.indexing.layers import GraphMentions
from hirag_dist.indexing.stages.extract import ExtractGraph
from hirag_dist.indexing.stages.extract_nlp import ExtractNames
from hirag_dist.indexing.stages.packed_calls import PackingOptions
from hirag_dist.indexing.stages.skeleton import ChooseChunks, DivideChunks, ListTerms
from hirag_dist.indexing.stages.verify import VerifyMentions
from hirag_dist.schemas import REJECTS
from hirag_dist.types import FinderOptions

EXTRACTION_STAGES = (ExtractGraph.name, VerifyMentions.name)  # those whose dead letters are chunks


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


@dataclass(frozen=True)
class KeptChunks:
    """Tokens of the chunks of an update's base that stay, and of those of them that the extract model has read."""

    total: int = 0
    by_model: int = 0


Extract = Callable[[BuildContext, Dataset], ExtractedMentions]
_NOTHING_KEPT = KeptChunks()


def extract_mentions(
    context: BuildContext, chunks: Dataset, label: str = "extract", kept: KeptChunks = _NOTHING_KEPT
) -> ExtractedMentions:
    """Return the mentions of entities and relations in chunks.

    Args:
        label: of the stage that makes calls, or of the only one.
        kept: chunks that are not extracted again; they count in the share of method skeleton.

    Raises:
        StageFailed: too many dead letters.
    """
    config = context.config.extraction
    if config.method == "llm":
        return _by_model(context, chunks, label)
    if config.method == "nlp":
        return _by_rules(context, chunks, label)
    if config.method == "verify":
        return _verified(context, chunks, label)
    return _skeleton(context, chunks, label, kept)


def extract_refused(context: BuildContext, chunks: Dataset, label: str) -> ExtractedMentions:
    """Return the mentions in chunks that were dead letters; any number of them may be again."""
    by = _verified if context.config.extraction.method == "verify" else _by_model
    return by(context, chunks, label, any_letters=True)


def extract_stored(context: BuildContext, chunks: Dataset) -> ExtractedMentions:
    """Return the mentions in chunks of which only stored replies are available, as `extract_mentions` found them.

    Which chunks the model has read is decided by its replies: the others are those without one.
    """
    if context.config.extraction.method != "skeleton":
        return extract_mentions(context, chunks)
    read = _by_model(context, chunks, "extract", any_letters=True)
    missing = set(context.datasets.read(read.rejects, ["unit_id"])["unit_id"].to_pylist())
    table = context.datasets.read(chunks)
    others = table.filter([own in missing for own in table["chunk_id"].to_pylist()])
    return read + _by_rules(context, context.datasets.put("unread_chunks", others), "read others")


def _by_model(context: BuildContext, chunks: Dataset, label: str, any_letters: bool = False) -> ExtractedMentions:
    """Return the mentions that the extract model finds."""
    config = context.config
    extract = ExtractGraph(
        method=config.extraction.calls,
        structured=context.models.structured["extract"],
        gleaning_rounds=config.gleaning_rounds,
        entity_types=config.entity_types,
        split_homonyms=config.homonyms == "split",
        same_language=context.same_language,
        prompts=context.prompts.of("extract-graph", "extract-entities", "extract-relations"),
        models=context.models.models["extract"],
    )
    run = context.runner.run_tolerant if any_letters else context.runner.run
    found = run(extract, label, chunks=chunks)
    return ExtractedMentions(GraphMentions(found.mentions, found.relation_mentions, found.costs), found.rejects)


def _by_rules(context: BuildContext, chunks: Dataset, label: str) -> ExtractedMentions:
    """Return the mentions that are found without a call."""
    nlp = context.config.extraction.nlp
    extract = ExtractNames(
        FinderOptions(nlp.finder)
        if nlp.finder == "builtin"
        else FinderOptions(nlp.finder, nlp.model or "", nlp.onnx_file or "", nlp.threshold, nlp.device),
        context.config.entity_types,
        context.config.homonyms == "split",
    )
    found = context.runner.run(extract, label, chunks=chunks)
    return ExtractedMentions(GraphMentions(found.mentions, found.relation_mentions, found.costs), Dataset(REJECTS))


def _verified(context: BuildContext, chunks: Dataset, label: str, any_letters: bool = False) -> ExtractedMentions:
    """Return the mentions that rules find and the extract model keeps."""
    config = context.config
    proposed = _by_rules(context, chunks, "propose").mentions
    verify = VerifyMentions(
        structured=context.models.structured["extract"],
        entity_types=config.entity_types,
        split_homonyms=config.homonyms == "split",
        same_language=context.same_language,
        whole_text=config.extraction.verify.text == "whole",
        packing=PackingOptions(config.extraction.verify.pack_tokens, config.pack_units),
        prompts=context.prompts.of(VERIFY_TASK),
        models=context.models.models["extract"],
    )
    run = context.runner.run_tolerant if any_letters else context.runner.run
    found = run(verify, label, chunks=chunks, mentions=proposed.entities, relation_mentions=proposed.relations)
    return ExtractedMentions(GraphMentions(found.mentions, found.relation_mentions, found.costs), found.rejects)


def _skeleton(context: BuildContext, chunks: Dataset, label: str, kept: KeptChunks) -> ExtractedMentions:
    """Return the mentions that the model finds in the central chunks, and those that rules find in the others."""
    run = context.runner.run
    n_tokens = pc.sum(context.datasets.read(chunks, ["n_tokens"])["n_tokens"]).as_py() or 0
    max_tokens = allowance(context.config.extraction.skeleton.share, n_tokens, kept.total, kept.by_model)
    terms = run(ListTerms(), "list terms", chunks=chunks).terms
    chosen = run(ChooseChunks(max_tokens, at_least_one=not kept.total), "choose chunks", terms=terms).chosen
    divided = run(DivideChunks(), "divide chunks", chunks=chunks, chosen=chosen)
    others = _by_rules(context, divided.others, "read others")
    return _by_model(context, divided.central, label) + others
