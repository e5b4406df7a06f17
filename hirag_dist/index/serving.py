"""What questions are answered from: flat files, derived from a snapshot's tables, that processes map and share.

Tables are made to be kept and exchanged: compressed, with ids. A question needs single values by row number, at once
and without a copy of its own in every process. So each snapshot carries, beside its tables, `serving-1/`:

  *.arrow   texts and ids by row (`index.texts`)
  *.npy     numbers: layers, ends and weights of relations, who is mentioned where, who belongs to which community

They say nothing that the tables do not say, and are no part of the snapshot's id. Where a snapshot came without them
they are made when it is opened (`index.place`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, BinaryIO, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hirag_dist.core.reports import report_text
from hirag_dist.core.retrieval import invert
from hirag_dist.index.texts import text_schema, write_texts
from hirag_dist.types import IntVector

SERVING: Final = "serving-1"  # the number is that of the format: other formats are other folders

ENTITIES: Final = "entities.arrow"
RELATIONS: Final = "relations.arrow"
CHUNKS: Final = "chunks.arrow"
DOCUMENTS: Final = "documents.arrow"
COMMUNITIES: Final = "communities.arrow"
REPORTS: Final = "reports.arrow"

Batches = Callable[[str, Sequence[str]], Iterator[pa.RecordBatch]]
Create = Callable[[str], AbstractContextManager[BinaryIO]]

_TEXTS: Final = {
    ENTITIES: ("entities", text_schema(["entity_id", "name", "type", "description"], wide=["description"])),
    RELATIONS: ("relations", text_schema(["relation_id", "kind", "description"], wide=["description"])),
    CHUNKS: ("chunks", text_schema(["chunk_id", "document_id", "text"], wide=["text"])),
    DOCUMENTS: ("documents", text_schema(["document_id", "title", "uri"])),
    COMMUNITIES: ("communities", text_schema(["community_id"])),
}
_REPORT_TEXTS: Final = text_schema(["title", "text"], wide=["text"])
ARRAYS: Final = (
    "entity_layers",
    "entity_chunks_indptr",
    "entity_chunks",
    "relation_ends",
    "relation_weights",
    "relation_chunks_indptr",
    "relation_chunks",
    "parallel_of",
    "parallel_indptr",
    "parallel_rows",
    "chunk_documents",
    "chunk_spans",
    "community_levels",
    "community_ratings",
    "community_order",
    "community_reports",
    "community_indptr",
    "community_members",
    "entity_communities_indptr",
    "entity_communities",
)
FILES: Final = (*(f"{name}.npy" for name in ARRAYS), *_TEXTS, REPORTS)
_LOOKED_UP = 1 << 20  # ids at a time: each look-up hashes all ids that there are


def write_serving(batches: Batches, create: Create) -> None:
    """Write every serving file.

    Memory: the ids of entities, chunks and documents, the arrays themselves, and one batch of texts; about 1 GB for a
    million entities and five million relations.

    Args:
        batches: (table, columns) → those columns of a table of the snapshot, in order of rows, a batch at a time.
        create: file name → that file, open for writing.
    """

    def save(name: str, array: NDArray[Any]) -> None:
        with create(f"{name}.npy") as file:
            np.save(file, array, allow_pickle=False)

    for file_name, (table, schema) in _TEXTS.items():
        with create(file_name) as file:
            write_texts(file, schema, batches(table, schema.names))
    chunk_ids = _column(batches, "chunks", "chunk_id", pa.string())
    _save_entities(batches, save, chunk_ids)
    _save_chunks(batches, save)
    entity_ids = _column(batches, "entities", "entity_id", pa.string())
    _save_relations(batches, save, entity_ids, chunk_ids)
    reported = _save_reports(batches, create)
    _save_communities(batches, save, entity_ids, *reported)


Save = Callable[[str, NDArray[Any]], None]


def _save_entities(batches: Batches, save: Save, chunk_ids: pa.Array) -> None:
    save("entity_layers", _numbers(batches, "entities", "layer", np.int32))
    indptr, rows = _lists(batches("entities", ["chunk_ids"]), chunk_ids)
    save("entity_chunks_indptr", indptr)
    save("entity_chunks", rows)


def _save_chunks(batches: Batches, save: Save) -> None:
    documents = _Rows(_column(batches, "documents", "document_id", pa.string()))
    for batch in batches("chunks", ["document_id"]):
        documents.add(batch.column(0))
    save("chunk_documents", documents.found())
    spans = [_numbers(batches, "chunks", name, np.int64) for name in ("start", "end")]
    save("chunk_spans", np.column_stack(spans))


def _save_relations(batches: Batches, save: Save, entity_ids: pa.Array, chunk_ids: pa.Array) -> None:
    columns = []
    for name in ("source_id", "target_id"):
        rows = _Rows(entity_ids)
        for batch in batches("relations", [name]):
            rows.add(batch.column(0))
        columns.append(rows.found())
    ends = np.column_stack(columns)
    weights = _numbers(batches, "relations", "weight", np.float64)
    save("relation_ends", ends)
    save("relation_weights", weights)
    of, parallel_indptr, parallel_rows = parallel_relations(ends, weights)
    save("parallel_of", of)
    save("parallel_indptr", parallel_indptr)
    save("parallel_rows", parallel_rows)
    indptr, rows_of_chunks = _lists(batches("relations", ["chunk_ids"]), chunk_ids)
    save("relation_chunks_indptr", indptr)
    save("relation_chunks", rows_of_chunks)


def parallel_relations(
    ends: NDArray[np.int32], weights: NDArray[np.float64]
) -> tuple[NDArray[np.int32], IntVector, NDArray[np.int32]]:
    """Return the further relations of pairs that have more than one.

    Args:
        ends: (n, 2) entity rows of each relation; −1 where there is no such entity.
        weights: (n,).

    Returns:
        (of, indptr, rows): `of` the relation that the graph has for the pair, which is the heaviest and of equal ones
        the first, ascending; CSR of the others.
    """
    if not len(ends):
        return np.zeros(0, np.int32), np.zeros(1, np.int64), np.zeros(0, np.int32)
    low, high = ends.min(axis=1).astype(np.int64), ends.max(axis=1).astype(np.int64)
    usable = np.flatnonzero((low >= 0) & (low != high))
    pairs = low[usable] * (int(high.max()) + 1) + high[usable]  # one number sorts many times faster than two
    order = usable[np.argsort(pairs, kind="stable")]
    pairs.sort(kind="stable")
    same = pairs[1:] == pairs[:-1]
    several = np.zeros(len(order), np.bool_)
    several[1:] |= same
    several[:-1] |= same
    order, pairs = order[several], pairs[several]
    order = order[np.lexsort((order, -weights[order], pairs))]
    first = np.flatnonzero(np.concatenate([[True], pairs[1:] != pairs[:-1]])) if len(pairs) else pairs
    counts = np.diff(np.append(first, len(order))) - 1
    further = np.ones(len(order), np.bool_)
    further[first] = False
    heads = order[first]
    by_head = np.argsort(heads)
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]]) if len(counts) else counts
    indptr = np.concatenate([[0], np.cumsum(counts[by_head])]).astype(np.int64)
    at = np.repeat(starts[by_head] - indptr[:-1], counts[by_head]) + np.arange(indptr[-1])
    return heads[by_head].astype(np.int32), indptr, order[further][at.astype(np.int64)].astype(np.int32)


def _save_reports(batches: Batches, create: Create) -> tuple[pa.Array, NDArray[np.float64]]:
    """Write the reports as they are read; return their communities' ids and their ratings."""
    columns = ["community_id", "title", "summary", "rating", "findings"]
    ids: list[pa.Array] = []
    ratings: list[float] = []

    def rendered() -> Iterator[pa.RecordBatch]:
        for batch in batches("reports", columns):
            rows = batch.to_pylist()
            ids.append(batch.column(0))
            ratings.extend(row["rating"] for row in rows)
            texts = [[row["title"] for row in rows], [report_text(row) for row in rows]]
            yield pa.record_batch([pa.array(text, pa.large_string()) for text in texts], ["title", "text"])

    with create(REPORTS) as file:
        write_texts(file, _REPORT_TEXTS, rendered())
    return _joined(ids, pa.string()), np.array(ratings, np.float64)


