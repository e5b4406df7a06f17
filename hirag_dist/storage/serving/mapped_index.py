"""A snapshot made ready for questions: mapped arrays for the arithmetic, mapped texts for what is returned.

Nothing is decoded when it is opened, and nothing is kept for an entity: every value is read from the mapped files by
its row when a question needs it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hirag_dist.core.access.filter import visible_rows
from hirag_dist.core.entities.claim_text import ClaimItem
from hirag_dist.core.graph.pagerank import WalkGraph
from hirag_dist.core.retrieval.bridge import Parallel
from hirag_dist.core.retrieval.entity_linking import NameIndex, found_names, longest_names, words
from hirag_dist.core.retrieval.levels import CommunityIndex, RankedCommunity
from hirag_dist.core.retrieval.source_ranking import RelationProvenance
from hirag_dist.core.retrieval.vector_scoring import QuantizedVectors, exact_scores, nearest_of_all
from hirag_dist.storage import layout
from hirag_dist.storage.serving import writer
from hirag_dist.storage.serving.claims import MappedClaims
from hirag_dist.storage.serving.mmap_files import as_bytes
from hirag_dist.storage.serving.token_counts import TOKENIZER
from hirag_dist.storage.snapshot.reader import Snapshot
from hirag_dist.types import (
    AccessFilter,
    CommunityItem,
    CsrGraph,
    EntityItem,
    FloatMatrix,
    IntVector,
    PathItem,
    SourceItem,
    TripleItem,
)

Scored = Sequence[tuple[int, float]]
Named = tuple[Mapping[int, str], Mapping[int, str]]  # ids and names of entities, by row


class MappedIndex:
    """One snapshot, mapped. Rows are those of its tables.

    Attributes:
        admission: what a caller may see of it; None: everything.
        seen_chunks: (n_chunks,) whether the caller may see a chunk; None: every one.
        chunk_admission: the same as chunk vectors are searched by.
        components: (n_entities,) connected component of each entity, by what may be seen; None until `connect`.
    """

    admission: AccessFilter | None = None
    seen_chunks: NDArray[np.bool_] | None = None
    chunk_admission: AccessFilter | None = None

    def __init__(self, snapshot: Snapshot, tokenizer: str = "") -> None:
        """Map the files.

        Args:
            snapshot: what to map.
            tokenizer: what tokens are counted by.

        Raises:
            SnapshotCorrupt: one cannot be read.
            StoreError: the snapshot came without serving files, and there is no room to make them.
        """
        files = self._mapped = snapshot.serving
        self.snapshot_id = snapshot.manifest.snapshot_id
        self.graph: CsrGraph = snapshot.graph
        self.vectors: FloatMatrix = snapshot.entity_vectors
        self.chunk_vectors: FloatMatrix = snapshot.chunk_vectors
        self.layers: NDArray[np.int32] = files.array("entity_layers")
        self.ends: NDArray[np.int32] = files.array("relation_ends")
        self.weights: NDArray[np.float64] = files.array("relation_weights")
        self.chunk_documents: NDArray[np.int32] = files.array("chunk_documents")
        self.ways = WalkGraph(
            layers=self.layers,
            layer_ends=np.cumsum(np.bincount(self.layers), dtype=np.int64),
            indptr=self.graph.indptr,
            indices=self.graph.indices,
            relation_rows=self.graph.relation_rows,
            entity_indptr=files.array("entity_chunks_indptr"),
            entity_chunks=files.array("entity_chunks"),
            chunk_indptr=files.array("chunk_entities_indptr"),
            chunk_entities=files.array("chunk_entities"),
        )
        self.origins = RelationProvenance(
            relation_indptr=files.array("relation_chunks_indptr"),
            relation_chunks=files.array("relation_chunks"),
        )
        self.parallel = Parallel(*(files.array(f"parallel_{part}") for part in ("of", "indptr", "rows")))
        self.communities = CommunityIndex(
            levels=files.array("community_levels"),
            ratings=files.array("community_ratings"),
            order=files.array("community_order"),
            indptr=files.array("community_indptr"),
            members=files.array("community_members"),
            of_indptr=files.array("entity_communities_indptr"),
            of=files.array("entity_communities"),
        )
        self.components: NDArray[np.int32] | None = files.array("entity_components")
        self._names = NameIndex(files.array("entity_name_keys"), files.array("entity_name_rows"))
        self._aliases: NameIndex | None = None  # also of snapshots from before they were looked up
        if files.has("alias_keys"):
            self._aliases = NameIndex(files.array("alias_keys"), files.array("alias_rows"))
        self._chunk_codes = QuantizedVectors(*(files.array(f"chunk_{part}") for part in ("codes", "scales", "errors")))
        self._spans: NDArray[np.int64] = files.array("chunk_spans")
        self._report_rows: NDArray[np.int32] = files.array("community_reports")
        self._tokens: dict[str, NDArray[np.int32]] = {}
        if tokenizer == TOKENIZER:
            kinds = {"local": "entity", "bridge": "relation", "global": "community", "sources": "chunk"}
            self._tokens = {level: files.array(f"{kind}_tokens") for level, kind in kinds.items()}
        self._entities = files.texts(writer.ENTITIES)
        self._relations = files.texts(writer.RELATIONS)
        self._chunks = files.texts(writer.CHUNKS)
        self._documents = files.texts(writer.DOCUMENTS)
        self._communities = files.texts(writer.COMMUNITIES)
        self._reports = files.texts(writer.REPORTS)
        self._claims = MappedClaims(files) if snapshot.manifest.counts.get(layout.CLAIMS) else None

    def pages(self) -> list[NDArray[np.uint8]]:
        """Return the bytes of all that is mapped: first what questions touch most."""
        graph = self.graph
        arrays: list[NDArray[Any]] = [graph.indptr, graph.indices, graph.weights, graph.relation_rows]
        arrays += [self.vectors, self.chunk_vectors]
        return [*map(as_bytes, arrays), *self._mapped.pages()]

    def named(self, rows: Collection[int]) -> Named:
        """Return ids and names of entities by row."""
        ids, names = (dict(zip(rows, self._entities.values(name, rows), strict=True)) for name in ("entity_id", "name"))
        return ids, names

    def entities(self, scored: Scored, named: Named | None = None) -> tuple[EntityItem, ...]:
        """Return entities by (row, score).

        Args:
            scored: of each.
            named: ids and names of these rows, and perhaps of others, where they are known.
        """
        rows = [row for row, _ in scored]
        ids, names = named or self.named(rows)
        return tuple(
            map(
                EntityItem,
                map(ids.__getitem__, rows),
                map(names.__getitem__, rows),
                self._entities.values("type", rows),
                self._entities.values("description", rows),
                self.layers[rows].tolist() if rows else [],
                [score for _, score in scored],
            )
        )

    def community(self, ranked: RankedCommunity) -> CommunityItem | None:
        """Return a community with its report, None where its report is a dead letter."""
        own = ranked.community
        report = int(self._report_rows[own])
        if report < 0:
            return None
        return CommunityItem(
            self._communities.value("community_id", own),
            int(self.communities.levels[own]),
            self._reports.value("title", report),
            self._reports.value("text", report),
            float(self.communities.ratings[own]),
            ranked.hits,
            ranked.score,
        )

    def reported(self) -> NDArray[np.bool_]:
        """Return, for each community, whether it has a report that may be seen."""
        return self._report_rows >= 0

    def seen_whole(self) -> NDArray[np.bool_]:
        """Return, for each community, whether all that it was made from may be seen."""
        return np.ones(len(self._report_rows), np.bool_)

    def paths(
        self, pairs: Iterable[tuple[int, int]], paths: Iterable[Sequence[int]], named: Named
    ) -> tuple[PathItem, ...]:
        """Return paths by names; one is empty for an unconnected pair.

        Args:
            pairs: the two ends of each.
            paths: the rows of each, both ends included.
            named: ids and names of all these rows.
        """
        ids, names = named
        return tuple(
            [
                PathItem(
                    ids[source], ids[target], tuple([ids[row] for row in path]), tuple([names[row] for row in path])
                )
                for (source, target), path in zip(pairs, paths, strict=True)
            ]
        )

    def triples(self, scored: Scored, named: Named | None = None) -> tuple[TripleItem, ...]:
        """Return relations by (row, score).

        Args:
            scored: of each.
            named: ids and names of the entities at their ends, where they are known.
        """
        rows = [row for row, _ in scored]
        if not rows:
            return ()
        sources, targets = self.ends[rows].T.tolist()
        ids, names = named or self.named({*sources, *targets})
        return tuple(
            map(
                TripleItem,
                self._relations.values("relation_id", rows),
                map(ids.__getitem__, sources),
                map(ids.__getitem__, targets),
                map(names.__getitem__, sources),
                map(names.__getitem__, targets),
                self._relations.values("kind", rows),
                self._relations.values("description", rows),
                self.relation_weights(np.array(rows)).tolist(),
                [score for _, score in scored],
            )
        )

    def sources(self, scored: Scored) -> tuple[SourceItem, ...]:
        """Return chunks by (row, score), with their places in their documents."""
        return tuple(self._source(row, score) for row, score in scored)

    def _source(self, row: int, score: float) -> SourceItem:
        document = int(self.chunk_documents[row])
        title, uri = ("", "") if document < 0 else (self._documents.value(name, document) for name in ("title", "uri"))
        start, end = self._spans[row].tolist()
        own, document_id, text = (self._chunks.value(name, row) for name in ("chunk_id", "document_id", "text"))
        return SourceItem(own, document_id, title, uri, start, end, text, score)

    def claims_about(self, rows: Iterable[int], limit: int) -> tuple[ClaimItem, ...]:
        """Return the claims about entities that may be seen: those whose chunk may be.

        Args:
            rows: entities. Each one's claims come in their order, those of which it is the subject first; a claim that
                is about several comes once. Nothing where the snapshot has no claims.
            limit: claims at most: of a hub there may be very many.
        """
        if self._claims is None:
            return ()
        return self._claims.items(self._claims.about(rows, self.seen_chunks, limit), self.admission)

    def tokens(self, level: str, row: int) -> int:
        """Return the tokens of a record as contexts hold it, without its reference; 0 where they were not counted.

        Args:
            level: local, bridge, global or sources, whose rows are entities, relations, communities and chunks.
            row: of the record.
        """
        counted = self._tokens.get(level)
        return 0 if counted is None else int(counted[row])

    def tells_anew(self, level: str, row: int) -> bool:
        """Whether a record of a context, by its row, is told otherwise than to who sees everything."""
        return False

    def similarities(self, rows: IntVector, query: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return how near entities are to a question."""
        return exact_scores(self.vectors, rows, query)

    def nearest_chunks(self, query: NDArray[np.float32], limit: int) -> tuple[IntVector, NDArray[np.float32]]:
        """Return (rows, similarities) of the chunks nearest to a question, best first, ties by row."""
        vectors = self.chunk_vectors
        return nearest_of_all(vectors, self._chunk_codes, query, limit, len(vectors), self.chunk_admission)

    def named_in(self, question: str) -> list[int]:
        """Return the rows of the entities whose names stand in a question, in its order.

        An entity is named by what the caller is told that its name is, and, where all that is told of it may be seen,
        by the other names that were found to be its own.
        """
        read = words(question)
        admits = None if self.admission is None else partial(visible_rows, self.admission)
        phrases = found_names(self._names, read, admits)
        told = map(words, self._entities.values("name", [phrase.row for phrase in phrases]))
        named = [phrase for phrase, name in zip(phrases, told, strict=True) if name == read[phrase.start : phrase.end]]
        if self._aliases is not None:
            others = found_names(self._aliases, read, admits)
            named += [phrase for phrase in others if not self.tells_anew("local", phrase.row)]
        return longest_names(named)

    def relation_weights(self, rows: IntVector) -> NDArray[np.float64]:
        """Return the weights of relations."""
        return self.weights[rows]

    def connect(self) -> NDArray[np.int32]:
        """Return `components`."""
        assert self.components is not None  # it is mapped
        return self.components

    def known_relations(self, rows: IntVector) -> IntVector:
        """Return those relations that may be seen."""
        return rows
