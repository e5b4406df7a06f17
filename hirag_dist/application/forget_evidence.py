"""Documents to be removed or forgotten: their choice, the record of an unfinished removal, and their traces.

Removed documents are recognised by ids, hashes of their chunks, and passages that no other document has.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hirag_dist.application.stored_replies import offline_context
from hirag_dist.composition.models import cut_as_index
from hirag_dist.config.model import Config
from hirag_dist.core.text.ids import entity_id, text_key, text_keys
from hirag_dist.core.text.terms import Joints, Passage, Passages, shingles, words
from hirag_dist.core.vectors import Vectors, by_row
from hirag_dist.indexing.base import UpdateBase
from hirag_dist.indexing.changed_documents import DocumentSelection, selected_documents
from hirag_dist.indexing.context import ResolvedModels
from hirag_dist.indexing.documents import chunked, read_input
from hirag_dist.indexing.read_files import held_places, places_of
from hirag_dist.llm.replay import ReadOnlyLedger, StoredVectors
from hirag_dist.schemas import CHUNKS
from hirag_dist.storage.layout import CLAIMS, FORGET, MANIFEST, MENTIONS, RELATION_MENTIONS, snapshot_path
from hirag_dist.storage.snapshot.reader import Snapshot, current_id, open_snapshot
from hirag_dist.storage.store import Store
from hirag_dist.types import IntVector


@dataclass(frozen=True, slots=True)
class PendingForget:
    """A forgetting that is not finished. It holds hashes and ids of snapshots, and no text.

    Attributes:
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
    store: Store, documents: Iterable[str], chunks: Iterable[str], snapshots: Iterable[str]
) -> PendingForget:
    """Put documents on the record, in addition to those that are there; what was done is to be done again for them.

    The caller holds the build lock.
    """
    before = pending_forget(store)
    known = before or PendingForget((), (), (), datetime.now(UTC).isoformat(timespec="seconds"))
    new = PendingForget(
        tuple(sorted({*known.documents, *documents})),
        tuple(sorted({*known.chunks, *chunks})),
        tuple(sorted({*known.snapshots, *snapshots})),
        known.since,
    )
    if before is not None and (new.documents, new.chunks) == (before.documents, before.chunks):
        new = replace(before, snapshots=new.snapshots)
    return write_pending(store, new)


def write_pending(store: Store, pending: PendingForget) -> PendingForget:
    """Write the record; return it."""
    store.write_json(FORGET, asdict(pending))
    return pending


@dataclass(frozen=True, slots=True)
class SelectedDocument:
    """One document that a removal selects.

    Attributes:
        record: position in a file of many records, else 0.
        source_ids: ids that its owner gives it, at all places.
        copies: (URI, record) of the other places with its text and labels, which are removed with it.
    """

    document_id: str
    uri: str
    record: int
    title: str
    source_ids: Sequence[str] = ()
    copies: Sequence[tuple[str, int]] = ()


@dataclass(frozen=True, slots=True)
class SelectedDocuments:
    """Documents of an index that a removal selects, and ids that it names and the index does not have."""

    documents: tuple[SelectedDocument, ...]
    absent: tuple[str, ...]
    n_documents: int


def select_documents(index_uri: str, selection: DocumentSelection, allow_absent: bool = False) -> SelectedDocuments:
    """Return the documents of an index that a removal selects.

    Args:
        allow_absent: list ids that the index does not have, instead of refusing them.

    Raises:
        InputError: the index has no document that an id or pattern names.
    """
    columns = ["document_id", "uri", "record", "title", "source_ids"]
    snapshot = open_snapshot(Store(index_uri))
    table, held = snapshot.table("documents", columns), held_places(UpdateBase(snapshot))
    absent: tuple[str, ...] = ()
    if allow_absent:
        known = {*table["document_id"].to_pylist(), *pc.list_flatten(table["source_ids"]).to_pylist()}
        absent = tuple(own for own in selection.ids if own not in known)
        selection = DocumentSelection(tuple(own for own in selection.ids if own in known), selection.sources)
    by_place = [("uri", "ascending"), ("record", "ascending")]
    rows = selected_documents(table, selection, held).sort_by(by_place).to_pylist()
    places: dict[str, set[tuple[str, int]]] = {}
    for own, place in zip(held["document_id"].to_pylist(), places_of(held), strict=True):
        places.setdefault(own, set()).add(place)
    found = []
    for row in rows:
        copies = places.get(row["document_id"], set()) - {(row["uri"], row["record"])}
        found.append(SelectedDocument(**row | {"copies": sorted(copies)}))
    return SelectedDocuments(tuple(found), absent, table.num_rows)


