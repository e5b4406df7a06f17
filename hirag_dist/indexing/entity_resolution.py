"""Entity resolution of layer 0: names of one entity are found, and their mentions merged again.

Mentions never change: resolution yields a table of aliases, and mentions renamed by it. Without resolution, or with
other rules, the same mentions are merged again, and no reply is paid twice.
"""

from __future__ import annotations

from dataclasses import dataclass

from hirag_dist.core.entities.resolution.candidate_pairs import PairRules
from hirag_dist.execution.dataset import Dataset
from hirag_dist.indexing.context import BuildContext
from hirag_dist.indexing.layers import BaseLayer, GraphMentions
from hirag_dist.indexing.stages.packed_calls import PackingOptions
from hirag_dist.indexing.stages.resolve import (
    ANSWERS,
    PAIRS_PER_CALL,
    AskPairs,
    GroupNames,
    ProposePairs,
    RenameMentions,
    RenameRelations,
    UntouchedEntities,
    UntouchedLetters,
    UntouchedVectors,
)
from hirag_dist.schemas import REJECTS


@dataclass(frozen=True)
class RenamedGraph:
    """The result of renaming mentions by aliases.

    Attributes:
        mentions: mentions of the entities that absorbed others, and all relation mentions, by their new keys.
        entities, vectors, rejects: of layer 0, without those that have to be made again.
    """

    mentions: GraphMentions
    entities: Dataset
    vectors: Dataset
    rejects: Dataset


_ASKED_BAND = 0.2  # cosine below the threshold from which a pair of names is asked about


def find_aliases(context: BuildContext, layer: BaseLayer, mentions: GraphMentions) -> tuple[Dataset, Dataset]:
    """Return ALIASES, and the dead letters of the questions to the model.

    Args:
        layer: merged by name.
        mentions: its mentions.
    """
    config, runner, models = context.config.resolution, context.runner, context.models
    rules = PairRules(config.threshold, config.threshold - _ASKED_BAND)
    proposed = runner.run(
        ProposePairs(rules, models.dim),
        "propose pairs",
        entities=layer.entities,
        relations=layer.relations,
        vectors=layer.vectors,
    )
    answers, rejects = Dataset(ANSWERS), Dataset(REJECTS)
    if proposed.questions.rows:
        structured, answering = models.structured["summarise"], models.models["summarise"]
        packing = PackingOptions(context.config.pack_tokens, PAIRS_PER_CALL)
        ask = AskPairs(structured, packing, context.prompts.of("same-entity"), answering)
        asked = runner.run(ask, "resolve", questions=proposed.questions)
        answers, rejects = asked.answers, asked.rejects
    grouped = runner.run(
        GroupNames(),
        "group names",
        pairs=proposed.pairs,
        answers=answers,
        entities=layer.entities,
        mentions=mentions.entities,
    )
    return grouped.aliases, rejects


def rename(context: BuildContext, layer: BaseLayer, mentions: GraphMentions, aliases: Dataset) -> RenamedGraph:
    """Return the mentions to merge again by resolved names, and the parts of the layer that stay as they are."""
    run = context.runner.run
    relations = run(RenameRelations(), "rename relations", relation_mentions=mentions.relations, aliases=aliases)
    return RenamedGraph(
        mentions=GraphMentions(
            run(RenameMentions(), "rename mentions", mentions=mentions.entities, aliases=aliases).mentions,
            relations.relation_mentions,
        ),
        entities=run(UntouchedEntities(), "keep entities", entities=layer.entities, aliases=aliases).entities,
        vectors=run(UntouchedVectors(), "keep vectors", vectors=layer.vectors, aliases=aliases).vectors,
        rejects=run(UntouchedLetters(), "keep letters", letters=layer.rejects, aliases=aliases).letters,
    )
