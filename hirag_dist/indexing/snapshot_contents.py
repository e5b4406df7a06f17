"""The parts of a build from nothing as the content of a snapshot."""

from __future__ import annotations

from hirag_dist.indexing.communities import CommunityReports
from hirag_dist.indexing.documents import ChunkedDocuments
from hirag_dist.indexing.layers import Hierarchy, layer_table
from hirag_dist.indexing.publish import LabelProvenance, SnapshotContents
from hirag_dist.indexing.stages.embed import EmbedChunks


def combine(
    documents: ChunkedDocuments,
    chunk_vectors: EmbedChunks.Outputs,
    hierarchy: Hierarchy,
    communities: CommunityReports,
    provenance: LabelProvenance | None,
) -> SnapshotContents:
    """Return the content of a snapshot."""
    base = hierarchy.base
    rejects = documents.rejects + base.rejects + hierarchy.rejects + communities.rejects + chunk_vectors.rejects
    return SnapshotContents(
        documents=documents.documents,
        chunks=documents.chunks,
        entities=hierarchy.entities,
        relations=hierarchy.relations,
        clusters=hierarchy.clusters,
        layers=layer_table(hierarchy.records),
        communities=communities.communities,
        reports=communities.reports,
        rejects=rejects if provenance is None else rejects + provenance.rejects,
        entity_vectors=hierarchy.vectors,
        chunk_vectors=chunk_vectors.vectors,
        aliases=base.aliases,
        claims=base.claims,
        places=documents.places,
        labelled=provenance,
        metadata=documents.metadata,
        cut_ids=base.cut_ids,
    )
