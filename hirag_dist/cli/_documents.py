"""The documents of an index, for `hirag-dist status`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from hirag_dist.cli._output import emit, out, table
from hirag_dist.cli._update_state import missing_line
from hirag_dist.core.text.normalize import count_noun
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
