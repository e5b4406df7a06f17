"""The parts of a made-up index after an update of ten documents, as an update leaves them.

Five documents have another text, three are new and two are gone. Their entities, and the relations, clusters and
communities of these, are described differently, removed or added. The rows that stay come first, in their order; what
is new follows in a part of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hirag_dist.indexing.stages.embed import vector_table
from hirag_dist.storage.snapshot.reader import Snapshot

N_CHANGED, N_ADDED, N_REMOVED = 5, 3, 2  # documents
_PART_ROWS = 1 << 18  # of what stays
_REMOVED_SHARE = 0.1  # of the entities and relations of the documents; twice as many are added
_KEYS = {"entities": "entity_id", "relations": "relation_id", "communities": "community_id"}

Write = Callable[[str, Iterator[pa.Table]], None]


class ChangedParts:
    """The rows of each table that an update keeps, and those that it writes."""

    def __init__(self, snapshot: Snapshot, seed: int = 0) -> None:
        self._snapshot = snapshot
        self._rng = np.random.default_rng(seed)
        self._entities = snapshot.table("entities", ["entity_id", "layer", "chunk_ids"])

    def write(self, write: Write) -> None:
        """Write the parts of all tables and vectors by `write(name, parts)`."""
        chunks = self._snapshot.table("chunks")
        documents = self._snapshot.table("documents")
        chosen = self._rng.choice(documents.num_rows, N_CHANGED + N_ADDED + N_REMOVED, replace=False)
        gone = documents["document_id"].take(pa.array(chosen[: N_CHANGED + N_REMOVED])).combine_chunks()
        copied = documents["document_id"].take(pa.array(chosen[N_REMOVED:])).combine_chunks()
        more = _renamed(documents.filter(pc.is_in(documents["document_id"], copied)), "document_id")
        write("documents", _parts(documents, pc.is_in(documents["document_id"], gone), more))
        old_chunks = pc.is_in(chunks["document_id"], gone)
        new_chunks = chunks.filter(pc.is_in(chunks["document_id"], copied))
        new_chunks = _renamed(_renamed(new_chunks, "document_id"), "chunk_id")
        write("chunks", _parts(chunks, old_chunks, new_chunks))
        self._vectors("chunks", "chunk_id", old_chunks, new_chunks["chunk_id"], write)
        touched = self._mentioned_in(chunks.filter(old_chunks)["chunk_id"].combine_chunks())
        entities = self._changed("entities", touched, write)
        self._vectors("entities", "entity_id", *entities, write)
        relations = self._snapshot.table("relations")
        ids = self._entities["entity_id"].filter(touched).combine_chunks()
        ends = pc.or_(pc.is_in(relations["source_id"], ids), pc.is_in(relations["target_id"], ids))
        self._changed("relations", ends, write, relations)
        del relations
        clusters = self._snapshot.table("clusters")
        moved = pc.is_in(clusters["entity_id"], ids)
        again = clusters.filter(moved)
        again = again.set_column(
            again.schema.get_field_index("responsibility"),
            again.schema.field("responsibility"),
            pc.multiply(again["responsibility"], pa.scalar(0.5, pa.float32())),
        )
        write("clusters", _parts(clusters, moved, again))
        self._communities(ids, write)

    def _mentioned_in(self, chunk_ids: pa.Array) -> pa.Array:
        """Return whether each entity is mentioned in some of the chunks."""
        lists = self._entities["chunk_ids"].combine_chunks()
        hits = pc.is_in(lists.flatten(), chunk_ids).to_numpy(zero_copy_only=False)
        owners = np.repeat(np.arange(len(lists)), lists.value_lengths().to_numpy())[hits]
        flags = np.zeros(len(lists), np.bool_)
        flags[owners] = True
        return pa.array(flags)

    def _changed(
        self, name: str, touched: Any, write: Write, table: pa.Table | None = None
    ) -> tuple[pa.Array, pa.ChunkedArray]:
        """Write a table whose touched rows are described differently, removed or added; return those flags and ids."""
        table = self._snapshot.table(name) if table is None else table
        rows = table.filter(touched)
        changed = rows.filter(pa.array(self._rng.random(rows.num_rows) >= _REMOVED_SHARE))
        added = _renamed(rows.filter(pa.array(self._rng.random(rows.num_rows) < 2 * _REMOVED_SHARE)), _KEYS[name])
        described = pc.binary_join_element_wise(changed["description"], "Changed.", " ")
        at = changed.schema.get_field_index("description")
        again = pa.concat_tables([changed.set_column(at, changed.schema.field(at), described), added])
        write(name, _parts(table, touched, again))
        flags = touched.combine_chunks() if isinstance(touched, pa.ChunkedArray) else touched
        return flags, again[_KEYS[name]]

    def _vectors(self, name: str, key: str, gone: Any, new_ids: pa.ChunkedArray, write: Write) -> None:
        matrix = self._snapshot.array(f"vectors/{name}")
        ids = self._snapshot.table(name, [key])[key].combine_chunks()
        kept = np.flatnonzero(~gone.to_numpy(zero_copy_only=False))

        def parts() -> Iterator[pa.Table]:
            for first in range(0, len(kept), _PART_ROWS // 8):
                rows = kept[first : first + _PART_ROWS // 8]
                yield vector_table(ids.take(pa.array(rows)), matrix[rows])
            new = self._rng.standard_normal((len(new_ids), matrix.shape[1]), np.float32)
            new /= np.linalg.norm(new, axis=1, keepdims=True)
            yield vector_table(new_ids.combine_chunks(), new)

        write(f"vectors_{name}", parts())

    def _communities(self, ids: pa.Array, write: Write) -> None:
        """Write communities and reports; those of the changed entities on the finest level are written again."""
        communities, reports = (self._snapshot.table(name) for name in ("communities", "reports"))
        lists = communities["entity_ids"].combine_chunks()
        hits = pc.is_in(lists.flatten(), ids).to_numpy(zero_copy_only=False)
        owners = np.repeat(np.arange(len(lists)), lists.value_lengths().to_numpy())[hits]
        touched = np.zeros(len(lists), np.bool_)
        touched[owners] = True
        flags = pa.array(touched & np.array(communities["is_leaf"]))
        own_ids = communities["community_id"].filter(flags).combine_chunks()
        write("communities", _slices(communities))
        again = pc.is_in(reports["community_id"], own_ids)
        rows = reports.filter(again)
        at = rows.schema.get_field_index("summary")
        texts = pc.binary_join_element_wise(rows["summary"], "Changed.", " ")
        write("reports", _parts(reports, again, rows.set_column(at, rows.schema.field(at), texts)))


def _parts(table: pa.Table, gone: Any, more: pa.Table) -> Iterator[pa.Table]:
    yield from _slices(table.filter(pc.invert(gone)))
    yield more


def _slices(table: pa.Table) -> Iterator[pa.Table]:
    for first in range(0, table.num_rows, _PART_ROWS):
        yield table.slice(first, _PART_ROWS)


def _renamed(table: pa.Table, key: str) -> pa.Table:
    """Return the rows with other ids, which lie elsewhere in the order."""
    at = table.schema.get_field_index(key)
    return table.set_column(at, table.schema.field(at), pc.ascii_reverse(table[key]))
