"""Chunks that hold the evidence that a gold id names."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hirag_dist.core.graph.csr import rows_of
from hirag_dist.storage.snapshot.reader import Snapshot


class Evidence:
    """The chunks of one snapshot, by row, found from ids.

    An id is looked for among the owner's ids of records; those not found there among the ids of documents, their
    titles and the names of files, and the ids of chunks. Where several documents have it, a chunk of any of them is
    the evidence.

    Args:
        snapshot: The index.
        gold_ids: Ids as question files have them.

    Attributes:
        n_chunks: Chunks of the snapshot.
        known: Gold ids that the snapshot has.
        examples: A few ids of records that the snapshot has.

    Raises:
        SnapshotCorrupt: a table cannot be read.
    """

    def __init__(self, snapshot: Snapshot, gold_ids: Iterable[str]) -> None:
        chunks = snapshot.table("chunks", ["chunk_id", "document_id"])
        documents = snapshot.table("documents", ["document_id", "uri", "title", "source_ids"])
        self.n_chunks = chunks.num_rows
        self.examples: list[str] = [own for ids in documents["source_ids"].slice(0, 3).to_pylist() for own in ids][:3]
        self._chunk_ids = chunks["chunk_id"].combine_chunks()
        wanted = frozenset(gold_ids)
        owners = _documents_by_name(wanted, documents)
        homes = rows_of(chunks["document_id"], documents["document_id"])
        inside: dict[int, list[int]] = {}
        for chunk in np.flatnonzero(np.isin(homes, [row for rows in owners.values() for row in rows])).tolist():
            inside.setdefault(int(homes[chunk]), []).append(chunk)
        self._of = {
            name: frozenset(chunk for row in rows for chunk in inside.get(row, ())) for name, rows in owners.items()
        }
        for name in wanted - owners.keys():
            if row := self.rows([name]):
                self._of[name] = frozenset(row)
        self.known = frozenset(self._of)

    def of(self, gold_id: str) -> frozenset[int]:
        """Return the rows of the chunks that hold what a gold id names; none where the snapshot does not have it."""
        return self._of.get(gold_id, frozenset())

    def rows(self, chunk_ids: Iterable[str]) -> list[int]:
        """Return the rows of chunks, in the order of their ids; ids that the snapshot does not have are left out."""
        ids = list(chunk_ids)
        hits = np.flatnonzero(pc.is_in(self._chunk_ids, pa.array(ids, pa.string())).to_numpy(zero_copy_only=False))
        row_of = dict(zip(self._chunk_ids.take(pa.array(hits)).to_pylist(), hits.tolist(), strict=True))
        return [row_of[own] for own in ids if own in row_of]


def _documents_by_name(wanted: frozenset[str], documents: pa.Table) -> dict[str, set[int]]:
    """Return the rows of the documents that have each name, by the first column in which it occurs."""
    own_ids = documents["source_ids"].combine_chunks()
    every = np.arange(documents.num_rows)
    columns = [(pc.list_flatten(own_ids), pc.list_parent_indices(own_ids).to_numpy())]
    columns += [(documents[name].combine_chunks(), every) for name in ("document_id", "title", "uri")]
    found: dict[str, set[int]] = {}
    for values, rows in columns:
        hits = pc.is_in(values, pa.array(sorted(wanted - found.keys()), pa.string()))
        named: dict[str, set[int]] = {}
        for name, row in zip(
            values.filter(hits).to_pylist(), rows[hits.to_numpy(zero_copy_only=False)].tolist(), strict=True
        ):
            named.setdefault(name, set()).add(row)
        found |= named
    return found