def _save_communities(
    batches: Batches, save: Save, entity_ids: pa.Array, reported: pa.Array, ratings: NDArray[np.float64]
) -> None:
    levels = _numbers(batches, "communities", "level", np.int32)
    ids = _column(batches, "communities", "community_id", pa.string())
    order = np.empty(len(ids), np.int64)
    order[pc.sort_indices(ids).to_numpy()] = np.arange(len(ids))
    reports = _Rows(reported)
    reports.add(ids)
    report_rows = reports.found()
    own_ratings = np.zeros(len(ids), np.float64)
    own_ratings[report_rows >= 0] = ratings[report_rows[report_rows >= 0]]
    indptr, members = _lists(batches("communities", ["entity_ids"]), entity_ids)
    owner = np.repeat(np.arange(len(ids)), np.diff(indptr))
    members = members[np.lexsort((members, owner))]
    save("community_levels", levels)
    save("community_ratings", own_ratings)
    save("community_order", order)
    save("community_reports", report_rows)
    save("community_indptr", indptr)
    save("community_members", members)
    of_indptr, of = invert(indptr, members, levels, len(entity_ids))
    save("entity_communities_indptr", of_indptr)
    save("entity_communities", of)


class _Rows:
    """Row numbers of ids, looked up many at a time."""

    def __init__(self, order: pa.Array) -> None:
        self._order = order
        self._waiting: list[pa.Array] = []
        self._n_waiting = 0
        self._found: list[NDArray[np.int32]] = []

    def add(self, ids: pa.Array) -> None:
        self._waiting.append(ids)
        self._n_waiting += len(ids)
        if self._n_waiting >= _LOOKED_UP:
            self._look_up()

    def found(self) -> NDArray[np.int32]:
        """Return the rows of all ids added, −1 for an unknown one."""
        self._look_up()
        return np.concatenate(self._found)

    def _look_up(self) -> None:
        rows = pc.index_in(_joined(self._waiting, pa.string()), value_set=self._order)
        self._found.append(rows.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int32))
        self._waiting, self._n_waiting = [], 0


