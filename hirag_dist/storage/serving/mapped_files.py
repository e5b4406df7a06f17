"""The mapped files of one snapshot, by their meaning."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hirag_dist.core.arrays import read_only
from hirag_dist.core.graph.pagerank import WalkBuffers, WalkGraph
from hirag_dist.core.retrieval.bridge import Parallel
from hirag_dist.core.retrieval.entity_linking import NameIndex
from hirag_dist.core.retrieval.levels import CommunityIndex
from hirag_dist.core.retrieval.source_ranking import RelationProvenance
from hirag_dist.core.vectors import few_codes
from hirag_dist.storage import layout
from hirag_dist.storage.metadata_files import MetadataFiles
from hirag_dist.storage.serving import writer
from hirag_dist.storage.serving.claims import MappedClaims
from hirag_dist.storage.serving.lexical import map_lexical
from hirag_dist.storage.serving.places import MappedPlaces
from hirag_dist.storage.serving.renderings import TOKENIZER, Renderings
from hirag_dist.storage.snapshot.reader import Snapshot


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

    def __init__(self, snapshot: Snapshot, tokenizer: str) -> None:
        """Map the files of a snapshot; the arguments and errors are those of `MappedIndex.open`."""
        files = self.serving = snapshot.serving
        array, texts = files.array, files.texts
        self.snapshot_id = snapshot.manifest.snapshot_id
        self.graph = snapshot.graph
        self.vectors = snapshot.entity_vectors
        self.chunk_vectors = snapshot.chunk_vectors
        self.chunk_codes = few_codes(snapshot.chunk_vectors)
        self.layers: NDArray[np.int32] = array("entity_layers")
        self.ends: NDArray[np.int32] = array("relation_ends")
        self.weights: NDArray[np.float64] = array("relation_weights")
        self.chunk_documents: NDArray[np.int32] = array("chunk_documents")
        self.walk_graph = WalkGraph(
            layers=self.layers,
            layer_ends=read_only(np.cumsum(np.bincount(self.layers), dtype=np.int64)),
            indptr=read_only(self.graph.indptr),
            indices=read_only(self.graph.indices),
            relation_rows=read_only(self.graph.relation_rows),
            entity_indptr=array("entity_chunks_indptr"),
            entity_chunks=array("entity_chunks"),
            chunk_indptr=array("chunk_entities_indptr"),
            chunk_entities=array("chunk_entities"),
        )
        self.walk_buffers = WalkBuffers(self.walk_graph)
        self.provenance = RelationProvenance(
            relation_indptr=array("relation_chunks_indptr"), relation_chunks=array("relation_chunks")
        )
        self.parallel = Parallel(*(array(f"parallel_{part}") for part in ("of", "indptr", "rows")))
        self.communities = CommunityIndex(
            levels=array("community_levels"),
            ratings=array("community_ratings"),
            order=array("community_order"),
            indptr=array("community_indptr"),
            members=array("community_members"),
            of_indptr=array("entity_communities_indptr"),
            of=array("entity_communities"),
        )
        self.components: NDArray[np.int32] = array("entity_components")
        self.entity_names = NameIndex(array("entity_name_keys"), array("entity_name_rows"))
        self.aliases = NameIndex(array("alias_keys"), array("alias_rows")) if files.has("alias_keys") else None
        self.lexical = map_lexical(files)
        self.spans: NDArray[np.int64] = array("chunk_spans")
        self.report_rows: NDArray[np.int32] = array("community_reports")
        kinds = {"local": "entity", "bridge": "relation", "global": "community", "sources": "chunk"}
        self.renderings: dict[str, Renderings] = {level: array(f"{kind}_renderings") for level, kind in kinds.items()}
        self.counts_tokens = tokenizer == TOKENIZER
        self.entities, self.relations = texts(writer.ENTITIES), texts(writer.RELATIONS)
        self.chunks, self.documents = texts(writer.CHUNKS), texts(writer.DOCUMENTS)
        self.community_texts, self.reports = texts(writer.COMMUNITIES), texts(writer.REPORTS)
        counts = snapshot.manifest.counts
        self.metadata = MetadataFiles(files) if counts.get(layout.METADATA_FIELDS) else None
        self.claims = MappedClaims(files) if counts.get(layout.CLAIMS) else None
        self.places = MappedPlaces(files, lambda: snapshot.table("documents", ["record"])["record"].to_numpy())
