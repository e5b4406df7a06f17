"""Tables that look-ups need in addition to a mapped snapshot, each computed when it is first used."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from hirag_dist.storage.serving.mapped_files import MappedFiles
from hirag_dist.storage.serving.text_columns import TextColumns
from hirag_dist.storage.snapshot.reader import Snapshot
from hirag_dist.types import IntVector

T = TypeVar("T")
_MAX_TEXTS = 8  # cached, for callers that read a document part by part
_MAX_TEXT_CHARS = 4 << 20  # of a cached text


class LookupTables:
    """Rows by id, chunks by document, and texts of documents. Usable from several threads."""

    def __init__(self, files: MappedFiles, snapshot: Snapshot) -> None:
        """Prepare; nothing is read. The texts of documents are in a table of the snapshot."""
        self._files = files
        self._snapshot = snapshot
        self._ids = {
            "entities": (files.entities, "entity_id"),
            "chunks": (files.chunks, "chunk_id"),
            "documents": (files.documents, "document_id"),
            "communities": (files.community_texts, "community_id"),
        }
        self._made: dict[str, Any] = {}
        self._texts: dict[int, str] = {}
        self._lock = threading.Lock()

    def row(self, table: str, own_id: str) -> int | None:
        """Return the row of an id in entities, chunks, documents or communities, None where it is unknown."""
        return self._once(table, partial(IdLookup, *self._ids[table])).row(own_id)

    @property
    def summarises(self) -> NDArray[np.bool_]:
        """Return, for each relation, whether it joins a member to its summary entity."""
        return self._once("summarises", partial(self._files.relations.equal_to, "kind", "summary"))

    def chunks_of(self, document: int) -> IntVector:
        """Return the chunks of a document, by position."""
        order, documents = self._once("chunks of documents", self._chunks_by_document)
        first, last = (int(np.searchsorted(documents, document, side)) for side in ("left", "right"))
        rows = order[first:last]
        in_order: IntVector = rows[np.lexsort((rows, self._files.spans[rows, 0]))]
        return in_order

    def text(self, document: int) -> str:
        """Return the text of a document.

        Raises:
            StoreError: the table cannot be read.
        """
        with self._lock:
            if document in self._texts:
                return self._texts[document]
        text = self._snapshot.document_text(document)
        if len(text) <= _MAX_TEXT_CHARS:
            with self._lock:
                while len(self._texts) >= _MAX_TEXTS:
                    self._texts.pop(next(iter(self._texts)))
                self._texts[document] = text
        return text

    def _chunks_by_document(self) -> tuple[IntVector, NDArray[np.int32]]:
        order = np.argsort(self._files.chunk_documents, kind="stable")
        return order, self._files.chunk_documents[order]

    def _once(self, name: str, make: Callable[[], T]) -> T:
        if name not in self._made:
            with self._lock:
                if name not in self._made:
                    self._made[name] = make()
        made: T = self._made[name]
        return made


_FACTOR = 0x9E3779B97F4A7C15
_EDGE = 32  # bytes at each end of an id that are hashed; ids of this package have 24


class IdLookup:
    """Look-up of rows by id.

    Memory: 12 bytes a row. A million ids take about a quarter of a second.
    """

    def __init__(self, columns: TextColumns, name: str) -> None:
        """Hash a column of ids, which are unique."""
        self._columns = columns
        self._name = name
        parts = [_hashes(offsets, data) for offsets, data in columns.batches(name)]
        hashes = np.concatenate([np.zeros(0, np.uint64), *parts])
        order = np.argsort(hashes, kind="stable")
        self._hashes = hashes[order]
        self._rows = order.astype(np.int32)

    def row(self, own: str) -> int | None:
        """Return the row of an id, None where it is unknown."""
        try:
            data = np.frombuffer(own.encode(), np.uint8)
        except UnicodeEncodeError:  # a lone surrogate
            return None
        wanted = _hashes(np.array([0, len(data)]), data)
        first, last = (int(np.searchsorted(self._hashes, wanted, side)[0]) for side in ("left", "right"))
        rows = self._rows[first:last].tolist()
        return next((row for row in rows if self._columns.value(self._name, row) == own), None)


def _hashes(offsets: NDArray[np.int64], data: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """Return a hash of each value, of its length and the bytes at its ends."""
    first, last = offsets[:-1], offsets[1:]
    lengths = last - first
    found = lengths.astype(np.uint64)
    factor = np.uint64(_FACTOR)
    for at in range(min(int(lengths.max(initial=0)), _EDGE)):
        rows = slice(None) if at < lengths.min() else np.flatnonzero(lengths > at)
        for places in (first[rows] + at, last[rows] - 1 - at):
            found[rows] = (found[rows] ^ data[places]) * factor  # uint64 wraps around
            found[rows] ^= found[rows] >> np.uint64(29)
    return found