def _lists(batches: Iterable[pa.RecordBatch], order: pa.Array) -> tuple[IntVector, NDArray[np.int32]]:
    """Return CSR (indptr, rows) of a column of lists of ids; unknown ids are left out."""
    sizes = [np.zeros(0, np.int64)]
    rows = _Rows(order)
    for batch in batches:
        lists = batch.column(0)
        sizes.append(lists.value_lengths().to_numpy(zero_copy_only=False).astype(np.int64))
        rows.add(lists.flatten())
    found = rows.found()
    whole = np.concatenate([[0], np.cumsum(np.concatenate(sizes))]).astype(np.int64)
    known = np.concatenate([[0], np.cumsum(found >= 0)]).astype(np.int64)
    return known[whole], found[found >= 0]


def _numbers(batches: Batches, table: str, column: str, kind: Any) -> NDArray[Any]:
    parts = [batch.column(0).to_numpy(zero_copy_only=False) for batch in batches(table, [column])]
    return np.concatenate([np.zeros(0, kind), *parts]).astype(kind, copy=False)


def _column(batches: Batches, table: str, column: str, kind: pa.DataType) -> pa.Array:
    return _joined([batch.column(0) for batch in batches(table, [column])], kind)


def _joined(parts: Sequence[pa.Array], kind: pa.DataType) -> pa.Array:
    return pa.concat_arrays(parts) if parts else pa.array([], kind)
