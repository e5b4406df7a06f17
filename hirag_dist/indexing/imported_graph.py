"""A graph that another tool extracted, as datasets of the index."""

from __future__ import annotations

import logging
from dataclasses import replace

import pyarrow as pa

from hirag_dist.core.metadata.fields import collect_values
from hirag_dist.execution.dataset import Dataset
from hirag_dist.indexing.context import BuildContext
from hirag_dist.indexing.documents import ChunkedDocuments
from hirag_dist.indexing.inputs import read_options
from hirag_dist.indexing.mentions import BaseLayer, ImportedCommunities, MergedMentions, describe_base_layer
from hirag_dist.indexing.metadata import NO_METADATA, DocumentMetadata, field_table
from hirag_dist.indexing.stages.read import metadata_text
from hirag_dist.interop.importers import ImportedGraph
from hirag_dist.schemas import DOCUMENT_METADATA, PLACES, REJECTS

logger = logging.getLogger(__name__)


def imported_documents(context: BuildContext, graph: ImportedGraph) -> ChunkedDocuments:
    """Return the documents, their metadata and the chunks of an imported graph.

    What was left out of it, and values that are not of their field's type, become dead letters.
    """
    put = context.datasets.put
    metadata, faults = _metadata(context, graph)
    rejects = [
        {"stage": "import", "unit_id": unit, "reason": reason, "attempts": 1, "request": "", "reply": ""}
        for unit, reason in (*graph.left_out, *faults)
    ]
    return ChunkedDocuments(
        put("imported_documents", graph.documents),
        put("imported_chunks", graph.chunks),
        Dataset(PLACES),
        put("imported_rejects", pa.Table.from_pylist(rejects, REJECTS)),
        metadata,
    )


def _metadata(context: BuildContext, graph: ImportedGraph) -> tuple[DocumentMetadata, list[tuple[str, str]]]:
    """Return the declared metadata of the documents, and (document, reason) of each value that was left out."""
    config = context.config
    fields = field_table(config.metadata)
    if not fields.num_rows:
        return NO_METADATA, []
    sources = [  # an export of this package has values under the names of the fields
        replace(source, keys=(source.field.name, *source.keys))
        for source in read_options(config.reading, config.metadata).metadata
    ]
    rows, faults = [], []
    for row in graph.documents.select(["document_id", "uri"]).to_pylist():
        own = row["document_id"]
        values, wrong = collect_values(sources, graph.properties.get(own, {}), row["uri"])
        faults += [(f"document {own}", reason) for reason in wrong]
        if values:
            rows.append({"document_id": own, "metadata": metadata_text(values)})
    return DocumentMetadata(fields, pa.Table.from_pylist(rows, DOCUMENT_METADATA)), faults


def imported_base_layer(context: BuildContext, graph: ImportedGraph) -> BaseLayer:
    """Return layer 0 of an imported graph, described and embedded, with its communities if it has any."""
    if context.config.resolution.enabled:
        logger.warning("resolution is left out: it works on mentions, and an imported graph has entities alone")
    put = context.datasets.put
    entities, relations = put("imported_entities", graph.entities), put("imported_relations", graph.relations)
    merged = MergedMentions(entities, relations, frozenset())
    claims = put("imported_claims", graph.claims)
    imported = None
    if graph.communities is not None and graph.reports is not None:
        communities, reports = put("imported_communities", graph.communities), put("imported_reports", graph.reports)
        imported = ImportedCommunities(communities, reports)
    return replace(describe_base_layer(context, merged), claims=claims, imported=imported)
