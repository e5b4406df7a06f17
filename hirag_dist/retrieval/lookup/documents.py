"""A document: its text and its chunks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hirag_dist.errors import NotFound
from hirag_dist.retrieval.lookup.names import short
from hirag_dist.retrieval.lookup.tables import LookupTables
from hirag_dist.retrieval.view.index import MappedIndex
from hirag_dist.types import DocumentPart


def find_document(view: MappedIndex | None, tables: LookupTables, wanted: str) -> tuple[MappedIndex, int]:
    """Return the view and the row of a document in it.

    Args:
        view: the index as the caller may see it; None where no document is visible.
        tables: of the index.
        wanted: id of the document, or of a chunk of it.

    Raises:
        NotFound: there is none that the caller may see.
    """
    row = None if view is None else _row(tables, wanted, view)
    if view is None or row is None or not _is_visible(view, tables, row):
        raise NotFound(
            f"document_id: none that this caller may see has the id {short(wanted)}; a search shows the ids of "
            "documents and chunks"
        )
    return view, row


def document_part(view: MappedIndex, tables: LookupTables, row: int, start: int, max_chars: int) -> DocumentPart:
    """Return a part of a document's text.

    Args:
        view: the index as the caller may see it.
        tables: of the index.
        row: of the document, which is visible.
        start: first character, at least 0.
        max_chars: limit.

    Raises:
        StoreError: the text cannot be read.
    """
    text = tables.text(row)
    part = text[start : start + max_chars]
    chunks = tables.chunks_of(row)
    first, last = view.files.spans[chunks].T
    inside = chunks[(first < start + max(len(part), 1)) & (last > start)]
    documents = view.files.documents
    found = view.sources([(at, 0.0) for at in (*inside.tolist(), *chunks[:1].tolist())])  # the last for the metadata
    return DocumentPart(
        document_id=documents.value("document_id", row),
        title=documents.value("title", row),
        uri=documents.value("uri", row),
        text=part,
        start=start,
        total_chars=len(text),
        chunks=tuple(replace(chunk, text="") for chunk in found[: len(inside)]),
        metadata=found[-1].metadata if found else {},
    )


def _row(tables: LookupTables, wanted: str, view: MappedIndex) -> int | None:
    row = tables.documents.row(wanted)
    if row is not None:
        return row
    chunk = tables.chunks.row(wanted)
    return None if chunk is None or view.chunk_documents[chunk] < 0 else int(view.chunk_documents[chunk])


def _is_visible(view: MappedIndex, tables: LookupTables, row: int) -> bool:
    """Return whether the caller may see a document. Its chunks have its labels; without chunks they are not known."""
    if view.visible_chunks is None:
        return True
    chunks = tables.chunks_of(row)
    return bool(len(chunks)) and bool(np.all(view.visible_chunks[chunks]))
