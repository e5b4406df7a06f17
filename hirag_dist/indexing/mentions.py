"""Layer 0: chunks → mentions → entities and relations, extracted, merged, resolved, described (paper Algorithm 1)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

from hirag_dist.config.model import Config, shares
from hirag_dist.core.prompts.templates import Prompts
from hirag_dist.core.text.normalize import count_noun
from hirag_dist.errors import StageFailed
from hirag_dist.execution.dataset import Dataset
from hirag_dist.indexing.context import BuildContext
from hirag_dist.indexing.stages.embed import EmbedEntities
from hirag_dist.indexing.stages.extract import ExtractClaims, ExtractGraph, ExtractNames
from hirag_dist.indexing.stages.merge import DescribeEntities, MergeEntities, MergeRelations
from hirag_dist.indexing.stages.packed_calls import PackingOptions
from hirag_dist.indexing.stages.resolve import (
    PAIRS,
    PAIRS_PER_CALL,
    AskPairs,
    GroupNames,
    ProposePairs,
    RenameMentions,
    RenameRelations,
)
from hirag_dist.indexing.window_sizes import described_tokens
from hirag_dist.schemas import ALIASES, CLAIMS, EXTRACTION_COSTS, REJECTS


@dataclass(frozen=True)
class GraphMentions:
    """The mentions that layer 0 was merged from, by unresolved names, and the costs of chunks where these are known."""

    entities: Dataset
    relations: Dataset
    costs: Dataset = Dataset(EXTRACTION_COSTS)

    def __add__(self, other: GraphMentions) -> GraphMentions:
        return GraphMentions(self.entities + other.entities, self.relations + other.relations, self.costs + other.costs)


@dataclass(frozen=True)
class ImportedCommunities:
    """Communities of layer 0 that another tool found, and their reports."""

    communities: Dataset
    reports: Dataset


@dataclass(frozen=True)
class BaseLayer:
    """Layer 0, the basic knowledge graph.

    Attributes:
        aliases: names that were resolved to another name's entity.
        mentions: None if the graph was imported.
        imported: communities to keep; None to detect them over all layers.
        cut_ids: entities and relations with more descriptions than are merged.
    """

    entities: Dataset
    relations: Dataset
    vectors: Dataset
    rejects: Dataset
    aliases: Dataset = Dataset(ALIASES)
    claims: Dataset = Dataset(CLAIMS)
    mentions: GraphMentions | None = None
    imported: ImportedCommunities | None = None
    cut_ids: frozenset[str] = frozenset()


def embed_entities(context: BuildContext, entities: Dataset, label: str) -> EmbedEntities.Outputs:
    """Return VECTORS of entities, and the dead letters of those whose text the embedder refused."""
    stage = EmbedEntities(context.models.embedder, context.models.dim)
    # An embedder that refuses one text after the other stops the run itself.
    return context.runner.run_tolerant(stage, label, entities=entities)


def extract_mentions(
    context: BuildContext, chunks: Dataset, label: str = "extract", any_letters: bool = False
) -> tuple[GraphMentions, Dataset]:
    """Return the mentions of entities and relations in chunks by the method of the configuration, and dead letters.

    Args:
        any_letters: accept any number of dead letters.
    """
    config = context.config
    if config.extraction.method == "nlp":
        names = context.runner.run(ExtractNames(config.entity_types), label, chunks=chunks)
        return GraphMentions(names.mentions, names.relation_mentions, names.costs), Dataset(REJECTS)
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
    return GraphMentions(found.mentions, found.relation_mentions, found.costs), found.rejects


logger = logging.getLogger(__name__)
DESCRIBE_PROMPT_TOKENS = 6000  # descriptions in one describe call


def extract_base_layer(context: BuildContext, chunks: Dataset) -> BaseLayer:
    """Return the graph that is extracted from chunks."""
    return merge_base_layer(context, chunks, *extract_mentions(context, chunks))


def merge_base_layer(context: BuildContext, chunks: Dataset, mentions: GraphMentions, rejects: Dataset) -> BaseLayer:
    """Return the graph that mentions are merged to, resolved if that is configured, described and embedded.

    Args:
        chunks: asked for claims, if these are configured.
    """
    config = context.config
    check_entities(mentions.entities.rows, config)
    aliases, named = Dataset(ALIASES), mentions
    if config.resolution.enabled:
        aliases, letters = find_aliases(context, mentions)
        rejects += letters
        named = rename(context, mentions, aliases) if aliases.rows else mentions
    merged = merge_mentions(context, named, "merge")
    layer = describe_base_layer(context, merged)
    layer = replace(layer, rejects=rejects + layer.rejects, mentions=mentions, aliases=aliases)
    if not config.claims:
        return layer
    found = extract_claims(context, chunks, mentions, layer.aliases, "claims")
    mentions = replace(mentions, costs=mentions.costs + found.costs)
    return replace(layer, claims=found.claims, rejects=layer.rejects + found.rejects, mentions=mentions)


def check_entities(n_entities: int, config: Config) -> None:
    """Raise StageFailed where there is no entity at all."""
    if n_entities:
        return
    if config.extraction.method == "nlp":
        raise StageFailed(
            "no entity was found in any chunk by extraction.method: nlp, which goes by capitals and by what recurs in "
            "a chunk; very short chunks may need extraction.method: llm"
        )
    if all(config.llm.endpoints[name].kind == "extractive" for name, _ in shares(config.llm.roles.extract)):
        raise StageFailed(
            "no entity was found in any chunk: the built-in model goes by words between spaces and by capitals, and "
            "finds nothing in numbers alone, or in writing without both, as in Thai; set llm.roles.extract to an "
            "endpoint with a language model"
        )
    raise StageFailed(
        "no entity was found in any chunk; look at the extract model's replies, and at its prompt if you replaced it"
    )


def describe_base_layer(context: BuildContext, merged: MergedMentions) -> BaseLayer:
    """Return layer 0 with one description and one vector for each entity."""
    described = describe_entities(context, merged.entities, context.runner.run)
    embedded = embed_entities(context, described.entities, "embed layer 0")
    rejects = described.rejects + embedded.rejects
    return BaseLayer(described.entities, merged.relations, embedded.vectors, rejects, cut_ids=merged.cut_ids)


def describe_entities(
    context: BuildContext, entities: Dataset, run: Callable[..., DescribeEntities.Outputs]
) -> DescribeEntities.Outputs:
    """Return entities with one description each, and dead letters, whose number the method `run` bounds or does not."""
    prompts = context.prompts.of("describe")
    describe = DescribeEntities(
        context.config.description_tokens,
        described_at_once(context, prompts),
        context.config.tokenizer,
        prompts,
        context.models.models["summarise"],
    )
    return run(describe, "describe", entities=entities)


def described_at_once(context: BuildContext, prompts: Prompts) -> int:
    """Return the tokens of descriptions that one call makes one of."""
    window = context.models.windows.get("summarise")
    if window is None:
        return DESCRIBE_PROMPT_TOKENS
    return min(DESCRIBE_PROMPT_TOKENS, described_tokens(window, prompts, context.config.tokenizer))


@dataclass(frozen=True)
class MergedMentions:
    """Entities and relations merged by name, and the ids of those with more descriptions than are merged."""

    entities: Dataset
    relations: Dataset
    cut_ids: frozenset[str]


def merge_mentions(context: BuildContext, mentions: GraphMentions, label: str) -> MergedMentions:
    """Return entities and relations merged by name."""
    run = context.runner.run
    entities = run(MergeEntities(), f"{label} entities", mentions=mentions.entities)
    merge_relations = MergeRelations(context.config.description_tokens)
    relations = run(merge_relations, f"{label} relations", relation_mentions=mentions.relations)
    cut_ids: set[str] = set()
    for cut in (entities.cut, relations.cut):
        cut_ids.update(context.datasets.read(cut)["id"].to_pylist() if cut.rows else ())
    if cut_ids:
        noun = count_noun(len(cut_ids), "entity or relation has", "entities or relations have")
        logger.warning("%s more descriptions than are merged: only the first ones are", noun)
    return MergedMentions(entities.entities, relations.relations, frozenset(cut_ids))


def extract_claims(
    context: BuildContext,
    chunks: Dataset,
    mentions: GraphMentions,
    aliases: Dataset,
    label: str,
    any_letters: bool = False,
) -> ExtractClaims.Outputs:
    """Return the claims that the extract model finds in chunks about their entities, and dead letters."""
    extract = ExtractClaims(
        structured=context.models.structured["extract"],
        same_language=context.same_language,
        prompts=context.prompts.of("extract-claims"),
        models=context.models.models["extract"],
    )
    run = context.runner.run_tolerant if any_letters else context.runner.run
    return run(extract, label, chunks=chunks, mentions=mentions.entities, aliases=aliases)


def find_aliases(context: BuildContext, mentions: GraphMentions) -> tuple[Dataset, Dataset]:
    """Return ALIASES of the names of an index, and the dead letters of the questions to the model."""
    runner, models = context.runner, context.models
    proposed = runner.run(
        ProposePairs(context.config.resolution.aliases),
        "propose pairs",
        mentions=mentions.entities,
        relation_mentions=mentions.relations,
    )
    answers, rejects = Dataset(PAIRS), Dataset(REJECTS)
    if proposed.questions.rows:
        structured, answering = models.structured["summarise"], models.models["summarise"]
        packing = PackingOptions(context.config.pack_tokens, PAIRS_PER_CALL)
        ask = AskPairs(structured, packing, context.prompts.of("same-entity"), answering)
        asked = runner.run(ask, "resolve", questions=proposed.questions)
        answers, rejects = asked.answers, asked.rejects
    grouped = runner.run(GroupNames(), "group names", names=proposed.names, pairs=proposed.pairs, answers=answers)
    return grouped.aliases, rejects


def rename(context: BuildContext, mentions: GraphMentions, aliases: Dataset) -> GraphMentions:
    """Return mentions by resolved names."""
    run = context.runner.run
    relations = run(RenameRelations(), "rename relations", relation_mentions=mentions.relations, aliases=aliases)
    entities = run(RenameMentions(), "rename mentions", mentions=mentions.entities, aliases=aliases)
    return replace(mentions, entities=entities.mentions, relations=relations.relation_mentions)
