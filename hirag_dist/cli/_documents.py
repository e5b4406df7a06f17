"""The documents of an index, for `hirag-dist status`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from hirag_dist.cli._output import emit, out, table
from hirag_dist.cli._update_state import missing_line
from hirag_dist.core.text.normalize import count_noun
from hirag_dist.storage.snapshot.documents import IndexedDocument, list_documents
from hirag_dist.storage.snapshot.reader import Snapshot

_SHOWN = 100


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


def _path(document: IndexedDocument) -> str:
    """Return the path of a document, with the position of its record in a file of many."""
    return f"{document.uri} #{document.record}" if document.record else document.uri


def _shown(value: object) -> str:
    """Return a value of metadata for a person."""
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
