"""The files that the documents of a snapshot were read from: an update does not open those that are unchanged.

`read_files.parquet` lies in the folder of a snapshot, beside the files that its manifest lists: it is written again
where an update leaves all documents as they are, and only sizes or times of files have changed.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
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
HELD = pa.schema([READ_FILES.field("name"), DOCUMENTS.field("document_id")])
_OF_FILE = pa.schema([field for field in READ_FILES if field.name not in ("n_documents", "copies")])


@dataclass(frozen=True)
class FilesRead:
    """Files, and the documents that were read from each.

    Attributes:
        rows: READ_FILES without `n_documents` and `copies`.
        held: HELD: names of the files with the ids of their documents.
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
        files: Files of the base.
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
    """Return the files that were read.

    Args:
        sources: SOURCES.
        reading: `reading_key` of the options.
        whole: (n_sources,) whether all of a file was read, without a dead letter.
        held: HELD.
    """
    columns = {name: sources[name] for name in ("size_bytes", "modified", "etag", "format", "compression")}
    columns |= {"name": sources["shown"], "reading": pa.array([reading]).take(pa.array(np.zeros(len(whole), np.int64)))}
    rows = pa.table([*(columns[name] for name in _OF_FILE.names[:-1]), pa.array(whole)], schema=_OF_FILE)
    return FilesRead(rows, held.cast(HELD))


def files_of_kept(documents: pa.Table) -> FilesRead:
    """Return files to be read again: those of documents that an index keeps although they could not be read.

    Args:
        documents: DOCUMENTS, or their columns `document_id` and `uri`.
    """
    names = pc.unique(documents["uri"])
    empty = {name: pa.array([""]).take(pa.array(np.zeros(len(names), np.int64))) for name in _OF_FILE.names}
    zeros = np.zeros(len(names), np.int64)
    rows = empty | {"name": names, "size_bytes": pa.array(zeros), "is_whole": pa.array(zeros > 0)}
    held = pa.table([documents["uri"], documents["document_id"]], schema=HELD)
    return FilesRead(pa.table([rows[name] for name in _OF_FILE.names], schema=_OF_FILE), held)


def unchanged_files(base: UpdateBase, sources: pa.Table, reading: str) -> UnchangedFiles:
    """Return the files that are as they were when the base's documents were read from them.

    A document of the base stands for all files with its text: where one of them has changed or is gone, the others are
    read again. So is a file from which the base lacks a document.

    Args:
        sources: SOURCES.
        reading: `reading_key` of the options.
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


def file_table(files: FilesRead, documents: pa.Table) -> pa.Table:
    """Return READ_FILES, sorted by name.

    A file of which a document is gone from the index is to be read again, and is left out where all of them are. Files
    of one name are one row, and are read each time.

    Args:
        documents: `document_id` and `uri` of the documents of the index.
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
    pairs = np.unique(file[is_left] * max(documents.num_rows, 1) + document[is_left])
    file, document = np.divmod(pairs, max(documents.num_rows, 1))
    is_copy = pc.not_equal(documents["uri"].take(pa.array(document)), rows["name"].take(pa.array(file))).to_numpy()
    offsets = np.concatenate([[0], np.cumsum(np.bincount(file[is_copy], minlength=n_rows))])
    copied = documents["document_id"].take(pa.array(document[is_copy])).combine_chunks()
    copies = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), copied, type=READ_FILES.field("copies").type)
    columns = [*(rows[name] for name in _OF_FILE.names[:-1]), pa.array(is_whole & (n_held == n_left))]
    columns += [pa.array(np.bincount(file, minlength=n_rows)), copies]
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
        ids: of all documents of the base.
        is_unknown: (n_documents,) whether a document is named after a file which is not known.
        is_complete: (n_files,) whether all of a file was read, and the base has all its documents.
    """

    def __init__(self, base: UpdateBase) -> None:
        self.rows = load_read_files(base.snapshot.store, base.snapshot_id)
        documents = base.table("documents", ["document_id", "uri"])
        self.ids = documents["document_id"]
        own = rows_of(documents["uri"], self.rows["name"])
        self.is_unknown: _BoolVector = own < 0
        copies = self.rows["copies"].combine_chunks()
        copied = rows_of(pa.chunked_array([pc.list_flatten(copies)]), self.ids)
        named = np.flatnonzero(~self.is_unknown)
        files = np.concatenate([own[named], pc.list_parent_indices(copies).to_numpy().astype(np.int64)])
        rows = np.concatenate([named, copied])
        self._files, self._documents = files[rows >= 0], rows[rows >= 0]
        n_held = np.bincount(self._files, minlength=len(self.rows))
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
        """Return some of the files.

        Args:
            is_file: Mask of these files.
            is_kept: Mask of the files that need not be read again; None for all.
        """
        rows = self.rows.select(_OF_FILE.names)
        if is_kept is not None:
            whole = pa.array(self.rows["is_whole"].to_numpy() & is_kept)
            rows = rows.set_column(len(_OF_FILE) - 1, _OF_FILE.field("is_whole"), whole)
        pairs = is_file[self._files]
        names = self.rows["name"].take(pa.array(self._files[pairs]))
        ids = self.ids.take(pa.array(self._documents[pairs]))
        return FilesRead(rows.filter(pa.array(is_file)), pa.table([names, ids], schema=HELD))


def _is_same(before: pa.Table, now: pa.Table, places: IntVector) -> _BoolVector:
    """Return whether files are as they were, and were read and are to be read whole.

    Args:
        before, now: READ_FILES, or without `n_documents` and `copies`.
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
