"""A graph that another tool extracted, as datasets of the index."""

from __future__ import annotations

import logging
from dataclasses import replace

import pyarrow as pa

from hirag_dist.execution.dataset import Dataset
from hirag_dist.indexing.base_layer import MergedMentions, describe_base_layer
from hirag_dist.indexing.context import BuildContext
from hirag_dist.indexing.documents import ChunkedDocuments
from hirag_dist.indexing.layers import BaseLayer, ImportedCommunities
from hirag_dist.interop.importers import ImportedGraph
from hirag_dist.schemas import PLACES, REJECTS

logger = logging.getLogger(__name__)


def imported_documents(context: BuildContext, graph: ImportedGraph) -> ChunkedDocuments:
    """Return the documents and chunks of an imported graph; what was left out of it becomes dead letters."""
    put = context.datasets.put
    rejects = [
        {"stage": "import", "unit_id": unit, "reason": reason, "attempts": 1, "request": "", "reply": ""}
        for unit, reason in graph.left_out
    ]
    return ChunkedDocuments(
        put("imported_documents", graph.documents),
        put("imported_chunks", graph.chunks),
        Dataset(PLACES),
        put("imported_rejects", pa.Table.from_pylist(rejects, REJECTS)),
    )


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
