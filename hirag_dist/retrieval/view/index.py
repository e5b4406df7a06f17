"""Index over the memory-mapped serving files of a snapshot: arrays for the arithmetic, texts for the results.

Nothing is decoded on opening and nothing is cached per entity: a value is read from the mapped files by its row when a
question needs it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hirag_dist.core.access import visible_rows
from hirag_dist.core.graph.pagerank import VisibleEdges
from hirag_dist.core.reports.material import main_members
from hirag_dist.core.retrieval.entity_linking import NamePhrase, found_names, longest_phrases, rows_of, words
from hirag_dist.core.retrieval.levels import RankedCommunity, exact_scores, nearest_of_all
from hirag_dist.core.retrieval.lexical import VisibleChunks, best_chunks, visible_chunks
from hirag_dist.core.text.normalize import shorten
from hirag_dist.core.text.terms import terms
from hirag_dist.core.vectors import parts_of
from hirag_dist.storage.serving.mapped_files import MappedFiles
from hirag_dist.storage.serving.mmap_files import as_bytes
from hirag_dist.storage.serving.renderings import unpacked
from hirag_dist.storage.snapshot.reader import Snapshot
from hirag_dist.types import (
    AccessFilter,
    ClaimItem,
    CommunityItem,
    EntityItem,
    IntVector,
    PathItem,
    Place,
    SourceItem,
    TripleItem,
)

_MAIN_MEMBERS = 20  # of a community without a report
_MAX_COMPARED = 4096  # members of such a community that are compared with the question
_TITLE_MEMBERS, _TITLE_CHARS = 6, 120
_MEMBERS_CHARS, _MEMBER_CHARS = 2000, 240  # of the members together, about as long as a report; of each
_CHUNK_TEXTS = ("chunk_id", "document_id", "text")
Scored = Sequence[tuple[int, float]]
Named = tuple[Mapping[int, str], Mapping[int, str]]  # ids and names of entities, by row


class MappedIndex:
    """One snapshot, mapped. Rows are those of its tables.

    Attributes:
        access: filter of what the caller may see; None: everything is visible.
        is_by_row: whether the patterns of `access` are rows, as under a filter by metadata.
        visible_chunks: (n_chunks,) whether the caller may see a chunk; None: every one.
        visible_communities: (n_communities,) whether all sources of a community are visible; None: of every one.
        chunk_access: the filter in the form in which chunk vectors are searched.
        components: (n_entities,) connected component of each entity in the visible graph; None until `connect`.
        visible_edges: those that walks over the visible graph have found; None: all are visible.
    """

    def __init__(self, files: MappedFiles) -> None:
        """Make an unfiltered index of mapped files, which views of it share."""
        self.files = files
        self.snapshot_id = files.snapshot_id
        self.graph = files.graph
        self.vectors = files.vectors
        self.chunk_vectors = files.chunk_vectors
        self.layers = files.layers
        self.ends = files.ends
        self.weights = files.weights
        self.chunk_documents = files.chunk_documents
        self.walk_graph = files.walk_graph
        self.provenance = files.provenance
        self.parallel = files.parallel
        self.communities = files.communities
        self.access: AccessFilter | None = None
        self.is_by_row = False
        self.visible_chunks: NDArray[np.bool_] | None = None
        self.visible_communities: NDArray[np.bool_] | None = None
        self.chunk_access: AccessFilter | None = None
        self.components: NDArray[np.int32] | None = files.components
        self.visible_edges: VisibleEdges | None = None
        self._entities = files.entities
        self._relations = files.relations
        self._searched: VisibleChunks | None = None

    @classmethod
    def open(cls, snapshot: Snapshot, tokenizer: str = "") -> MappedIndex:
        """Map the files of a snapshot, for contexts that are measured by a tokenizer.

        Raises:
            SnapshotCorrupt: a file cannot be read.
            StoreError: it came without serving files, and there is no room to make them.
        """
        return MappedIndex(MappedFiles(snapshot, tokenizer))

    def pages(self) -> list[NDArray[np.uint8]]:
        """Return the bytes of all that is mapped, what questions read most first."""
        graph = self.graph
        arrays: list[NDArray[Any]] = [graph.indptr, graph.indices, graph.weights, graph.relation_rows]
        arrays += [*parts_of(self.vectors), *parts_of(self.chunk_vectors)]
        return [*map(as_bytes, arrays), *self.files.serving.pages()]

    def named(self, rows: Collection[int]) -> Named:
        """Return ids and names of entities by row."""
        ids, names = (dict(zip(rows, self._entities.values(name, rows), strict=True)) for name in ("entity_id", "name"))
        return ids, names

    def entities(
        self,
        scored: Sequence[tuple[int, float | None]],
        named: Named | None = None,
        matches: Iterable[str] = repeat(""),
    ) -> tuple[EntityItem, ...]:
        """Return entities by (row, score).

        Args:
            scored: rows and scores; None without a score.
            named: ids and names of at least these rows; None: read now.
            matches: how each was found.
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
                matches,
            )
        )

    def community(self, ranked: RankedCommunity) -> CommunityItem | None:
        """Return a community with its report, None where the report is a dead letter or has a source out of sight."""
        row = ranked.community
        report = int(self.files.report_rows[row])
        if report < 0 or not self.is_fully_visible(row):
            return None
        return CommunityItem(
            self.files.community_texts.value("community_id", row),
            int(self.communities.levels[row]),
            self.files.reports.value("title", report),
            self.files.reports.value("text", report),
            float(self.communities.ratings[row]),
            ranked.hits,
            ranked.score,
        )

    def community_members(self, ranked: RankedCommunity, query: NDArray[np.float32]) -> CommunityItem | None:
        """Return a community whose report is missing, with the members nearest to a question in its place.

        None where not all its sources are visible, as for a report.
        """
        row, index = ranked.community, self.communities
        if not self.is_fully_visible(row):
            return None
        members = index.members[index.indptr[row] : index.indptr[row + 1]][:_MAX_COMPARED].astype(np.int64)
        if self.access is not None:  # under a filter that not all sources have to pass
            members = members[visible_rows(self.access, members)]
        order = np.lexsort((members, -self.similarities(members, query)))
        shown = members[order[:_MAIN_MEMBERS]].tolist()
        names, *others = (self._entities.values(name, shown) for name in ("name", "type", "description"))
        return CommunityItem(
            self.files.community_texts.value("community_id", row),
            int(index.levels[row]),
            shorten(", ".join(names[:_TITLE_MEMBERS]), _TITLE_CHARS),
            main_members(zip(names, *others, strict=True), _MEMBERS_CHARS, _MEMBER_CHARS),
            0.0,
            ranked.hits,
            ranked.score,
            report_missing=True,
        )

    def is_fully_visible(self, row: int) -> bool:
        """Return whether all sources of a community are visible."""
        return self.visible_communities is None or bool(self.visible_communities[row])

    def reported(self) -> NDArray[np.bool_]:
        """Return, for each community, whether it has a visible report."""
        reported: NDArray[np.bool_] = (self.files.report_rows >= 0) & self.fully_visible()
        return reported

    def fully_visible(self) -> NDArray[np.bool_]:
        """Return, for each community, whether all its sources are visible."""
        if self.visible_communities is None:
            return np.ones(len(self.files.report_rows), np.bool_)
        return self.visible_communities

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
        id_of, name_of = ids.__getitem__, names.__getitem__
        return tuple(
            [
                PathItem(ids[source], ids[target], tuple(map(id_of, path)), tuple(map(name_of, path)))
                for (source, target), path in zip(pairs, paths, strict=True)
            ]
        )

    def triples(self, scored: Scored, named: Named | None = None) -> tuple[TripleItem, ...]:
        """Return relations by (row, score).

        Args:
            named: ids and names of the entities at their ends; None: read now.
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

    def sources(self, scored: Scored, query: NDArray[np.float32] | None = None) -> tuple[SourceItem, ...]:
        """Return chunks by (row, score), with their spans, and their similarity to the vector (dim,) of a question."""
        rows = np.array([row for row, _ in scored], np.int64)
        near = [None] * len(rows) if query is None else exact_scores(self.chunk_vectors, rows, query).tolist()
        return tuple(map(self._source, rows.tolist(), [score for _, score in scored], near))

    def _source(self, row: int, score: float, similarity: float | None) -> SourceItem:
        document = int(self.chunk_documents[row])
        title, uri = (
            ("", "") if document < 0 else (self.files.documents.value(name, document) for name in ("title", "uri"))
        )
        start, end = self.files.spans[row].tolist()
        chunk_id, document_id, text = (self.files.chunks.value(name, row) for name in _CHUNK_TEXTS)
        places = self.files.places.between(document, uri, start, end, text, numbered=self.access is None)
        metadata = {} if self.files.metadata is None else self.files.metadata.of_document(document)
        return SourceItem(chunk_id, document_id, title, uri, start, end, text, score, metadata, places, similarity)

    def quoted(self, source: SourceItem, start: int, end: int) -> tuple[Place, ...]:
        """Return the places of a quotation from a chunk: characters of the document from `start` to `end`."""
        documents = self.files.documents
        document = bisect_left(range(documents.n_rows), source.document_id, key=partial(documents.value, "document_id"))
        if document == documents.n_rows or documents.value("document_id", document) != source.document_id:
            document = -1
        text = source.text[start - source.start : end - source.start]
        numbered = self.access is None
        return self.files.places.quoted(document, source.uri, start, end, text, numbered=numbered)

    def claims_about(self, rows: Iterable[int], limit: int) -> tuple[ClaimItem, ...]:
        """Return the claims about entities whose chunk is visible; none where the snapshot has no claims.

        Args:
            rows: entities. Their claims come in this order, for each entity those of which it is the subject first; a
                claim about several of them comes once.
            limit: claims at most: a hub may have very many.
        """
        if self.files.claims is None:
            return ()
        return self.files.claims.items(self.files.claims.about(rows, self.visible_chunks, limit), self.access)

    def rendering(self, level: str, row: int) -> tuple[int, int]:
        """Return the tokens of a record as contexts hold it, and the form of its stored texts.

        The reference of the record is not counted. The tokens are 0 where they were not counted at all.

        Args:
            level: local, bridge, global or sources, whose rows are entities, relations, communities and chunks.
        """
        tokens, form = unpacked(int(self.files.renderings[level][row]))
        return tokens if self.files.counts_tokens else 0, form

    def rebuilt(self, level: str, rows: IntVector) -> NDArray[np.bool_]:
        """Return whether the texts of records differ from the stored ones, for the view has a part of them: (n,)."""
        return np.zeros(len(rows), np.bool_)

    def similarities(self, rows: IntVector, query: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the similarity of entities to a question."""
        return exact_scores(self.vectors, rows, query)

    def chunk_similarities(self, rows: IntVector, query: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the similarity of visible chunks to a question."""
        return exact_scores(self.chunk_vectors, rows, query)

    def nearest_chunks(self, query: NDArray[np.float32], limit: int) -> tuple[IntVector, NDArray[np.float32]]:
        """Return (rows, similarities) of the chunks nearest to a question, best first, ties by row."""
        vectors = self.chunk_vectors
        return nearest_of_all(vectors, query, limit, len(vectors), self.chunk_access, self.files.chunk_codes)

    def chunks_with_words(self, question: str, limit: int) -> tuple[IntVector, NDArray[np.float64]]:
        """Return (rows, scores) of the visible chunks with the words of a question, best first, ties by row.

        There are none where the snapshot has no lexical index.
        """
        if not self.files.lexical:
            return np.zeros(0, np.int64), np.zeros(0)
        if self._searched is None:  # a view learns what is visible after it was made
            self._searched = visible_chunks(self.files.lexical, self.visible_chunks)
        return best_chunks(self.files.lexical, terms(question), limit, self._searched)

    def named_entities(self, question: str) -> list[int]:
        """Return the rows of the entities whose names occur in a question, in its order (`name_phrases`)."""
        return rows_of(self.name_phrases(question))

    def name_phrases(self, question: str) -> list[NamePhrase]:
        """Return the names of entities that occur in a question, in its order, with a phrase for each entity.

        The name of an entity is the one that the caller may see; its aliases count where it is fully visible.
        """
        read = words(question)
        admits = None if self.access is None else partial(visible_rows, self.access)
        phrases = found_names(self.files.entity_names, read, admits)
        names = map(words, self._entities.values("name", [phrase.row for phrase in phrases]))
        named = [phrase for phrase, name in zip(phrases, names, strict=True) if name == read[phrase.start : phrase.end]]
        if self.files.aliases is not None:
            others = found_names(self.files.aliases, read, admits)
            rebuilt = self.rebuilt("local", np.array([phrase.row for phrase in others], np.int64)).tolist()
            named += [phrase for phrase, other in zip(others, rebuilt, strict=True) if not other]
        return longest_phrases(named)

    def relation_weights(self, rows: IntVector) -> NDArray[np.float64]:
        """Return the weights of relations."""
        return self.weights[rows]

    def connect(self) -> NDArray[np.int32]:
        """Return `components`."""
        assert self.components is not None  # it is mapped
        return self.components

    def visible_relations(self, rows: IntVector) -> IntVector:
        """Return the relations that are visible."""
        return rows
