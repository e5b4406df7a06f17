"""Documents and chunks of a folder → DOCUMENTS and CHUNKS, each chunk at its place in its document's text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from hirag_dist.core.text.ids import chunk_id, content_id, document_id
from hirag_dist.core.text.normalize import count_noun, one_line, shorten
from hirag_dist.interop.importers.model import SourceChunk, SourceDocument, SourceGraph
from hirag_dist.schemas import CHUNKS, DOCUMENTS

_TITLE_CHARS = 80
_METADATA_LINE = re.compile(r"[A-Za-z_][\w -]*: [^\n]*\n")


@dataclass(frozen=True, slots=True)
class ChunkPlacement:
    """The tables, the id of each of the folder's chunks by its key there, and the properties of documents by id."""

    documents: pa.Table
    chunks: pa.Table
    chunk_ids: Mapping[str, str]
    properties: Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class _Span:
    start: int
    end: int
    exact: bool


def place(source: SourceGraph, count_tokens: Callable[[str], int]) -> ChunkPlacement:
    """Return documents and chunks as tables; what could not be kept as it was goes to `source.left_out`.

    Equal texts with the same labels are one document. A chunk's text is looked for in its document, from the start of
    the chunk before it on, then from the beginning; where it is not found the whole document is its span and the chunk
    keeps its text.
    A chunk of a document that is not there becomes a document of its own; where documents carry labels it stays without
    one, as does a chunk of several documents with different labels of which none holds its text: its access labels are
    unknown, and only callers without a label restriction reach it. Texts that the folder does not hold are empty: such
    chunks keep their span, so that a source can be cited by its place; their vector is zero.
    """
    documents: dict[str, dict[str, Any]] = {}
    properties: dict[str, Mapping[str, Any]] = {}
    by_key: dict[str, list[dict[str, Any]]] = {}  # several only where the folder names them alike
    for document in source.documents:
        row = _document_row(document)
        first = documents.setdefault(row["document_id"], row)
        if document.properties:
            properties.setdefault(row["document_id"], document.properties)
        if first is not row:
            first["source_ids"] = list(dict.fromkeys([*first["source_ids"], *row["source_ids"]]))
            source.left_out.append((f"document {document.key}", f"its text is that of document {first['uri']}"))
        by_key.setdefault(document.key, []).append(first)
    placed: dict[str, dict[str, Any]] = {}
    ids: dict[str, str] = {}
    last: dict[str, int] = {}  # where in each document the chunk before began
    for chunk in source.chunks:
        chunk, home = _at_home(chunk, by_key, documents, source)
        span = _span_of(chunk, home, last.get(home["document_id"], -1))
        row = _chunk_row(chunk, home, span, count_tokens)
        if span.exact:
            last[home["document_id"]] = span.start
        else:
            reason = f"its text is not found in document {home['uri']}: the whole document stands for its place"
            source.left_out.append((f"place of chunk {chunk.key}", reason))
        ids[chunk.key] = row["chunk_id"]
        if placed.setdefault(row["chunk_id"], row) is not row:
            source.left_out.append((f"chunk {chunk.key}", f"it is the same text of {home['uri']} as another chunk"))
    _note_missing_texts(source)
    rows = [documents[own] for own in sorted(documents)]
    return ChunkPlacement(pa.Table.from_pylist(rows, DOCUMENTS), _chunk_table(placed), ids, properties)


def _document_row(document: SourceDocument) -> dict[str, Any]:
    text = document.text or ""
    own = document_id(text, document.labels) if text else content_id("document without text", document.key)
    first_line = next((line for line in text.splitlines() if line.strip()), "")
    title = one_line(document.title) or shorten(one_line(first_line), _TITLE_CHARS) or document.key
    return {
        "document_id": own,
        "uri": document.uri or document.key,
        "record": document.record,
        "title": title,
        "source_ids": list(document.source_ids or (document.key,)),
        "labels": sorted(set(document.labels)),
        "n_chars": len(text),
        "text": text,
    }


