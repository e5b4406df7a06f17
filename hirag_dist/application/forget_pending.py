"""Documents to be removed or forgotten: their choice, and the record of an unfinished removal (forget.json)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc

from hirag_dist.application.stored_replies import offline_context
from hirag_dist.composition.models import cut_as_index
from hirag_dist.config.model import Config
from hirag_dist.indexing.changed_documents import DocumentSelection, selected_documents
from hirag_dist.indexing.context import ResolvedModels
from hirag_dist.indexing.documents import read_documents
from hirag_dist.llm.replay import NoVectors, ReadOnlyLedger
from hirag_dist.storage.layout import FORGET
from hirag_dist.storage.snapshot.reader import open_snapshot
from hirag_dist.storage.store import Store


@dataclass(frozen=True, slots=True)
class PendingForget:
    """A forgetting that is not finished. It holds hashes and ids of snapshots, and no text.

    Attributes:
        documents: ids.
        chunks: ids of their chunks.
        snapshots: that are to be removed.
        since: UTC, ISO 8601.
        replies_dropped, replies_kept: by the purge of the ledger; None while that is not done.
        verified: whether everything but these snapshots was searched and found clean.
        problems: obstacles of the last run, for people.
    """

    documents: tuple[str, ...]
    chunks: tuple[str, ...]
    snapshots: tuple[str, ...]
    since: str
    replies_dropped: int | None = None
    replies_kept: int | None = None
    verified: bool = False
    problems: tuple[str, ...] = ()


def pending_forget(store: Store) -> PendingForget | None:
    """Return the forgetting that is not finished, None where there is none.

    Raises:
        StoreError: the record is damaged.
    """
    if not store.exists(FORGET):
        return None
    record = store.read_json(FORGET)
    listed = {name: tuple(record[name]) for name in ("documents", "chunks", "snapshots", "problems")}
    return PendingForget(**record | listed)


def note_forget(
    store: Store, documents: Iterable[str], chunks: Iterable[str] = (), snapshots: Iterable[str] = ()
) -> PendingForget:
    """Put documents on the record, in addition to those that are there; what was done is to be done again for them.

    The caller holds the build lock.
    """
    before = pending_forget(store)
    new = PendingForget(
        _joined(documents, () if before is None else before.documents),
        _joined(chunks, () if before is None else before.chunks),
        _joined(snapshots, () if before is None else before.snapshots),
        datetime.now(UTC).isoformat(timespec="seconds") if before is None else before.since,
    )
    if before is not None and (new.documents, new.chunks) == (before.documents, before.chunks):
        new = replace(before, snapshots=new.snapshots)
    return write_pending(store, new)


def write_pending(store: Store, pending: PendingForget) -> PendingForget:
    """Write the record; return it."""
    store.write_json(FORGET, asdict(pending))
    return pending


def _joined(more: Iterable[str], known: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted({*known, *more}))


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
        documents: Documents by their ids.
        absent: ids of the selection that the index does not have.
        n_documents: Number of documents of the index.
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


def read_given(config: Config, store: Store, inputs: Sequence[str]) -> tuple[pa.Table, pa.Table]:
    """Return DOCUMENTS and CHUNKS of files, with the ids that a build gives them.

    Args:
        config: decides how files are read and chunked.
        store: the index.
        inputs: files, folders, globs and object-store URIs.

    Raises:
        InputError: there is nothing to read.
    """
    models = ResolvedModels({}, {}, "", 1, "")
    with offline_context(cut_as_index(config, store), models, ReadOnlyLedger(store), NoVectors("", 1)) as context:
        read = read_documents(context, inputs)
        return context.datasets.read(read.documents), context.datasets.read(read.chunks)
