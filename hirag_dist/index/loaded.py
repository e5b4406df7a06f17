"""A snapshot made ready for questions: mapped arrays for the arithmetic, mapped texts for what is returned.

Nothing is decoded when it is opened, and nothing is kept for an entity: every value is read from the mapped files by
its row when a question needs it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from hirag_dist.core.retrieval import CommunityIndex, Parallel, RankedCommunity
from hirag_dist.index import serving
from hirag_dist.index.reader import Snapshot
from hirag_dist.types import (
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


class LoadedIndex:
    """One snapshot, mapped. Rows are those of its tables."""

    def __init__(self, snapshot: Snapshot) -> None:
        """Map the files.

        Raises:
            SnapshotCorrupt: one cannot be read.
            StoreError: the snapshot came without serving files, and there is no room to make them.
        """
        files = snapshot.serving
        self.snapshot_id = snapshot.manifest.snapshot_id
        self.graph: CsrGraph = snapshot.graph
        self.vectors: FloatMatrix = snapshot.entity_vectors
        self.chunk_vectors: FloatMatrix = snapshot.chunk_vectors
        self.layers: NDArray[np.int32] = files.array("entity_layers")
        self.ends: NDArray[np.int32] = files.array("relation_ends")
        self.weights: NDArray[np.float64] = files.array("relation_weights")
        self.chunk_documents: NDArray[np.int32] = files.array("chunk_documents")
        self.entity_chunks = _Lists(files.array("entity_chunks_indptr"), files.array("entity_chunks"))
        self.relation_chunks = _Lists(files.array("relation_chunks_indptr"), files.array("relation_chunks"))
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
        self._spans: NDArray[np.int64] = files.array("chunk_spans")
        self._report_rows: NDArray[np.int32] = files.array("community_reports")
        self._entities = files.texts(serving.ENTITIES)
        self._relations = files.texts(serving.RELATIONS)
        self._chunks = files.texts(serving.CHUNKS)
        self._documents = files.texts(serving.DOCUMENTS)
        self._communities = files.texts(serving.COMMUNITIES)
        self._reports = files.texts(serving.REPORTS)

    def entities(self, scored: Scored) -> tuple[EntityItem, ...]:
        """Return entities by (row, score)."""
        rows = [row for row, _ in scored]
        return tuple(
            map(
                EntityItem,
                *(self._entities.values(name, rows) for name in ("entity_id", "name", "type", "description")),
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

    def paths(self, pairs: Iterable[tuple[int, int]], paths: Iterable[Sequence[int]]) -> tuple[PathItem, ...]:
        """Return paths by names; one is empty for an unconnected pair.

        Args:
            pairs: the two ends of each.
            paths: the rows of each, both ends included.
        """
        pairs, paths = list(pairs), list(paths)
        ids, names = self._named({row for path in paths for row in path} | {row for pair in pairs for row in pair})
        return tuple(
            PathItem(ids[source], ids[target], tuple([ids[row] for row in path]), tuple([names[row] for row in path]))
            for (source, target), path in zip(pairs, paths, strict=True)
        )

    def triples(self, scored: Scored) -> tuple[TripleItem, ...]:
        """Return relations by (row, score)."""
        rows = [row for row, _ in scored]
        if not rows:
            return ()
        sources, targets = self.ends[rows].T.tolist()
        ids, names = self._named({*sources, *targets})
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
                self.weights[rows].tolist(),
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

    def members_below(self, row: int) -> IntVector:
        """Return the entities of the layer below that a summary entity is made of."""
        neighbours = self.graph.indices[self.graph.indptr[row] : self.graph.indptr[row + 1]]
        below: IntVector = neighbours[self.layers[neighbours] == self.layers[row] - 1].astype(np.int64)
        return below

    def _named(self, rows: set[int]) -> tuple[dict[int, str], dict[int, str]]:
        """Return ids and names by row."""
        return tuple(  # type: ignore[return-value]
            dict(zip(rows, self._entities.values(name, rows), strict=True)) for name in ("entity_id", "name")
        )


class _Lists:
    """CSR lists of rows, one of which is asked for at a time."""

    def __init__(self, indptr: IntVector, rows: NDArray[np.int32]) -> None:
        self._indptr = indptr
        self._rows = rows

    def __call__(self, row: int) -> list[int]:
        found: list[int] = self._rows[self._indptr[row] : self._indptr[row + 1]].tolist()
        return found