def read_given(config: Config, store: Store, inputs: Sequence[str]) -> tuple[pa.Table, pa.Table]:
    """Return DOCUMENTS and CHUNKS of files, with the ids that a build gives them."""
    models, vectors = ResolvedModels({}, {}, "", 1, ""), StoredVectors("", 1, None)
    with offline_context(cut_as_index(config, store), models, ReadOnlyLedger(store), vectors) as context:
        read = chunked(context, read_input(context, inputs))
        return context.datasets.read(read.documents), context.datasets.read(read.chunks)


_MIN_NAME_CHARS = 4
_DOCUMENT_COLUMNS = ("document_id", "uri", "record", "title", "source_ids", "labels")


@dataclass(frozen=True, slots=True)
class RemovedDocuments:
    """Traces of removed documents, with everything that the documents of the current snapshot share with them left out.

    Runs of words that arise where statements of these documents are joined are left out too.

    Attributes:
        unknown: ids that were asked for and that no snapshot knows.
        chunks: CHUNKS of the documents, of all their versions.
        text_keys: of chunks whose text no chunk of the current snapshot has.
        values: strings that stand for them alone: ids of documents, chunks, entities and claims, paths, source ids.
        passages: runs of words, of their texts and of what was extracted from them.
        names: of entities that no other document names.
        vectors: float32 rows, as bytes.
        snapshots: that hold a version of one of the documents, or a chunk with one of the text keys.
    """

    ids: frozenset[str]
    unknown: frozenset[str]
    chunks: pa.Table
    text_keys: frozenset[int]
    values: frozenset[str]
    passages: Passages
    names: Passages
    vectors: frozenset[bytes]
    snapshots: tuple[str, ...]

    @property
    def own_chunks(self) -> pa.Table:
        """CHUNKS whose text the current snapshot does not have."""
        kept = [text_key(own) in self.text_keys for own in self.chunks["chunk_id"].to_pylist()]
        return self.chunks.filter(pa.array(kept, pa.bool_()))


@dataclass(slots=True)
class _Traces:
    """Traces while the snapshots are read."""

    chunks: dict[str, dict[str, Any]] = field(default_factory=dict)
    values: set[str] = field(default_factory=set)
    passages: Passages = field(default_factory=Passages)
    names: dict[str, str] = field(default_factory=dict)  # name key → name
    vectors: set[bytes] = field(default_factory=set)
    snapshots: set[str] = field(default_factory=set)


def find_removed(
    store: Store,
    ids: Sequence[str],
    given: tuple[pa.Table, pa.Table] | None = None,
    chunk_ids: Sequence[str] = (),
) -> RemovedDocuments:
    """Return the traces of documents, also of those that the current snapshot has.

    A document with the same place (uri and record) in an older snapshot is a version of it, unless the current snapshot
    has that version.

    Args:
        ids: of documents, or their owner's source ids.
        given: DOCUMENTS and CHUNKS of documents that no snapshot may have.
        chunk_ids: of their chunks, where these are known from a record.

    Raises:
        SnapshotError: a snapshot is damaged: then nothing can be proved.
    """
    snapshots = {name: open_snapshot(store, name) for name in finished_snapshots(store)}
    current = current_id(store)
    wanted = set(ids) | (set() if given is None else set(given[0]["document_id"].to_pylist()))
    documents: dict[str, list[dict[str, Any]]] = {
        name: snapshot.table("documents", _DOCUMENT_COLUMNS).to_pylist() for name, snapshot in snapshots.items()
    }
    if given is not None:
        documents[""] = given[0].select(_DOCUMENT_COLUMNS).to_pylist()
    removed, known = _versions(documents, wanted, documents.get(current or "", []))
    remaining = [row for row in documents.get(current or "", []) if row["document_id"] not in removed]
    traces = _Traces()
    for name, snapshot in snapshots.items():
        if any(row["document_id"] in removed for row in documents[name]):
            traces.snapshots.add(name)
            _add_snapshot(traces, snapshot, removed)
    if given is not None:
        _add_chunks(traces, given[1])
    for rows in documents.values():
        for row in rows:
            if row["document_id"] in removed:
                traces.values |= {row["document_id"], row["uri"], *row["source_ids"], *row["labels"]}
                traces.passages.add(shingles(row["title"]))
    unknown = wanted - known
    traces.values |= {*unknown, *chunk_ids}
    keys = {text_key(own) for own in (*traces.chunks, *chunk_ids)}
    return _own(traces, keys, frozenset(removed), frozenset(unknown), snapshots, current, remaining)


def finished_snapshots(store: Store) -> list[str]:
    """Return the ids of the snapshots that have a manifest."""
    return [name for name in store.names("snapshots") if store.exists(f"{snapshot_path(name)}/{MANIFEST}")]


