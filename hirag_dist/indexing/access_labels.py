"""Mentions and sources that access labels need: a caller gets text only from documents with permitted labels."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hirag_dist.core.access.labels import label_sets
from hirag_dist.core.graph.csr import rows_of
from hirag_dist.execution.dataset import Dataset
from hirag_dist.indexing.context import BuildContext
from hirag_dist.indexing.documents import ChunkedDocuments
from hirag_dist.indexing.layers import GraphMentions, Hierarchy, embed_entities
from hirag_dist.indexing.publish import LabelProvenance
from hirag_dist.indexing.stages.access_labels import (
    CHUNK_SETS,
    DivideEntities,
    FindMixedEntities,
    FindMixedRelations,
    KeepMentions,
    KeepStatements,
    NameSources,
)
from hirag_dist.schemas import ENTITY_MENTIONS, STATEMENTS, SUMMARY_SOURCES, VECTORS

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class LabelledGraph:
    """The graph whose mentions are to be separated.

    Attributes:
        entities: of layer 0.
        relations: of all layers.
        mentions: None if the graph was imported.
        aliases: names that were resolved to another name's entity.
        summary_mentions: of each summary layer.
    """

    entities: Dataset
    relations: Dataset
    mentions: GraphMentions | None
    aliases: Dataset
    summary_mentions: tuple[Dataset, ...]

    @classmethod
    def of(cls, hierarchy: Hierarchy) -> LabelledGraph:
        """Return the graph of a hierarchy."""
        base, mentions = hierarchy.base, tuple(layer.mentions for layer in hierarchy.summaries)
        return cls(base.entities, hierarchy.relations, base.mentions, base.aliases, mentions)


def collect_label_provenance(
    context: BuildContext, documents: ChunkedDocuments, graph: LabelledGraph
) -> LabelProvenance | None:
    """Return the mentions and sources that access labels call for; None if no document carries any label."""
    config, runner, datasets = context.config, context.runner, context.datasets
    labelled = datasets.read(documents.documents, ["document_id", "labels"])
    if not pc.sum(pc.list_value_length(labelled["labels"])).as_py():
        return None
    set_of, sets = label_sets(labelled["labels"].to_pylist())
    if len(sets) > 1 and config.pack_units > 1:
        logger.warning(
            "documents carry %d different sets of labels, and up to %d clusters or communities share a call; where a "
            "model must not see them together, set pack_units to 1",
            len(sets),
            config.pack_units,
        )
    places = datasets.read(documents.chunks, ["chunk_id", "document_id"])
    of_document = np.append(set_of, np.int32(len(sets)))  # the last one, of unknown documents, is visible to no caller
    of_chunk = pa.array(of_document[rows_of(places["document_id"], labelled["document_id"])])
    chunk_sets = datasets.put("chunk_sets", pa.table([places["chunk_id"], of_chunk], schema=CHUNK_SETS))
    mentions, statements = _collect_mentions(context, graph, chunk_sets)
    vectors = Dataset(VECTORS)
    if mentions.rows:
        divide = DivideEntities(config.description_tokens)
        parts = runner.run(divide, "labels: parts", mentions=mentions, chunk_sets=chunk_sets).parts
        vectors = embed_entities(context, parts, "labels: embed parts")
    sources = Dataset(SUMMARY_SOURCES)
    for number, named in enumerate(graph.summary_mentions, 1):
        stage = NameSources(number)
        sources += runner.run(stage, f"labels: sources of layer {number}", mentions=named).sources
    return LabelProvenance(mentions, statements, sources, vectors)


def _collect_mentions(context: BuildContext, graph: LabelledGraph, chunk_sets: Dataset) -> tuple[Dataset, Dataset]:
    """Return ENTITY_MENTIONS and STATEMENTS; empty ones if the graph was imported, without mentions."""
    run, given = context.runner.run, graph.mentions
    empty = Dataset(ENTITY_MENTIONS), Dataset(STATEMENTS)
    if given is None:
        return empty
    mixed_entities = run(
        FindMixedEntities(), "labels: mixed entities", entities=graph.entities, chunk_sets=chunk_sets
    ).mixed
    if not mixed_entities.rows:
        return empty  # a relation's documents mention both of its ends
    mentions = run(
        KeepMentions(), "labels: mentions", mentions=given.entities, aliases=graph.aliases, mixed=mixed_entities
    ).mentions
    mixed_relations = run(
        FindMixedRelations(), "labels: mixed relations", relations=graph.relations, chunk_sets=chunk_sets
    ).mixed
    statements = run(
        KeepStatements(), "labels: statements", mentions=given.relations, aliases=graph.aliases, mixed=mixed_relations
    ).statements
    return mentions, statements
