"""Mentions and sources that access labels and filters by metadata need.

A caller gets text only from documents with permitted labels, and from those that pass the filter. Labels separate the
documents of several label sets, filters each document from the others.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hirag_dist.core.access import label_sets
from hirag_dist.core.graph.csr import rows_of
from hirag_dist.execution.dataset import Dataset
from hirag_dist.indexing.context import BuildContext
from hirag_dist.indexing.documents import ChunkedDocuments
from hirag_dist.indexing.mentions import GraphMentions, embed_entities
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
from hirag_dist.indexing.stages.packed_calls import MAX_UNITS
from hirag_dist.schemas import ENTITY_MENTIONS, REJECTS, STATEMENTS, SUMMARY_SOURCES, VECTORS

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class LabelledGraph:
    """The graph whose mentions are to be separated.

    Attributes:
        entities: of layer 0.
        relations: of all layers.
        mentions: None if the graph was imported.
        summary_mentions: of each summary layer.
    """

    entities: Dataset
    relations: Dataset
    mentions: GraphMentions | None
    aliases: Dataset
    summary_mentions: tuple[Dataset, ...]


def collect_label_provenance(
    context: BuildContext, documents: ChunkedDocuments, graph: LabelledGraph
) -> LabelProvenance | None:
    """Return the mentions and sources that labels or metadata call for; None if no document has either."""
    config, runner, datasets = context.config, context.runner, context.datasets
    labelled = datasets.read(documents.documents, ["document_id", "labels"])
    has_labels = bool(pc.sum(pc.list_value_length(labelled["labels"])).as_py())
    if not has_labels and not documents.metadata:
        return None
    set_of, sets = label_sets(labelled["labels"].to_pylist())
    if len(sets) > 1 and config.pack_tokens:
        logger.warning(
            "documents carry %d different sets of labels, and up to %d clusters or communities share a call; where a "
            "model must not see them together, set pack_tokens to 0",
            len(sets),
            MAX_UNITS,
        )
    places = datasets.read(documents.chunks, ["chunk_id", "document_id"])
    document_of = rows_of(places["document_id"], labelled["document_id"])

    def sets_of_chunks(name: str, of_document: NDArray[np.int32]) -> Dataset:
        known = np.append(of_document, np.int32(of_document.max(initial=-1) + 1))  # the last: of unknown documents
        return datasets.put(name, pa.table([places["chunk_id"], pa.array(known[document_of])], schema=CHUNK_SETS))

    chunk_sets = sets_of_chunks("chunk_sets", set_of)
    divided, vectors, rejects = Dataset(ENTITY_MENTIONS), Dataset(VECTORS), Dataset(REJECTS)
    mentions, statements = Dataset(ENTITY_MENTIONS), Dataset(STATEMENTS)
    if has_labels:
        divided, statements = _collect_mentions(context, graph, chunk_sets, "labels")
        mentions = divided
    if documents.metadata:
        own = sets_of_chunks("chunk_documents", np.arange(labelled.num_rows, dtype=np.int32))
        mentions, statements = _collect_mentions(context, graph, own, "metadata")
    if divided.rows:
        divide = DivideEntities(config.description_tokens)
        parts = runner.run(divide, "labels: parts", mentions=divided, chunk_sets=chunk_sets).parts
        embedded = embed_entities(context, parts, "labels: embed parts")
        vectors, rejects = embedded.vectors, embedded.rejects
    sources = Dataset(SUMMARY_SOURCES)
    for number, named in enumerate(graph.summary_mentions, 1):
        stage = NameSources(number)
        sources += runner.run(stage, f"labels: sources of layer {number}", mentions=named).sources
    return LabelProvenance(mentions, statements, sources, vectors, rejects)


def _collect_mentions(
    context: BuildContext, graph: LabelledGraph, chunk_sets: Dataset, why: str
) -> tuple[Dataset, Dataset]:
    """Return ENTITY_MENTIONS and STATEMENTS of what several sets of chunks mention.

    They are empty if the graph was imported, without mentions.
    """
    run, given = context.runner.run, graph.mentions
    empty = Dataset(ENTITY_MENTIONS), Dataset(STATEMENTS)
    if given is None:
        return empty
    mixed_entities = run(
        FindMixedEntities(), f"{why}: mixed entities", entities=graph.entities, chunk_sets=chunk_sets
    ).mixed
    if not mixed_entities.rows:
        return empty  # a relation's documents mention both of its ends
    mentions = run(
        KeepMentions(), f"{why}: mentions", mentions=given.entities, aliases=graph.aliases, mixed=mixed_entities
    ).mentions
    mixed_relations = run(
        FindMixedRelations(), f"{why}: mixed relations", relations=graph.relations, chunk_sets=chunk_sets
    ).mixed
    statements = run(
        KeepStatements(), f"{why}: statements", mentions=given.relations, aliases=graph.aliases, mixed=mixed_relations
    ).statements
    return mentions, statements
