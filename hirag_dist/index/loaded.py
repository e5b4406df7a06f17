"""A snapshot made ready for questions: arrays for the arithmetic, Arrow columns for what is returned."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hirag_dist.core.graph import rows_of
from hirag_dist.core.reports import report_text
from hirag_dist.core.retrieval import CommunityIndex, RankedCommunity, invert
from hirag_dist.index.reader import Snapshot
from hirag_dist.types import (
    CommunityItem,
    CsrGraph,
    EntityItem,
    FloatMatrix,
    PathItem,
    SourceItem,
    TripleItem,
)


class LoadedIndex:
    """One snapshot in memory. Rows are those of its tables."""

    def __init__(self, snapshot: Snapshot) -> None:
        """Read the tables and derive the arrays.

        Raises:
            SnapshotCorrupt: a table or array cannot be read.
        """
        self.snapshot_id = snapshot.manifest.snapshot_id
        self.graph: CsrGraph = snapshot.graph
        self.vectors: FloatMatrix = snapshot.entity_vectors
        self.chunk_vectors: FloatMatrix = snapshot.chunk_vectors
        self.entities = snapshot.table("entities")
        self.relations = snapshot.table("relations")
        self.chunks = snapshot.table("chunks")
        self.layers: NDArray[np.int32] = self.entities["layer"].to_numpy()
        documents = snapshot.table("documents").select(["document_id", "title", "uri"]).to_pylist()
        self._documents = {row["document_id"]: (row["title"], row["uri"]) for row in documents}
        self._chunk_rows = _rows_by_id(self.chunks["chunk_id"])
        source = rows_of(self.relations["source_id"], self.entities["entity_id"])
        target = rows_of(self.relations["target_id"], self.entities["entity_id"])
        self.ends: NDArray[np.int64] = np.column_stack([source, target])
        self.weights: NDArray[np.float32] = self.relations["weight"].to_numpy().astype(np.float32)
        self.parallel = _parallel(self.ends)
        self._communities = snapshot.table("communities")
        self._reports = {row["community_id"]: row for row in snapshot.table("reports").to_pylist()}
        self.communities = self._community_index(snapshot)

    def entity(self, row: int, score: float | None = None) -> EntityItem:
        """Return an entity."""
        values = self.entities.slice(row, 1).to_pylist()[0]
        return EntityItem(
            values["entity_id"], values["name"], values["type"], values["description"], values["layer"], score
        )

    def community(self, ranked: RankedCommunity) -> CommunityItem | None:
        """Return a community with its report, None where its report is a dead letter."""
        own = self._communities["community_id"][ranked.community].as_py()
        report = self._reports.get(own)
        if report is None:
            return None
        return CommunityItem(
            own,
            report["level"],
            report["title"],
            report_text(report),
            report["rating"],
            ranked.hits,
            ranked.score,
        )

    def path(self, source: int, target: int, rows: list[int]) -> PathItem:
        """Return a path by names; `rows` is empty for an unconnected pair."""
        ids, names = self.entities["entity_id"], self.entities["name"]
        return PathItem(
            ids[source].as_py(),
            ids[target].as_py(),
            tuple(ids[row].as_py() for row in rows),
            tuple(names[row].as_py() for row in rows),
        )

    def triple(self, row: int, score: float) -> TripleItem:
        """Return a relation."""
        values = self.relations.slice(row, 1).to_pylist()[0]
        names = self.entities["name"]
        return TripleItem(
            values["relation_id"],
            values["source_id"],
            values["target_id"],
            names[int(self.ends[row, 0])].as_py(),
            names[int(self.ends[row, 1])].as_py(),
            values["kind"],
            values["description"],
            values["weight"],
            score,
        )

    def source(self, row: int, score: float) -> SourceItem:
        """Return a chunk with its place in its document."""
        values = self.chunks.slice(row, 1).to_pylist()[0]
        title, uri = self._documents[values["document_id"]]
        return SourceItem(
            values["chunk_id"],
            values["document_id"],
            title,
            uri,
            values["start"],
            values["end"],
            values["text"],
            score,
        )

    def entity_chunks(self, row: int) -> list[int]:
        """Return the chunk rows that mention an entity of layer 0."""
        return self._known(self.entities["chunk_ids"][row].as_py())

    def relation_chunks(self, row: int) -> list[int]:
        """Return the chunk rows that state a relation."""
        return self._known(self.relations["chunk_ids"][row].as_py())

    def members_below(self, row: int) -> NDArray[np.int64]:
        """Return the entities of the layer below that a summary entity is made of."""
        neighbours = self.graph.indices[self.graph.indptr[row] : self.graph.indptr[row + 1]].astype(np.int64)
        return neighbours[self.layers[neighbours] == self.layers[row] - 1]

    def _known(self, ids: list[str]) -> list[int]:
        return [self._chunk_rows[own] for own in ids if own in self._chunk_rows]

    def _community_index(self, snapshot: Snapshot) -> CommunityIndex:
        communities = self._communities
        indptr, members = snapshot.members(communities, self.entities)
        levels = communities["level"].to_numpy().astype(np.int32)
        ids = communities["community_id"].to_pylist()
        ratings = np.array([self._reports.get(own, {}).get("rating", 0.0) for own in ids], np.float64)
        order = np.empty(len(ids), np.int64)
        order[np.argsort(np.array(ids, object), kind="stable")] = np.arange(len(ids))
        of_indptr, of = invert(indptr, members, levels, self.entities.num_rows)
        return CommunityIndex(levels, ratings, order, indptr, members, of_indptr, of)


def _rows_by_id(ids: pa.ChunkedArray) -> dict[str, int]:
    return {own: row for row, own in enumerate(ids.to_pylist())}


def _parallel(ends: NDArray[np.int64]) -> dict[tuple[int, int], list[int]]:
    """Return the relations of pairs that have more than one, by (lower row, higher row)."""
    if not len(ends):
        return {}
    pairs = np.sort(ends, axis=1)
    _, inverse, counts = np.unique(pairs, axis=0, return_inverse=True, return_counts=True)
    found: dict[tuple[int, int], list[int]] = {}
    for row in np.flatnonzero(counts[inverse.reshape(-1)] > 1).tolist():
        found.setdefault((int(pairs[row, 0]), int(pairs[row, 1])), []).append(row)
    return found
