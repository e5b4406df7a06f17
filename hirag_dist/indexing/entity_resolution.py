"""Entity resolution in the build: which names of layer 0 are one entity, and the graph with them made one.

Mentions are never changed: what resolution gives is a table of aliases, and mentions renamed by it. Without it, or with
other rules, the same mentions are merged anew, and no reply is paid twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from hirag_dist.config.model import ResolutionConfig
from hirag_dist.core.entities.resolution.candidate_pairs import LLM, PairRules
from hirag_dist.core.prompts.templates import Prompts
from hirag_dist.execution.runner import Dataset, Run
from hirag_dist.indexing.stages.resolve import (
    ANSWERS,
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
class UnresolvedGraph:
    """Layer 0 as it was merged by name: described, embedded, and what it was merged from."""

    mentions: Dataset
    relation_mentions: Dataset
    entities: Dataset
    relations: Dataset
    vectors: Dataset
    letters: Dataset  # of descriptions


@dataclass(frozen=True)
class RenamedGraph:
    """What is merged again, and what stays.

    Attributes:
        mentions: of the entities that others became one with, by their new key.
        relation_mentions: all, by their new keys.
        entities, vectors, letters: of layer 0, without those that are renewed.
    """

    mentions: Dataset
    relation_mentions: Dataset
    entities: Dataset
    vectors: Dataset
    letters: Dataset


def find_aliases(
    run: Run,
    layer: UnresolvedGraph,
    config: ResolutionConfig,
    homonyms: Literal["merge", "split"],
    prompts: Prompts,
    structured: bool,
    models: tuple[str, ...],
    dim: int,
) -> tuple[Dataset, Dataset]:
    """Return ALIASES, and the dead letters of questions.

    Args:
        structured: whether the model is asked for JSON.
        models: that answer what is asked, of role summarise.
    """
    rules = PairRules(config.tiers, config.threshold, config.threshold - config.llm_band, homonyms == "split")
    proposed = run.stage(
        ProposePairs(rules, dim),
        "propose pairs",
        entities=layer.entities,
        relations=layer.relations,
        vectors=layer.vectors,
    )
    answers, rejects = Dataset(ANSWERS, ()), Dataset(REJECTS, ())
    if LLM in config.tiers and proposed["questions"].rows:
        ask = AskPairs(structured, config.pairs_per_call, prompts, models)
        asked = run.stage(ask, "resolve", questions=proposed["questions"])
        answers, rejects = asked["answers"], asked["rejects"]
    aliases = run.stage(
        GroupNames(),
        "group names",
        pairs=proposed["pairs"],
        answers=answers,
        entities=layer.entities,
        mentions=layer.mentions,
    )["aliases"]
    return aliases, rejects


def rename(run: Run, layer: UnresolvedGraph, aliases: Dataset) -> RenamedGraph:
    """Return what is to be merged again by the names resolved, and what stays as it is."""
    return RenamedGraph(
        mentions=run.stage(RenameMentions(), "rename mentions", mentions=layer.mentions, aliases=aliases)["mentions"],
        relation_mentions=run.stage(
            RenameRelations(), "rename relations", relation_mentions=layer.relation_mentions, aliases=aliases
        )["relation_mentions"],
        entities=run.stage(UntouchedEntities(), "keep entities", entities=layer.entities, aliases=aliases)["entities"],
        vectors=run.stage(UntouchedVectors(), "keep vectors", vectors=layer.vectors, aliases=aliases)["vectors"],
        letters=run.stage(UntouchedLetters(), "keep letters", letters=layer.letters, aliases=aliases)["letters"],
    )
