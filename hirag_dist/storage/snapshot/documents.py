"""Documents of a snapshot, and the chunks, entities, relations and dead letters that come from each."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hirag_dist import schemas
from hirag_dist.core.retrieval.places import StoredPlace, is_record_file, places_between, record_place
from hirag_dist.errors import InputError
from hirag_dist.storage.layout import DOCUMENT_METADATA, PLACES
from hirag_dist.storage.snapshot.reader import Snapshot
from hirag_dist.types import Place

_COUNTS = ("n_chunks", "n_tokens", "n_entities", "n_relations", "n_dead_letters")
_COLUMNS = ("document_id", "uri", "record", "title", "source_ids", "labels", "n_chars")


@dataclass(frozen=True, slots=True)
class IndexedDocument:
    """One document and the counts of what comes from it.

    Attributes:
        record: position in a file of many records, else 0.
        source_ids: what its owner calls it.
        n_entities, n_relations: of layer 0, stated by at least one of its chunks; other documents may state them too.
        n_dead_letters: of its chunks.
        metadata: by declared field; a date is an ISO 8601 text.
    """

    document_id: str
    uri: str
    record: int
    title: str
    source_ids: tuple[str, ...]
    labels: tuple[str, ...]
    n_chars: int
    n_chunks: int
    n_tokens: int
    n_entities: int
    n_relations: int
    n_dead_letters: int
    metadata: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class IndexedChunk:
    """One chunk of a document; `start` and `end` are characters of the document's text, half open.

    Attributes:
        places: its pages, sections or rows in the original, without areas of pages.
    """

    chunk_id: str
    start: int
    end: int
    n_tokens: int
    text: str
    n_entities: int
    places: tuple[Place, ...] = ()


@dataclass(frozen=True, slots=True)
class DocumentEntity:
    """One entity that chunks of a document state: in how many of them, and in how many of the index."""

    entity_id: str
    name: str
    type: str
    n_chunks: int
    n_chunks_of_index: int


@dataclass(frozen=True, slots=True)
class DocumentContent:
    """Chunks, entities and dead letters of one document.

    Attributes:
        chunks: in their order.
        entities: those of most of its chunks first.
        dead_letters: (stage, chunk id, reason).
    """

    document: IndexedDocument
    chunks: tuple[IndexedChunk, ...]
    entities: tuple[DocumentEntity, ...]
    dead_letters: tuple[tuple[str, str, str], ...]


def list_documents(snapshot: Snapshot, patterns: tuple[str, ...] = ()) -> list[IndexedDocument]:
    """Return the documents of a snapshot by path and record.

    Args:
        patterns: globs of paths, one of which a document must match; empty for all documents.
    """
    table = snapshot.table("documents", _COLUMNS)
    if patterns:
        matches = [any(fnmatchcase(uri, each) for each in patterns) for uri in table["uri"].to_pylist()]
        table = table.filter(pa.array(matches, pa.bool_()))
    return _documents(snapshot, table)


def document_content(snapshot: Snapshot, name: str) -> DocumentContent:
    """Return the chunks, entities and dead letters of one document.

    Args:
        name: its id, its owner's id of it, or its path.

    Raises:
        InputError: no document is named so, or several are.
    """
    table = snapshot.table("documents", _COLUMNS)
    chosen = [
        name in (row["document_id"], row["uri"]) or name in row["source_ids"]
        for row in table.select(["document_id", "uri", "source_ids"]).to_pylist()
    ]
    found = table.filter(pa.array(chosen, pa.bool_()))
    if found.num_rows == 0:
        raise InputError(f"no document of the index is named {name}; `hirag-dist status --documents` lists them")
    if found.num_rows > 1:
        ids = ", ".join(found["document_id"].to_pylist()[:5])
        raise InputError(f"{found.num_rows} documents are named {name}: give the id of one, such as {ids}")
    (document,) = _documents(snapshot, found)
    chunks = snapshot.table("chunks")
    own = chunks.filter(pc.equal(chunks["document_id"], document.document_id)).sort_by("position")
    entities = snapshot.table("entities", ["entity_id", "name", "type", "chunk_ids"])
    of_entity, chunk_ids = _mentions(entities)
    stated = pc.is_in(chunk_ids, own["chunk_id"].combine_chunks()).to_numpy(zero_copy_only=False)
    per_chunk = Counter(chunk_ids.filter(pa.array(stated)).to_pylist())
    counts = np.bincount(of_entity[stated], minlength=entities.num_rows)
    totals = np.bincount(of_entity, minlength=entities.num_rows)
    rows = np.flatnonzero(counts)
    named = entities.select(["entity_id", "name", "type"]).take(rows).to_pylist()
    found_entities = [
        DocumentEntity(row["entity_id"], row["name"], row["type"], int(counts[at]), int(totals[at]))
        for at, row in zip(rows.tolist(), named, strict=True)
    ]
    rejects = snapshot.table("rejects", ["stage", "unit_id", "reason"])
    stored = _stored_places(snapshot, document.document_id)
    letters = rejects.filter(pc.is_in(rejects["unit_id"], own["chunk_id"].combine_chunks())).to_pylist()
    return DocumentContent(
        document,
        tuple(
            IndexedChunk(
                row["chunk_id"],
                row["start"],
                row["end"],
                row["n_tokens"],
                row["text"],
                per_chunk[row["chunk_id"]],
                _places(document, stored, row),
            )
            for row in own.to_pylist()
        ),
        tuple(sorted(found_entities, key=lambda each: (-each.n_chunks, each.name, each.entity_id))),
        tuple((row["stage"], row["unit_id"], row["reason"]) for row in letters),
    )


def _places(document: IndexedDocument, stored: Sequence[StoredPlace], chunk: Mapping[str, Any]) -> tuple[Place, ...]:
    """Return the places of a chunk.

    Args:
        stored: of its document, in the order of the text.
        chunk: row of CHUNKS.
    """
    start, end = chunk["start"], chunk["end"]
    if is_record_file(document.uri):
        return (record_place(document.uri, document.record, start, end),)
    own = [place for place in stored if place.start < end and place.end > start]
    return places_between(own, document.uri, start, end, chunk["text"])


def _stored_places(snapshot: Snapshot, document_id: str) -> list[StoredPlace]:
    """Return the places of a document, in the order of the text, without areas of pages."""
    columns = [name for name in schemas.PLACES.names if name not in ("document_id", "boxes")]
    table = snapshot.table(PLACES, ["document_id", *columns])
    own = table.filter(pc.equal(table["document_id"], document_id)).select(columns)
    return [StoredPlace(**row) for row in own.to_pylist()]


def _documents(snapshot: Snapshot, table: pa.Table) -> list[IndexedDocument]:
    """Return rows of `documents` with their counts, by path and record."""
    table = table.sort_by([("uri", "ascending"), ("record", "ascending")])
    chunks = snapshot.table("chunks", ["chunk_id", "document_id", "n_tokens"])
    document_of = _row_of(chunks["document_id"], table["document_id"])
    n_tokens = np.bincount(
        document_of + 1, weights=chunks["n_tokens"].to_numpy().astype(np.float64), minlength=table.num_rows + 1
    )
    chunk_ids = chunks["chunk_id"].combine_chunks()
    counts = {
        "n_chunks": np.bincount(document_of + 1, minlength=table.num_rows + 1)[1:],
        "n_tokens": n_tokens[1:].astype(np.int64),
        "n_dead_letters": _count(
            document_of, _row_of(snapshot.table("rejects", ["unit_id"])["unit_id"], chunk_ids), table
        ),
    }
    for name, source in (("n_entities", "entities"), ("n_relations", "relations")):
        unit_of, stated_by = _mentions(snapshot.table(source, ["chunk_ids"]))
        pairs = _pairs(document_of[_row_of(stated_by, chunk_ids)], unit_of)
        counts[name] = np.bincount(pairs, minlength=table.num_rows)
    stored = snapshot.table(DOCUMENT_METADATA)
    metadata = dict(zip(stored["document_id"].to_pylist(), stored["metadata"].to_pylist(), strict=True))
    numbers = zip(*(counts[name].tolist() for name in _COUNTS), strict=True)
    return [
        IndexedDocument(
            row["document_id"],
            row["uri"],
            row["record"],
            row["title"],
            tuple(row["source_ids"]),
            tuple(row["labels"]),
            row["n_chars"],
            **dict(zip(_COUNTS, own, strict=True)),
            metadata=json.loads(metadata.get(row["document_id"], "{}")),
        )
        for row, own in zip(table.to_pylist(), numbers, strict=True)
    ]


def _mentions(table: pa.Table) -> tuple[NDArray[np.int64], pa.Array]:
    """Return (row, chunk id) of each chunk that a row of a table names."""
    lists = table["chunk_ids"].combine_chunks()
    return pc.list_parent_indices(lists).to_numpy(zero_copy_only=False).astype(np.int64), pc.list_flatten(lists)


def _row_of(values: pa.Array | pa.ChunkedArray, among: pa.Array | pa.ChunkedArray) -> NDArray[np.int64]:
    """Return the position of each value, -1 where it is absent."""
    found = pc.fill_null(pc.index_in(values, value_set=among), -1)
    rows: NDArray[np.int64] = found.to_numpy(zero_copy_only=False).astype(np.int64)
    return rows


def _count(document_of: NDArray[np.int64], chunks: NDArray[np.int64], table: pa.Table) -> NDArray[np.int64]:
    """Return how many of the chunks each document has; chunks are rows, -1 for none."""
    documents = document_of[chunks[chunks >= 0]]
    return np.bincount(documents[documents >= 0], minlength=table.num_rows)


def _pairs(documents: NDArray[np.int64], units: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the document of each distinct (document, unit), without those of no document."""
    known = documents >= 0
    document: NDArray[np.int64]
    document, _ = np.unique(np.stack([documents[known], units[known]]), axis=1)
    return document
