"""Documents of the current snapshot that a removal selects."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow.compute as pc

from hirag_dist.indexing.update.documents import DocumentSelection, selected_documents
from hirag_dist.storage.snapshot.reader import open_snapshot
from hirag_dist.storage.store import Store


@dataclass(frozen=True, slots=True)
class SelectedDocument:
    """One document that a removal selects."""

    document_id: str
    uri: str
    title: str


@dataclass(frozen=True, slots=True)
class SelectedDocuments:
    """Documents of an index that a removal selects.

    Attributes:
        documents: by id.
        absent: ids of the selection that the index does not have.
        n_documents: of the index.
    """

    documents: tuple[SelectedDocument, ...]
    absent: tuple[str, ...]
    n_documents: int


def select_documents(index_uri: str, selection: DocumentSelection, allow_absent: bool = False) -> SelectedDocuments:
    """Return the documents of an index that a removal selects.

    Args:
        allow_absent: list ids that the index does not have, instead of refusing them.

    Raises:
        SnapshotNotFound: nothing is published.
        InputError: the index has no document that an id or pattern names.
    """
    table = open_snapshot(Store(index_uri)).table("documents", ["document_id", "uri", "title", "source_ids"])
    absent: tuple[str, ...] = ()
    if allow_absent:
        known = {*table["document_id"].to_pylist(), *pc.list_flatten(table["source_ids"]).to_pylist()}
        absent = tuple(own for own in selection.ids if own not in known)
        selection = DocumentSelection(tuple(own for own in selection.ids if own in known), selection.sources)
    rows = selected_documents(table, selection).sort_by("document_id").to_pylist()
    found = tuple(SelectedDocument(row["document_id"], row["uri"], row["title"]) for row in rows)
    return SelectedDocuments(found, absent, table.num_rows)
