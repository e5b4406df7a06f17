"""A snapshot made ready for questions: arrays for the arithmetic, Arrow columns for what is returned."""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any

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

_REMEMBERED = 65_536


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
        self.entities = snapshot.table("entities").combine_chunks()
        self.relations = snapshot.table("relations").combine_chunks()
        self.chunks = snapshot.table("chunks").combine_chunks()
        self._entity = _Columns(self.entities)
        self._relation = _Columns(self.relations)
        self._chunk = _Columns(self.chunks)
        # What questions ask for again and again, bounded: hubs are on many paths.
        self._named = lru_cache(_REMEMBERED)(partial(self._entity.at, "entity_id", "name"))
        self.entity_chunks = lru_cache(_REMEMBERED)(self._entity_chunks)
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
        own, name = self._named(row)
        kind, description = self._entity.at("type", "description", row)
        return EntityItem(own, name, kind, description, int(self.layers[row]), score)

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
        pairs = [self._named(row) for row in rows]
        return PathItem(
            self._named(source)[0],
            self._named(target)[0],
            tuple(own for own, _ in pairs),
            tuple(name for _, name in pairs),
        )

    def triple(self, row: int, score: float) -> TripleItem:
        """Return a relation."""
        own, kind, description, weight = self._relation.at("relation_id", "kind", "description", "weight", row)
        source_id, source = self._named(int(self.ends[row, 0]))
        target_id, target = self._named(int(self.ends[row, 1]))
        return TripleItem(own, source_id, target_id, source, target, kind, description, weight, score)

    def source(self, row: int, score: float) -> SourceItem:
        """Return a chunk with its place in its document."""
        own, document, start, end, text = self._chunk.at("chunk_id", "document_id", "start", "end", "text", row)
        title, uri = self._documents[document]
        return SourceItem(own, document, title, uri, start, end, text, score)

    def _entity_chunks(self, row: int) -> list[int]:
        """Return the chunk rows that mention an entity of layer 0."""
        return self._known(self._entity.at("chunk_ids", row)[0])

    def relation_chunks(self, row: int) -> list[int]:
        """Return the chunk rows that state a relation."""
        return self._known(self._relation.at("chunk_ids", row)[0])

    def members_below(self, row: int) -> NDArray[np.int64]:
        """Return the entities of the layer below that a summary entity is made of."""
        neighbours = self.graph.indices[self.graph.indptr[row] : self.graph.indptr[row + 1]].astype(np.int64)
        below: NDArray[np.int64] = neighbours[self.layers[neighbours] == self.layers[row] - 1]
        return below

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


class _Columns:
    """Single values of a table, without the cost of slicing it."""

    def __init__(self, table: pa.Table) -> None:
        self._arrays = {
            name: column.chunk(0) if column.num_chunks else pa.array([], column.type)
            for name, column in zip(table.column_names, table.columns, strict=True)
        }

    def at(self, *names_and_row: Any) -> list[Any]:
        """Return the values of some columns, named first, in one row, given last."""
        *names, row = names_and_row
        return [self._arrays[name][row].as_py() for name in names]


def _rows_by_id(ids: pa.ChunkedArray) -> dict[str, int]:
    return {own: row for row, own in enumerate(ids.to_pylist())}


def _parallel(ends: NDArray[np.int64]) -> dict[tuple[int, int], list[int]]:
    """Return the relations of pairs that have more than one, by (lower row, higher row)."""
    if not len(ends):
        return {}
    low, high = ends.min(axis=1), ends.max(axis=1)
    pairs = low * (int(high.max()) + 1) + high  # one number sorts many times faster than two
    order = np.argsort(pairs, kind="stable")
    same = pairs[order[1:]] == pairs[order[:-1]]
    several = np.zeros(len(ends), np.bool_)
    several[order[1:][same]] = several[order[:-1][same]] = True
    found: dict[tuple[int, int], list[int]] = {}
    for row in np.flatnonzero(several).tolist():
        found.setdefault((int(low[row]), int(high[row])), []).append(row)
    return found