def _versions(
    documents: dict[str, list[dict[str, Any]]], wanted: set[str], current: list[dict[str, Any]]
) -> tuple[set[str], set[str]]:
    """Return the ids of the documents that are meant, and those of `wanted` that name one."""
    removed: set[str] = set()
    known: set[str] = set()
    places: set[tuple[str, int]] = set()
    for rows in documents.values():
        for row in rows:
            if named := wanted & {row["document_id"], *row["source_ids"]}:
                known |= named
                removed.add(row["document_id"])
                places.add((row["uri"], row["record"]))
    served = {row["document_id"] for row in current}
    for rows in documents.values():
        removed |= {
            row["document_id"]
            for row in rows
            if row["uri"] and (row["uri"], row["record"]) in places and row["document_id"] not in served
        }
    return removed, known


def _add_snapshot(traces: _Traces, snapshot: Snapshot, removed: set[str]) -> None:
    """Add what a snapshot knows of removed documents."""
    chunks = snapshot.table("chunks")
    of_removed = pc.is_in(chunks["document_id"], pa.array(sorted(removed), pa.string()))
    _add_chunks(traces, chunks.filter(of_removed))
    own = pa.array(sorted(traces.chunks), pa.string())
    tables = snapshot.manifest.counts
    if MENTIONS in tables:
        mentions = _rows(snapshot, MENTIONS, ["name_key", "chunk_id", "name", "description"], own)
        traces.names |= dict(zip(mentions["name_key"].to_pylist(), mentions["name"].to_pylist(), strict=True))
        _add_passages(traces, mentions["description"])
        _add_passages(traces, _rows(snapshot, RELATION_MENTIONS, ["chunk_id", "description"], own)["description"])
    if CLAIMS in tables:
        claims = _rows(snapshot, CLAIMS, ["claim_id", "chunk_id", "description"], own)
        traces.values.update(claims["claim_id"].to_pylist())
        _add_passages(traces, claims["description"])
    _add_vectors(traces, snapshot.chunk_vectors, pc.indices_nonzero(of_removed))
    entities = snapshot.table("entities", ["entity_id", "layer", "name", "chunk_ids"])
    rows = [
        row
        for row, found in enumerate(entities["chunk_ids"].to_pylist())
        if found and all(chunk in traces.chunks for chunk in found)
    ]
    _add_vectors(traces, snapshot.entity_vectors, rows)
    own_entities = entities.take(pa.array(rows, pa.int64()))  # there may be none
    traces.values.update(own_entities["entity_id"].to_pylist())
    if MENTIONS not in tables:
        traces.names |= {name: name for name in own_entities["name"].to_pylist()}


def _rows(snapshot: Snapshot, table: str, columns: Sequence[str], chunk_ids: pa.Array) -> pa.Table:
    found = snapshot.table(table, columns)
    return found.filter(pc.is_in(found["chunk_id"], chunk_ids))


def _add_chunks(traces: _Traces, chunks: pa.Table) -> None:
    for row in chunks.cast(CHUNKS).to_pylist():
        traces.chunks[row["chunk_id"]] = row
        traces.passages.add(shingles(row["text"]))
    traces.values |= traces.chunks.keys()


def _add_passages(traces: _Traces, texts: pa.ChunkedArray) -> None:
    for text in texts.unique().to_pylist():
        traces.passages.add(shingles(text))


def _add_vectors(traces: _Traces, vectors: Any, rows: Iterable[Any]) -> None:
    for row in rows:
        vector = np.ascontiguousarray(vectors[int(row)], "<f4")
        if vector.any():
            traces.vectors.add(vector.tobytes())


def _own(
    traces: _Traces,
    keys: set[int],
    removed: frozenset[str],
    unknown: frozenset[str],
    snapshots: dict[str, Snapshot],
    current: str | None,
    remaining: list[dict[str, Any]],
) -> RemovedDocuments:
    """Return the traces without those that the remaining documents of the current snapshot share."""
    names = _OwnNames(traces.names.values())
    traces.values -= {value for row in remaining for value in (row["uri"], *row["source_ids"], *row["labels"])}
    traces.values.discard("")
    if current is not None and current in snapshots:
        served = snapshots[current]
        chunks = served.table("chunks", ["chunk_id", "document_id"])
        for own, document in zip(chunks["chunk_id"].to_pylist(), chunks["document_id"].to_pylist(), strict=True):
            if document not in removed:
                keys.discard(text_key(own))
        joints = Joints(traces.passages)
        for text in _remaining_texts(served, removed):
            traces.passages.discard_within(text)
            names.discard_within(text)
            joints.add(text)
        _share_layer_0(traces, names, joints, served, removed)
        traces.passages.discard(joints.joined())
    holding = {name for name, snapshot in snapshots.items() if name in traces.snapshots or _has_key(snapshot, keys)}
    rows = [traces.chunks[own] for own in sorted(traces.chunks)]
    return RemovedDocuments(
        removed,
        unknown,
        pa.Table.from_pylist(rows, CHUNKS),
        frozenset(keys),
        frozenset(traces.values),
        traces.passages,
        names.passages,
        frozenset(traces.vectors),
        tuple(sorted(holding)),
    )


