"""The files that the documents of a snapshot were read from: an update does not open those that are unchanged.

`read_files.parquet` lies in the folder of a snapshot, beside the files that its manifest lists: it is written again
where an update leaves all documents as they are, and only sizes or times of files have changed.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hirag_dist.core.graph.csr import rows_of
from hirag_dist.errors import StoreError
from hirag_dist.indexing.base import UpdateBase
from hirag_dist.indexing.stages.read import ReadDocuments
from hirag_dist.readers import ReadOptions
from hirag_dist.schemas import DOCUMENTS, READ_FILES
from hirag_dist.storage.layout import read_files_path
from hirag_dist.storage.store import Store
from hirag_dist.types import IntVector

_BoolVector = NDArray[np.bool_]
HELD = pa.schema(
    [READ_FILES.field("name"), *(DOCUMENTS.field(name) for name in ("document_id", "record", "source_ids"))]
)
_COPIES = ("copies", "copy_records", "copy_source_ids")
_OF_FILE = pa.schema([field for field in READ_FILES if field.name not in ("n_documents", *_COPIES)])


@dataclass(frozen=True)
class FilesRead:
    """Files, and the documents that were read from each.

    Attributes:
        rows: READ_FILES without `n_documents` and what is about copies.
        held: HELD: places of the documents, copies too, with what the owner calls the document there.
    """

    rows: pa.Table
    held: pa.Table

    def __add__(self, other: FilesRead) -> FilesRead:
        return FilesRead(pa.concat_tables([self.rows, other.rows]), pa.concat_tables([self.held, other.held]))


NO_FILES = FilesRead(pa.Table.from_batches([], _OF_FILE), pa.Table.from_batches([], HELD))


@dataclass(frozen=True)
class UnchangedFiles:
    """Files of INPUT that need not be opened.

    Attributes:
        is_unread: (n_sources,) whether a file of SOURCES is one of them.
        documents: rows of the base's documents that were read from them.
    """

    is_unread: _BoolVector
    files: FilesRead
    documents: IntVector


def reading_key(options: ReadOptions) -> str:
    """Return a hash of everything apart from a file itself that decides which documents are read from it."""
    hashed = json.dumps([ReadDocuments.version, dataclasses.asdict(options)], sort_keys=True, default=repr)
    return hashlib.sha256(hashed.encode()).hexdigest()[:16]


def files_of(sources: pa.Table, reading: str, whole: _BoolVector, held: pa.Table) -> FilesRead:
    """Return the files that were read, `whole` where that was without a dead letter."""
    columns = {name: sources[name] for name in ("size_bytes", "modified", "etag", "format", "compression")}
    columns |= {"name": sources["shown"], "reading": pa.array([reading]).take(pa.array(np.zeros(len(whole), np.int64)))}
    rows = pa.table([*(columns[name] for name in _OF_FILE.names[:-1]), pa.array(whole)], schema=_OF_FILE)
    return FilesRead(rows, held.cast(HELD))


def files_of_kept(held: pa.Table) -> FilesRead:
    """Return files to be read again: those of HELD, which an index keeps although they were not read."""
    names = pc.unique(held["name"])
    empty = {name: pa.array([""]).take(pa.array(np.zeros(len(names), np.int64))) for name in _OF_FILE.names}
    zeros = np.zeros(len(names), np.int64)
    rows = empty | {"name": names, "size_bytes": pa.array(zeros), "is_whole": pa.array(zeros > 0)}
    return FilesRead(pa.table([rows[name] for name in _OF_FILE.names], schema=_OF_FILE), held)


def held_places(base: UpdateBase) -> pa.Table:
    """Return HELD of all documents of a base: of each its own place, and those of its copies."""
    return _HeldDocuments(base).places


def unchanged_files(base: UpdateBase, sources: pa.Table, reading: str) -> UnchangedFiles:
    """Return the files that are as they were when the base's documents were read from them.

    A document of the base stands for all files with its text: where one of them has changed or is gone, the others are
    read again. So is a file from which the base lacks a document.
    """
    held = _HeldDocuments(base)
    now = files_of(sources, reading, _is_alone(sources["shown"]), NO_FILES.held).rows
    places = rows_of(held.rows["name"], now["name"])
    is_same = held.is_complete & _is_same(held.rows, now, places)
    is_unread = is_same & ~held.sharing(held.is_unknown | held.of_any(~is_same))
    chosen = np.zeros(len(now), bool)
    chosen[places[is_unread]] = True
    return UnchangedFiles(chosen, held.files(is_unread), np.flatnonzero(held.of_any(is_unread)))


def files_beside(base: UpdateBase, now: FilesRead, *, is_whole: bool) -> FilesRead:
    """Return the files of the base that an update did not list.

    Those that share a document with a listed one are to be read again: the document may have been taken from either. So
    are those of which the index has more or fewer documents than were read from them.

    Args:
        now: files that it listed.
        is_whole: whether the base has of each document all that would be read now: the same fields of metadata.
    """
    held = _HeldDocuments(base)
    is_listed = rows_of(held.rows["name"], now.rows["name"]) >= 0
    shared = held.of_any(is_listed) | pc.is_in(held.ids, value_set=now.held["document_id"].combine_chunks()).to_numpy()
    return held.files(~is_listed, held.is_complete & ~held.sharing(shared) & is_whole)


def places_of(held: pa.Table) -> Iterator[tuple[str, int]]:
    """Return the (URI, record) of each row of HELD."""
    return zip(held["name"].to_pylist(), held["record"].to_pylist(), strict=True)


def file_table(files: FilesRead, documents: pa.Table) -> pa.Table:
    """Return READ_FILES, sorted by name.

    A file of which a document is gone from the index is to be read again, and is left out where all of them are. Files
    of one name are one row, and are read each time.

    Args:
        documents: `document_id`, `uri` and `record` of the documents of the index.
    """
    order = pc.sort_indices(files.rows["name"])
    names = files.rows["name"].take(order)
    is_first = np.ones(len(names), bool)
    is_first[1:] = pc.not_equal(names[1:], names[:-1]).to_numpy()
    rows = files.rows.take(order).filter(pa.array(is_first)).combine_chunks()
    is_whole = rows["is_whole"].to_numpy() & _is_alone(names)[is_first]
    file = rows_of(files.held["name"], rows["name"])
    document = rows_of(files.held["document_id"], documents["document_id"])
    is_left, n_rows = document >= 0, rows.num_rows
    n_held, n_left = (np.bincount(file[part], minlength=n_rows) for part in (slice(None), is_left))
    held = files.held.filter(pa.array(is_left))
    file, document = file[is_left], document[is_left]
    own = documents.take(pa.array(document))
    is_own = pc.and_(pc.equal(own["uri"], held["name"]), pc.equal(own["record"], held["record"])).to_numpy()
    copied = np.lexsort((held["record"].to_numpy(), document, file))
    copied = copied[np.isin(document, document[~is_own])[copied]]
    offsets = pa.array(np.concatenate([[0], np.cumsum(np.bincount(file[copied], minlength=n_rows))]), pa.int32())
    columns = [*(rows[name] for name in _OF_FILE.names[:-1]), pa.array(is_whole & (n_held == n_left))]
    columns.append(pa.array(_documents_of_file(file, document, n_rows)))
    for name, of_copy in zip(_COPIES, HELD.names[1:], strict=True):
        values = held[of_copy].take(pa.array(copied)).combine_chunks()
        columns.append(pa.ListArray.from_arrays(offsets, values, type=READ_FILES.field(name).type))
    return pa.table(columns, schema=READ_FILES).filter(pa.array((n_held == 0) | (n_left > 0)))


def load_read_files(store: Store, snapshot_id: str) -> pa.Table:
    """Return READ_FILES of a snapshot; no row where it has none, or they are damaged."""
    path = read_files_path(snapshot_id)
    with suppress(StoreError, pa.ArrowException, ValueError, KeyError):
        if store.exists(path):
            return store.read_table(path).cast(READ_FILES).combine_chunks()
    return READ_FILES.empty_table()


class _HeldDocuments:
    """READ_FILES of a base, and which of its documents were read from which file, as pairs of rows.

    Attributes:
        places: HELD of them, copies too.
        is_unknown: (n_documents,) whether a document is named after a file which is not known.
        is_complete: (n_files,) whether all of a file was read, and the base has all its documents.
    """

    def __init__(self, base: UpdateBase) -> None:
        self.rows = load_read_files(base.snapshot.store, base.snapshot_id)
        own = base.table("documents", ["uri", "document_id", "record", "source_ids"]).rename_columns(HELD.names)
        self.ids = own["document_id"]
        self.is_unknown: _BoolVector = rows_of(own["name"], self.rows["name"]) < 0
        self.places = _with_copies(own.cast(HELD), self.rows)
        files = rows_of(self.places["name"], self.rows["name"])
        self._known = np.flatnonzero(files >= 0)
        self._files = files[self._known]
        self._documents = rows_of(self.places["document_id"], self.ids)[self._known]
        n_held = _documents_of_file(self._files, self._documents, len(self.rows))
        is_whole = self.rows["is_whole"].to_numpy()
        self.is_complete: _BoolVector = is_whole & (n_held == self.rows["n_documents"].to_numpy())

    def of_any(self, is_file: _BoolVector) -> _BoolVector:
        """Return the documents, as a mask, of some files."""
        found = np.zeros(len(self.ids), bool)
        found[self._documents[is_file[self._files]]] = True
        return found

    def sharing(self, is_document: _BoolVector) -> _BoolVector:
        """Return the files, as a mask, with any of some documents."""
        found = np.zeros(len(self.rows), bool)
        found[self._files[is_document[self._documents]]] = True
        return found

    def files(self, is_file: _BoolVector, is_kept: _BoolVector | None = None) -> FilesRead:
        """Return some of the files; those that are not in `is_kept`, where that is given, are to be read again."""
        rows = self.rows.select(_OF_FILE.names)
        if is_kept is not None:
            whole = pa.array(self.rows["is_whole"].to_numpy() & is_kept)
            rows = rows.set_column(len(_OF_FILE) - 1, _OF_FILE.field("is_whole"), whole)
        held = self.places.take(pa.array(self._known[is_file[self._files]]))
        return FilesRead(rows.filter(pa.array(is_file)), held)


def _with_copies(own: pa.Table, files: pa.Table) -> pa.Table:
    """Return HELD of documents, of those with copies all places.

    Args:
        own: HELD of the documents, each at its own place with all its source ids.
    """
    copies, *others = (files[name].combine_chunks() for name in _COPIES)
    names = files["name"].take(pc.list_parent_indices(copies))
    held = pa.table([names, *map(pc.list_flatten, (copies, *others))], schema=HELD)
    held = held.filter(pc.is_in(held["document_id"], value_set=own["document_id"].combine_chunks()))
    is_copied = pc.is_in(own["document_id"], value_set=held["document_id"].combine_chunks())
    return pa.concat_tables([own.filter(pc.invert(is_copied)), held])


def _documents_of_file(files: IntVector, documents: IntVector, n_files: int) -> IntVector:
    """Return (n_files,) the number of distinct documents of each file."""
    n_documents = int(documents.max(initial=0)) + 1
    return np.bincount(np.unique(files * n_documents + documents) // n_documents, minlength=n_files)


def _is_same(before: pa.Table, now: pa.Table, places: IntVector) -> _BoolVector:
    """Return whether files are as they were, and were read and are to be read whole.

    Args:
        before, now: READ_FILES, or without `n_documents` and what is about copies.
        places: (n_before,) row of each file in `now`, −1 where it is not there.
    """
    there = np.flatnonzero(places >= 0)
    old, new = before.take(pa.array(there)), now.take(pa.array(places[there]))
    has_tags = pc.and_(pc.not_equal(old["etag"], ""), pc.not_equal(new["etag"], ""))
    is_at = pc.and_(pc.equal(old["modified"], new["modified"]), pc.not_equal(new["modified"], ""))
    same = pc.if_else(has_tags, pc.equal(old["etag"], new["etag"]), is_at)
    for name in ("size_bytes", "format", "reading"):
        same = pc.and_(same, pc.equal(old[name], new[name]))
    same = pc.and_(same, pc.equal(pc.fill_null(old["compression"], ""), pc.fill_null(new["compression"], "")))
    found = np.zeros(len(places), bool)
    found[there] = pc.and_(same, pc.and_(old["is_whole"], new["is_whole"])).to_numpy()
    return found


def _is_alone(names: pa.ChunkedArray) -> _BoolVector:
    """Return (n,) whether a name is there once."""
    if not len(names):
        return np.zeros(0, bool)
    numbers = names.combine_chunks().dictionary_encode().indices.to_numpy()
    alone: _BoolVector = np.bincount(numbers)[numbers] == 1
    return alone
