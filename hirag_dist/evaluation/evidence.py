"""Chunks that hold the evidence that a gold id names, and chunks that support a retrieval."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hirag_dist.core.access.filter import spans
from hirag_dist.storage.snapshot.reader import Snapshot
from hirag_dist.types import IntVector, Retrieval

LEVELS = ("local", "global", "bridge", "sources")
_NOTHING: IntVector = np.zeros(0, np.int64)


class Evidence:
    """The chunks of one snapshot, by row, found from ids.

    Attributes:
        n_chunks: of the snapshot.
        known: gold ids that the snapshot has.
    """

    def __init__(self, snapshot: Snapshot, gold_ids: Iterable[str]) -> None:
        """Look the gold ids up.

        An id is looked for among the owner's ids of records; those not found there among the ids of documents and
        chunks in the index, then among titles and the names of files. Where several documents have it, a chunk of any
        of them is the evidence.

        Args:
            gold_ids: as question files have them.

        Raises:
            SnapshotCorrupt: a table cannot be read.
        """
        chunks = snapshot.table("chunks", ["chunk_id", "document_id"])
        documents = snapshot.table("documents", ["document_id", "uri", "title", "source_ids"])
        self.n_chunks = chunks.num_rows
        self.examples: list[str] = [own for ids in documents["source_ids"].slice(0, 3).to_pylist() for own in ids][:3]
        self._chunks = _Rows(chunks["chunk_id"])
        home = pc.index_in(chunks["document_id"], documents["document_id"].combine_chunks())
        self._document_of: IntVector = np.asarray(home.fill_null(-1), np.int64)
        self._of_gold = self._found(sorted(set(gold_ids)), documents)
        self.known = frozenset(self._of_gold)
        serving = snapshot.serving
        self._entities = _Rows(snapshot.table("entities", ["entity_id"])["entity_id"])
        self._relations = _Rows(snapshot.table("relations", ["relation_id"])["relation_id"])
        self._communities = _Rows(snapshot.table("communities", ["community_id"])["community_id"])
        self._entity_chunks = serving.array("entity_chunks_indptr"), serving.array("entity_chunks")
        self._relation_chunks = serving.array("relation_chunks_indptr"), serving.array("relation_chunks")
        self._members = serving.array("community_indptr"), serving.array("community_members")

    def of(self, gold_id: str) -> frozenset[int]:
        """Return the rows of the chunks that hold what a gold id names; none where the snapshot does not have it."""
        return self._of_gold.get(gold_id, frozenset())

    def behind(self, found: Retrieval) -> dict[str, IntVector]:
        """Return the rows of the chunks behind each level of a retrieval, each once.

        local: chunks that the entities of layer 0 were extracted from; summary entities have none of their own.
        global: those of all members of the communities, of which the reports were written: an upper bound of what a
        report can tell. bridge: those of key entities, nodes of paths, and relations between them. sources: the
        chunks themselves, in their order.
        """
        local = self._entities.of(item.entity_id for item in found.local)
        communities = self._communities.of(item.community_id for item in found.communities)
        nodes = {own for path in found.paths for own in path.entity_ids}
        nodes |= {item.entity_id for item in found.key_entities}
        triples = self._relations.of(item.relation_id for item in found.triples)
        bridge = [_listed(self._entity_chunks, self._entities.of(nodes)), _listed(self._relation_chunks, triples)]
        return {
            "local": np.unique(_listed(self._entity_chunks, local)),
            "global": np.unique(_listed(self._entity_chunks, np.unique(_listed(self._members, communities)))),
            "bridge": np.unique(np.concatenate(bridge)),
            "sources": self._chunks.of(item.chunk_id for item in found.sources),
        }

    def _found(self, wanted: Sequence[str], documents: pa.Table) -> dict[str, frozenset[int]]:
        rows: dict[str, set[int]] = {}
        own_ids = documents["source_ids"].combine_chunks()
        of_documents = np.asarray(pc.list_parent_indices(own_ids), np.int64)
        tried: list[tuple[pa.Array, IntVector]] = [(pc.list_flatten(own_ids), of_documents)]
        every = np.arange(documents.num_rows)
        tried += [(documents[name].combine_chunks(), every) for name in ("document_id", "title", "uri")]
        found: dict[str, frozenset[int]] = {}
        for values, homes in tried:
            left = [own for own in wanted if own not in found]
            if not left:
                break
            at = pc.index_in(values, pa.array(left, pa.string())).fill_null(-1)
            hits = np.asarray(at, np.int64)
            rows = {}
            for place in np.flatnonzero(hits >= 0).tolist():
                rows.setdefault(left[int(hits[place])], set()).add(int(homes[place]))
            chunks = _inverted(self._document_of, {row for some in rows.values() for row in some})
            found |= {own: frozenset(chunk for row in some for chunk in chunks[row]) for own, some in rows.items()}
        for own in wanted:
            if own not in found and len(row := self._chunks.of([own])):
                found[own] = frozenset(row.tolist())
        return found


class _Rows:
    """Rows of a table by id."""

    def __init__(self, ids: pa.ChunkedArray) -> None:
        names = _fixed(ids.combine_chunks())
        self._order = np.argsort(names, kind="stable")
        self._names = names[self._order]

    def of(self, ids: Iterable[str]) -> IntVector:
        """Return the rows of those ids that there are, in their order."""
        wanted = np.array([own.encode() for own in ids], np.bytes_)
        if not len(wanted) or not len(self._names):
            return _NOTHING
        at = np.minimum(np.searchsorted(self._names, wanted), len(self._names) - 1)
        rows: IntVector = self._order[at[self._names[at] == wanted]].astype(np.int64)
        return rows


def _fixed(ids: pa.Array) -> NDArray[np.bytes_]:
    """Return texts as bytes of one length, filled up with zeros, without a Python object for each."""
    width = max(pc.max(pc.binary_length(ids)).as_py() or 0, 1)
    padded = pc.ascii_rpad(ids, width=width, padding="\0")
    return np.frombuffer(padded.buffers()[2] or b"", f"S{width}", len(padded))


def _listed(lists: tuple[NDArray[np.int64], NDArray[np.int32]], rows: IntVector) -> IntVector:
    """Return the concatenated lists of some rows."""
    indptr, values = lists
    _, places = spans(indptr[rows], indptr[rows + 1])
    return values[places].astype(np.int64)


def _inverted(document_of: IntVector, documents: set[int]) -> Mapping[int, list[int]]:
    """Return the chunks of each of these documents."""
    chunks: dict[int, list[int]] = {row: [] for row in documents}
    wanted = np.isin(document_of, np.fromiter(documents, np.int64, len(documents)))
    for chunk in np.flatnonzero(wanted).tolist():
        chunks[int(document_of[chunk])].append(chunk)
    return chunks
