"""The documents of an index, for `hirag-dist status`."""

from __future__ import annotations

import csv
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from hirag_dist.application.document_bill import (
    KINDS,
    BillShare,
    DocumentBill,
    document_bill,
    folders,
    grouped,
    metadata_values,
)
from hirag_dist.cli._output import emit, out, table
from hirag_dist.cli._update_state import missing_line
from hirag_dist.core.text.normalize import count_noun
from hirag_dist.llm.usage import dollars
from hirag_dist.storage.snapshot.documents import DocumentContent, IndexedDocument, document_content, list_documents
from hirag_dist.storage.snapshot.reader import Snapshot

_SHOWN = 100  # documents of a list, and entities of a document
_EXCERPT_CHARS = 60


def show_documents(snapshot: Snapshot, sources: Sequence[str], json: bool) -> None:
    """Print the documents of an index with the numbers of their chunks, entities, relations and dead letters.

    Args:
        sources: Patterns that a document's path has to match; all documents where there is none.
    """
    found = list_documents(snapshot, tuple(sources))
    if json:
        manifest = snapshot.manifest
        listed = [asdict(each) for each in found]
        emit({"snapshot": manifest.snapshot_id, "documents": listed, "missing_reports": manifest.missing_reports})
        return
    columns = ["id", "path", "title", "chunks", "tokens", "entities", "relations", "dead letters"]
    if any(each.metadata for each in found):
        columns.append("metadata")
    rows = [
        (
            each.document_id,
            _path(each),
            each.title,
            each.n_chunks,
            each.n_tokens,
            each.n_entities,
            each.n_relations,
            each.n_dead_letters,
            ", ".join(f"{name}: {_shown(value)}" for name, value in each.metadata.items()),
        )[: len(columns)]
        for each in found[:_SHOWN]
    ]
    out.print(table(count_noun(len(found), "document"), columns, rows, right=(0, 3, 4, 5, 6, 7), spare=(2, 4, 6)))
    if len(found) > _SHOWN:
        out.print(f"and {len(found) - _SHOWN:,} more; --source GLOB selects, --json lists all.")
    if snapshot.manifest.missing_reports:
        out.print(missing_line(snapshot.manifest.missing_reports))


def show_document(snapshot: Snapshot, document: str, json: bool) -> None:
    """Print the chunks, entities and dead letters of one document.

    Args:
        document: Its id, its owner's id of it, or its path.
    """
    found = document_content(snapshot, document)
    if json:
        letters = [dict(zip(("stage", "unit_id", "reason"), each, strict=True)) for each in found.dead_letters]
        emit(asdict(found) | {"dead_letters": letters})
        return
    _print(found)


def _print(found: DocumentContent) -> None:
    document = found.document
    title = f"  {document.title}" if document.title and document.title != document.uri else ""
    out.print(f"{document.document_id}  {_path(document)}{title}", markup=False)
    if document.source_ids:
        out.print(f"source ids: {', '.join(document.source_ids)}", markup=False)
    if document.labels:
        out.print(f"labels: {', '.join(document.labels)}", markup=False)
    for name, value in document.metadata.items():
        out.print(f"{name}: {_shown(value)}", markup=False)
    rows = [
        (
            each.chunk_id,
            f"{each.start}-{each.end}",
            " – ".join(dict.fromkeys(place.display for place in (each.places[:1] + each.places[-1:]))),
            each.n_tokens,
            each.n_entities,
            _excerpt(each.text),
        )
        for each in found.chunks
    ]
    columns = ["chunk", "characters", "place", "tokens", "entities", "text"]
    out.print(table(count_noun(len(rows), "chunk"), columns, rows, right=(0, 3, 4)))
    named = [(each.name, each.type, each.n_chunks, each.n_chunks_of_index) for each in found.entities[:_SHOWN]]
    columns = ["entity", "type", "chunks here", "in the index"]
    out.print(table(count_noun(len(found.entities), "entity", "entities"), columns, named, right=(2, 3)))
    if len(found.entities) > _SHOWN:
        out.print(f"and {len(found.entities) - _SHOWN:,} more; --json lists all.")
    if found.dead_letters:
        out.print(table("Dead letters", ["stage", "chunk", "reason"], found.dead_letters))


def _path(document: IndexedDocument) -> str:
    """Return the path of a document, with the position of its record in a file of many."""
    return f"{document.uri} #{document.record}" if document.record else document.uri


def _shown(value: object) -> str:
    """Return a value of metadata for a person."""
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _excerpt(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _EXCERPT_CHARS else f"{line[: _EXCERPT_CHARS - 1].rstrip()}…"


_SHOWN_ROWS = 50  # rows of the table
_COLUMNS = ("name", "document_id", "documents", *KINDS, "tokens", "usd")


def show_bill(snapshot: Snapshot, by: str, depth: int, *, as_csv: bool, json: bool) -> None:
    """Print what an index has cost by document or source. The rows add up to the bill.

    Extraction is billed to its document. What documents share (summaries, reports, embeddings) is divided by their
    mentions of entities.

    Args:
        by: `document`, `source` (a folder), or the name of a metadata field.
        depth: Parts of a folder's path that are told apart, for `source`.
    """
    found = document_bill(snapshot)
    rows: Sequence[BillShare] = found.shares
    if by == "source":
        rows = grouped(found, folders(snapshot, depth))
    elif by != "document":
        rows = grouped(found, metadata_values(snapshot, by))
    if as_csv:
        _write_csv(rows)
    elif json:
        total = {"tokens": found.tokens, "calls": found.calls, "usd": found.usd}
        shares = [_values(row) for row in rows]
        emit({"snapshot": snapshot.manifest.snapshot_id, "by": by, "bill": total, "shares": shares})
    else:
        _show(rows, found)


def _values(row: BillShare) -> dict[str, Any]:
    return {name: getattr(row, name) for name in _COLUMNS}


def _write_csv(rows: Sequence[BillShare]) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(_COLUMNS)
    writer.writerows([getattr(row, name) for name in _COLUMNS] for row in rows)


def _show(rows: Sequence[BillShare], bill: DocumentBill) -> None:
    largest = sorted(rows, key=lambda row: -row.tokens)
    shown = [(row.name, *(getattr(row, kind) for kind in KINDS), row.tokens, dollars(row.usd)) for row in largest]
    rest = largest[_SHOWN_ROWS:]
    cells = shown[:_SHOWN_ROWS]
    if rest:
        sums = [sum(getattr(row, kind) for row in rest) for kind in (*KINDS, "tokens")]
        cells.append((f"{len(rest):,} more", *sums, "–"))
    totals = [sum(getattr(row, kind) for row in rows) for kind in KINDS]
    cells.append(("total", *totals, bill.tokens, dollars(bill.usd)))
    columns = ["of", *KINDS, "tokens", "cost"]
    out.print(table("Bill since the index was built from nothing", columns, cells, (1, 2, 3, 4, 5, 6), (4, 2, 3)))