class _OwnNames:
    """Names that remaining documents do not have, to be searched for in texts.

    A name of three or more words is left out too where a remaining document has it but for its first or last word: an
    extracted name may begin with a word of its sentence ("And Ada Lovelace"), and a title may put the same word there.
    """

    def __init__(self, names: Iterable[str]) -> None:
        said = [tuple(words(name)) for name in names if len(name) >= _MIN_NAME_CHARS]
        self.passages = Passages(said)
        self._names_of: dict[Passage, set[Passage]] = {}
        for name in said:
            for core in (name[1:], name[:-1]) if len(name) > 2 else ():
                self._names_of.setdefault(core, set()).add(name)
        self._cores = Passages(self._names_of)

    def discard_within(self, text: str) -> None:
        """Leave out the names that a remaining text holds."""
        self.passages.discard_within(text)
        for core in self._cores.within(text):
            self.passages.discard(self._names_of[core])


def _remaining_texts(served: Snapshot, removed: frozenset[str]) -> Iterator[str]:
    columns = ["document_id", "text", "title", "uri"]
    for piece in served.pieces("documents", columns):
        documents, *texts = (piece[name].to_pylist() for name in columns)
        for document, *said in zip(documents, *texts, strict=True):
            if document not in removed:
                yield from said


def _has_key(snapshot: Snapshot, keys: set[int]) -> bool:
    return bool(np.isin(text_keys(snapshot.table("chunks", ["chunk_id"])["chunk_id"]), sorted(keys)).any())


def _share_layer_0(
    traces: _Traces, names: _OwnNames, joints: Joints, served: Snapshot, removed: frozenset[str]
) -> None:
    """Leave out what is extracted from remaining documents too: entities, names, words of descriptions, vectors."""
    chunks = served.table("chunks", ["chunk_id", "document_id"])
    remains = pc.invert(pc.is_in(chunks["document_id"], pa.array(sorted(removed), pa.string())))
    remaining = set(chunks["chunk_id"].filter(remains).to_pylist())
    traces.values -= remaining
    entities = served.table("entities", ["entity_id", "name", "description", "chunk_ids"])
    rows = [
        row for row, found in enumerate(entities["chunk_ids"].to_pylist()) if any(chunk in remaining for chunk in found)
    ]
    stated = entities.take(pa.array(rows, pa.int64()))
    traces.values.difference_update(stated["entity_id"].to_pylist())
    for name in stated["name"].to_pylist():
        names.discard_within(name)
        joints.add(name)
    if MENTIONS in served.manifest.counts:
        mentions = _rows(served, MENTIONS, ["name_key", "chunk_id", "name", "description"], pa.array(sorted(remaining)))
        traces.values.difference_update(entity_id(0, key) for key in mentions["name_key"].unique().to_pylist())
        links = _rows(served, RELATION_MENTIONS, ["chunk_id", "description"], pa.array(sorted(remaining)))
        for text in (*mentions["name"].unique().to_pylist(), *mentions["description"].unique().to_pylist()):
            traces.passages.discard_within(text)
            names.discard_within(text)
            joints.add(text)
        for text in links["description"].unique().to_pylist():
            traces.passages.discard_within(text)
            joints.add(text)
    for vectors, kept in (
        (served.entity_vectors, rows),
        (served.chunk_vectors, pc.indices_nonzero(remains).to_pylist()),
    ):
        shared = np.intersect1d(equal_rows(vectors, traces.vectors), kept)
        traces.vectors -= {np.ascontiguousarray(vectors[row], "<f4").tobytes() for row in shared}


def equal_rows(matrix: Vectors, vectors: Collection[bytes]) -> IntVector:
    """Return the numbers of the rows of (n, dim) that are one of these vectors, float32 as bytes."""
    if not vectors or 0 in matrix.shape:
        return np.zeros(0, np.int64)
    firsts = np.array([np.frombuffer(vector, "<f4", 1)[0] for vector in vectors])
    candidates = np.flatnonzero(np.isin(by_row(matrix, lambda part: part[:, 0]), firsts))
    found = [row for row in candidates if np.ascontiguousarray(matrix[row], "<f4").tobytes() in vectors]
    return np.array(found, np.int64)
