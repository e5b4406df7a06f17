"""The mapped files of one snapshot, by their meaning."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hirag_dist.core.arrays import read_only
from hirag_dist.core.graph.pagerank import WalkBuffers, WalkGraph
from hirag_dist.core.retrieval.bridge import Parallel
from hirag_dist.core.retrieval.entity_linking import NameIndex
from hirag_dist.core.retrieval.levels import CommunityIndex
from hirag_dist.core.retrieval.lexical import LexicalPart
from hirag_dist.core.retrieval.source_ranking import RelationProvenance
from hirag_dist.core.vectors import VectorCodes, Vectors, few_codes
from hirag_dist.storage import layout
from hirag_dist.storage.metadata_files import MetadataFiles, map_metadata
from hirag_dist.storage.serving import writer
from hirag_dist.storage.serving.claims import MappedClaims
from hirag_dist.storage.serving.lexical import map_lexical
from hirag_dist.storage.serving.mmap_files import ServingFiles
from hirag_dist.storage.serving.places import MappedPlaces
from hirag_dist.storage.serving.renderings import TOKENIZER, Renderings
from hirag_dist.storage.serving.text_columns import TextColumns
from hirag_dist.storage.snapshot.reader import Snapshot
from hirag_dist.types import CsrGraph


@dataclass(frozen=True, slots=True)
class MappedFiles:
    """The mapped arrays and texts of one snapshot, which the index and its filtered views share.

    Attributes:
        ends: (n_relations, 2) int32 entity rows.
        components: (n_entities,) connected component of each entity.
        chunk_codes: of the chunk vectors; None where they are too many.
        aliases: other names of entities; None in a snapshot without them.
        lexical: parts of the lexical index of chunks; none in a snapshot without it.
        renderings: level → (n_rows,) tokens and form of each record (`storage.serving.renderings`).
        counts_tokens: whether the tokens are those of the engine's tokenizer.
    """

    snapshot_id: str
    serving: ServingFiles
    graph: CsrGraph
    vectors: Vectors
    chunk_vectors: Vectors
    chunk_codes: VectorCodes | None
    layers: NDArray[np.int32]
    ends: NDArray[np.int32]
    weights: NDArray[np.float64]
    chunk_documents: NDArray[np.int32]
    walk_graph: WalkGraph
    walk_buffers: WalkBuffers
    provenance: RelationProvenance
    parallel: Parallel
    communities: CommunityIndex
    components: NDArray[np.int32]
    entity_names: NameIndex
    aliases: NameIndex | None
    lexical: tuple[LexicalPart, ...]
    spans: NDArray[np.int64]
    report_rows: NDArray[np.int32]
    renderings: Mapping[str, Renderings]
    counts_tokens: bool
    entities: TextColumns
    relations: TextColumns
    chunks: TextColumns
    documents: TextColumns
    community_texts: TextColumns
    reports: TextColumns
    claims: MappedClaims | None
    places: MappedPlaces
    metadata: MetadataFiles | None


def map_files(snapshot: Snapshot, tokenizer: str) -> MappedFiles:
    """Map the files of a snapshot; the arguments and errors are those of `MappedIndex.open`."""
    files, graph = snapshot.serving, snapshot.graph
    layers = files.array("entity_layers")
    kinds = {"local": "entity", "bridge": "relation", "global": "community", "sources": "chunk"}
    walk_graph = WalkGraph(
        layers=layers,
        layer_ends=read_only(np.cumsum(np.bincount(layers), dtype=np.int64)),
        indptr=read_only(graph.indptr),
        indices=read_only(graph.indices),
        relation_rows=read_only(graph.relation_rows),
        entity_indptr=files.array("entity_chunks_indptr"),
        entity_chunks=files.array("entity_chunks"),
        chunk_indptr=files.array("chunk_entities_indptr"),
        chunk_entities=files.array("chunk_entities"),
    )
    return MappedFiles(
        snapshot_id=snapshot.manifest.snapshot_id,
        serving=files,
        graph=graph,
        vectors=snapshot.entity_vectors,
        chunk_vectors=snapshot.chunk_vectors,
        chunk_codes=few_codes(snapshot.chunk_vectors),
        layers=layers,
        ends=files.array("relation_ends"),
        weights=files.array("relation_weights"),
        chunk_documents=files.array("chunk_documents"),
        walk_graph=walk_graph,
        walk_buffers=WalkBuffers(walk_graph),
        provenance=RelationProvenance(
            relation_indptr=files.array("relation_chunks_indptr"),
            relation_chunks=files.array("relation_chunks"),
        ),
        parallel=Parallel(*(files.array(f"parallel_{part}") for part in ("of", "indptr", "rows"))),
        communities=CommunityIndex(
            levels=files.array("community_levels"),
            ratings=files.array("community_ratings"),
            order=files.array("community_order"),
            indptr=files.array("community_indptr"),
            members=files.array("community_members"),
            of_indptr=files.array("entity_communities_indptr"),
            of=files.array("entity_communities"),
        ),
        components=files.array("entity_components"),
        entity_names=NameIndex(files.array("entity_name_keys"), files.array("entity_name_rows")),
        aliases=NameIndex(files.array("alias_keys"), files.array("alias_rows")) if files.has("alias_keys") else None,
        lexical=map_lexical(files),
        spans=files.array("chunk_spans"),
        report_rows=files.array("community_reports"),
        renderings={level: files.array(f"{kind}_renderings") for level, kind in kinds.items()},
        counts_tokens=tokenizer == TOKENIZER,
        entities=files.texts(writer.ENTITIES),
        relations=files.texts(writer.RELATIONS),
        chunks=files.texts(writer.CHUNKS),
        documents=files.texts(writer.DOCUMENTS),
        community_texts=files.texts(writer.COMMUNITIES),
        reports=files.texts(writer.REPORTS),
        metadata=map_metadata(files, snapshot.manifest),
        claims=MappedClaims(files) if snapshot.manifest.counts.get(layout.CLAIMS) else None,
        places=MappedPlaces(files, lambda: snapshot.table("documents", ["record"])["record"].to_numpy()),
    )
