"""What an index keeps where its documents carry labels, so that a caller is told what may be seen and no more."""

from __future__ import annotations

import logging
from functools import reduce
from operator import add

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hirag_dist.config.model import Config
from hirag_dist.core.access.labels import label_sets
from hirag_dist.core.graph.csr import rows_of
from hirag_dist.execution.runner import Dataset, Run
from hirag_dist.indexing.context import ResolvedModels
from hirag_dist.indexing.hierarchy import HierarchyState
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
from hirag_dist.indexing.stages.embed import EmbedEntities
from hirag_dist.schemas import ENTITY_MENTIONS, STATEMENTS, SUMMARY_SOURCES, VECTORS
from hirag_dist.storage.digest import table_digest

log = logging.getLogger(__name__)


def collect_label_provenance(
    run: Run, config: Config, resolved: ResolvedModels, documents: Dataset, chunks: Dataset, layers: HierarchyState
) -> LabelProvenance | None:
    """Return what labels call for, None where no document carries any."""
    carried = run.read(documents, ["document_id", "labels"])
    if not pc.sum(pc.list_value_length(carried["labels"])).as_py():
        return None
    set_of, sets = label_sets(carried["labels"].to_pylist())
    if len(sets) > 1 and config.pack_units > 1:
        log.warning(
            "documents carry %d different sets of labels, and up to %d clusters or communities share a call; where a "
            "model must not see them together, set pack_units to 1",
            len(sets),
            config.pack_units,
        )
    places = run.read(chunks, ["chunk_id", "document_id"])
    of_document = np.append(set_of, np.int32(len(sets)))  # the last of no document that is known, and in nobody's reach
    of_chunk = pa.array(of_document[rows_of(places["document_id"], carried["document_id"])])
    table = pa.table([places["chunk_id"], of_chunk], schema=CHUNK_SETS)
    chunk_sets = run.put("chunk_sets", table, table_digest(table))
    mentions, statements = _mentions(run, layers, chunk_sets)
    vectors = Dataset(VECTORS, ())
    if mentions.rows:
        divide = DivideEntities(config.description_tokens)
        parts = run.stage(divide, "labels: parts", mentions=mentions, chunk_sets=chunk_sets)["parts"]
        embed = EmbedEntities(resolved.embedder, resolved.dim)
        vectors = run.stage(embed, "labels: embed parts", entities=parts)["vectors"]
    sources = [
        run.stage(NameSources(layer), f"labels: sources of layer {layer}", mentions=of_layer)["sources"]
        for layer, of_layer in enumerate(layers.summary_mentions, 1)
    ]
    return LabelProvenance(mentions, statements, reduce(add, sources, Dataset(SUMMARY_SOURCES, ())), vectors)


def _mentions(run: Run, layers: HierarchyState, chunk_sets: Dataset) -> tuple[Dataset, Dataset]:
    """Return ENTITY_MENTIONS and STATEMENTS; none where the graph was imported, and has no mentions."""
    kept = Dataset(ENTITY_MENTIONS, ()), Dataset(STATEMENTS, ())
    if layers.mentions is None or layers.relation_mentions is None:
        return kept
    mixed = run.stage(
        FindMixedEntities(), "labels: mixed entities", entities=layers.entities[0], chunk_sets=chunk_sets
    )["mixed"]
    if not mixed.rows:
        return kept  # a relation's documents mention both of its ends
    mentions = run.stage(
        KeepMentions(), "labels: mentions", mentions=layers.mentions, aliases=layers.aliases, mixed=mixed
    )["mentions"]
    extracted = layers.relations
    mixed = run.stage(FindMixedRelations(), "labels: mixed relations", relations=extracted, chunk_sets=chunk_sets)[
        "mixed"
    ]
    statements = run.stage(
        KeepStatements(), "labels: statements", mentions=layers.relation_mentions, aliases=layers.aliases, mixed=mixed
    )["statements"]
    return mentions, statements