def _at_home(
    chunk: SourceChunk,
    by_key: dict[str, list[dict[str, Any]]],
    documents: dict[str, dict[str, Any]],
    source: SourceGraph,
) -> tuple[SourceChunk, dict[str, Any]]:
    """Return the document that a chunk is from: the first that holds its text where it names several."""
    homes = [home for key in chunk.document_keys for home in by_key.get(key, ())]
    sure = next((home for home in homes if chunk.text and chunk.text in home["text"]), None)
    missing = [key for key in chunk.document_keys if key not in by_key]
    if sure is None and homes and not (source.has_labels and (missing or _labels_differ(homes))):
        sure = homes[0]
    if sure is not None:
        return chunk, sure
    what, named = f"document of chunk {chunk.key}", ", ".join(chunk.document_keys) or "not named"
    row = _document_row(SourceDocument(chunk.key, chunk.text))
    chunk = replace(chunk, start=None, end=None)
    if not source.has_labels:
        source.left_out.append((what, f"it is not in the folder ({named}): the chunk is a document of its own"))
        return chunk, documents.setdefault(row["document_id"], row)
    why = "they carry different labels" if homes and not missing else "it is not in the folder"
    source.left_out.append((what, f"{why} ({named}): the chunk is in reach of no caller with labels"))
    return chunk, row | {"document_id": content_id("unknown document of chunk", chunk.key)}


def _labels_differ(documents: Sequence[Mapping[str, Any]]) -> bool:
    return any(document["labels"] != documents[0]["labels"] for document in documents)


def _span_of(chunk: SourceChunk, home: Mapping[str, Any], before: int) -> _Span:
    text: str = home["text"]
    if chunk.start is not None and chunk.end is not None and 0 <= chunk.start <= chunk.end <= home["n_chars"]:
        given = _Span(chunk.start, chunk.end, True)
        if not text or chunk.text is None or text[chunk.start : chunk.end] == chunk.text:
            return given
    if chunk.text:
        # a token cut within a character leaves U+FFFD at the edge of a chunk
        forms = (form for text in _without_metadata(chunk.text) for form in (text, text.strip("\ufffd")))
        for wanted in dict.fromkeys(forms):
            at = text.find(wanted, before + 1) if wanted else -1
            if at < 0 and wanted:
                at = text.find(wanted)
            if at >= 0:
                return _Span(at, at + len(wanted), True)
    return _Span(0, home["n_chars"], False)


def _without_metadata(text: str) -> Iterator[str]:
    r"""Yield a chunk, then without the lines `name: value` before it, which GraphRAG puts there (`prepend_metadata`).

    >>> list(_without_metadata("title: tides.txt.\nThe tide is high."))
    ['title: tides.txt.\nThe tide is high.', 'The tide is high.']
    """
    yield text
    while line := _METADATA_LINE.match(text):
        text = text[line.end() :]
        yield text


def _chunk_row(
    chunk: SourceChunk, home: Mapping[str, Any], span: _Span, count_tokens: Callable[[str], int]
) -> dict[str, Any]:
    document = home["document_id"]
    if span.exact:
        text = home["text"][span.start : span.end] or chunk.text or ""
        own = chunk_id(document, span.start, span.end, text)
    else:
        text = chunk.text or ""
        own = content_id("chunk", document, str(span.start), str(span.end), text or chunk.key)
    return {
        "chunk_id": own,
        "document_id": document,
        "position": 0,
        "start": span.start,
        "end": span.end,
        "n_tokens": count_tokens(text) if text else chunk.n_tokens,
        "text": text,
    }


def _chunk_table(placed: Mapping[str, dict[str, Any]]) -> pa.Table:
    rows = sorted(placed.values(), key=lambda row: (row["document_id"], row["start"], row["end"], row["chunk_id"]))
    for at, row in enumerate(rows):
        first = at == 0 or rows[at - 1]["document_id"] != row["document_id"]
        row["position"] = 0 if first else rows[at - 1]["position"] + 1
    return pa.Table.from_pylist(rows, CHUNKS)


def _note_missing_texts(source: SourceGraph) -> None:
    for sort, missing in (
        ("document", sum(not document.text for document in source.documents)),
        ("chunk", sum(not chunk.text for chunk in source.chunks)),
    ):
        if missing:
            source.left_out.append((f"text of {count_noun(missing, sort)}", "the folder does not hold it; it is empty"))
