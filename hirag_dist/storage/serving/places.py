"""Serving files of positions in originals, where a snapshot has some: numbers by row, texts by run of equal rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hirag_dist.core.retrieval.places import (
    StoredPlace,
    address,
    character_place,
    is_record_file,
    places_between,
    record_place,
)
from hirag_dist.storage import layout
from hirag_dist.storage.serving.column_arrays import Batches, Create, Save, numbers, rows_of_column
from hirag_dist.storage.serving.mmap_files import ServingFiles
from hirag_dist.storage.serving.text_columns import text_schema, write_texts
from hirag_dist.types import Place

TEXTS: Final = "places.arrow"
RECORDS: Final = "document_records"
_NAMES: Final = ("kind", "page_label", "section", "anchor")
_SCHEMA: Final = text_schema(_NAMES)
_BOX_BYTES = 8


def write_places(batches: Batches, create: Create, save: Save, document_ids: pa.Array) -> None:
    """Write the files of places, where the snapshot has some, and records of documents, where files hold several."""
    if any(is_record_file(uri) for batch in batches("documents", ["uri"]) for uri in batch.column(0).to_pylist()):
        save(RECORDS, numbers(batches, "documents", "record", np.int32))
    documents = rows_of_column(batches, layout.PLACES, "document_id", document_ids)
    if not len(documents):
        return
    counts = np.bincount(documents, minlength=len(document_ids))
    save("place_indptr", np.concatenate([[0], np.cumsum(counts)]).astype(np.int64))
    spans = [numbers(batches, layout.PLACES, name, np.uint32) for name in ("start", "end")]
    save("place_spans", np.column_stack(spans))
    save("place_pages", numbers(batches, layout.PLACES, "page", np.int32))
    save("place_rows", numbers(batches, layout.PLACES, "row", np.int32))
    boxes = [batch.column(0) for batch in batches(layout.PLACES, ["boxes"])]
    sizes = np.concatenate([pc.binary_length(part).to_numpy(zero_copy_only=False) for part in boxes])
    save("place_boxes_indptr", np.concatenate([[0], np.cumsum(sizes // _BOX_BYTES)]).astype(np.int64))
    save("place_boxes", np.concatenate([_numbers(part) for part in boxes]))
    runs: list[NDArray[np.bool_]] = []
    with create(TEXTS) as file:
        write_texts(file, _SCHEMA, _first_of_runs(batches, runs))
    save("place_texts", (np.cumsum(np.concatenate(runs)) - 1).astype(np.int32))


def _numbers(boxes: pa.Array) -> NDArray[np.uint16]:
    """Return (n_boxes, 4) numbers of a column of boxes."""
    _, offsets, data = boxes.buffers()
    if data is None:
        return np.zeros((0, 4), np.uint16)
    first, last = np.frombuffer(offsets, np.int32)[[boxes.offset, boxes.offset + len(boxes)]].tolist()
    return np.frombuffer(data, "<u2", (last - first) // 2, first).reshape(-1, 4)


def _first_of_runs(batches: Batches, runs: list[NDArray[np.bool_]]) -> Iterator[pa.RecordBatch]:
    """Yield the texts of the first row of each run of equal ones.

    Args:
        runs: to which (n_rows,) of each batch are added: whether a run begins.
    """
    before: tuple[str, ...] | None = None
    for batch in batches(layout.PLACES, _NAMES):
        if not batch.num_rows:
            continue
        begins = np.zeros(batch.num_rows, np.bool_)
        for column in batch.columns:
            begins[1:] |= pc.not_equal(column.slice(1), column.slice(0, batch.num_rows - 1)).to_numpy(
                zero_copy_only=False
            )
        begins[0] = tuple(column[0].as_py() for column in batch.columns) != before
        before = tuple(column[-1].as_py() for column in batch.columns)
        runs.append(begins)
        yield batch.filter(pa.array(begins))


class MappedPlaces:
    """The places of one snapshot, mapped.

    Attributes:
        source_url: address under which documents with a relative path are served; empty for none.
    """

    def __init__(self, files: ServingFiles, read_records: Callable[[], NDArray[np.int32]]) -> None:
        """Map the files.

        Args:
            read_records: returns the record of each document, for a snapshot whose files lack them.
        """
        self.source_url = ""
        self._read_records = read_records
        self._records: NDArray[np.int32] | None = files.array(RECORDS) if files.has(RECORDS) else None
        self._has_places = files.has("place_indptr")
        if self._has_places:
            names = ("indptr", "spans", "pages", "rows", "boxes_indptr", "boxes", "texts")
            arrays = {name: files.array(f"place_{name}") for name in names}
            self._indptr, self._spans = arrays["indptr"], arrays["spans"]
            self._pages, self._rows = arrays["pages"], arrays["rows"]
            self._box_indptr, self._boxes, self._runs = arrays["boxes_indptr"], arrays["boxes"], arrays["texts"]
            self._texts = files.texts(TEXTS)

    def between(
        self, document: int, uri: str, start: int, end: int, text: str, *, numbered: bool = True
    ) -> tuple[Place, ...]:
        """Return the places of a stretch of a document, such as a chunk; none where the snapshot has none.

        Args:
            start, end: characters of the document.
            numbered: whether the number of a record in its file is known to the caller: it counts those before it.
        """
        if document >= 0 and is_record_file(uri):
            if not numbered:
                return ()
            return (record_place(address(uri, self.source_url), self._record(document), start, end),)
        stored = self._stored(document, start, end, joined=True)
        return places_between(stored, address(uri, self.source_url), start, end, text) if stored else ()

    def quoted(
        self, document: int, uri: str, start: int, end: int, text: str, *, numbered: bool = True
    ) -> tuple[Place, ...]:
        """Return the places of a quotation, with boxes of its lines; at least one, with its characters.

        The arguments are those of `between`.
        """
        if numbered and document >= 0 and is_record_file(uri):
            return (record_place(address(uri, self.source_url), self._record(document), start, end),)
        uri = address(uri, self.source_url)
        found = places_between(self._stored(document, start, end), uri, start, end, text, exact=True)
        return found or (character_place(uri, start, end, text),)

    def _record(self, document: int) -> int:
        if self._records is None:
            self._records = self._read_records()
        return int(self._records[document])

    def _stored(self, document: int, start: int, end: int, *, joined: bool = False) -> list[StoredPlace]:
        """Return the rows of a document that overlap a stretch.

        Args:
            joined: rows of the same texts and page as one, followed by the last where rows are numbered.
        """
        if not self._has_places or document < 0:
            return []
        first, last = self._indptr[document : document + 2].tolist()
        spans = self._spans[first:last]
        low = first + int(np.searchsorted(spans[:, 1], start, "right"))
        high = first + int(np.searchsorted(spans[:, 0], end, "left"))
        if low >= high:
            return []
        runs, pages = self._runs[low:high], self._pages[low:high]
        begins = np.ones(high - low, np.bool_)
        if joined:
            begins[1:] = (runs[1:] != runs[:-1]) | (pages[1:] != pages[:-1])
        heads = np.flatnonzero(begins).tolist()
        found = []
        for head, stop in zip(heads, [*heads[1:], high - low], strict=True):
            found.append(self._place(low + head, low + stop))
            if stop > head + 1 and self._rows[low + stop - 1]:
                found.append(replace(self._place(low + stop - 1, low + stop), boxes=()))
        return found

    def _place(self, first: int, stop: int) -> StoredPlace:
        """Return rows as one, with the texts, page and row number of the first."""
        run = int(self._runs[first])
        kind, label, section, anchor = (self._texts.value(name, run) for name in _NAMES)
        boxes = self._boxes[self._box_indptr[first] : self._box_indptr[stop]].tolist()
        start, end = int(self._spans[first, 0]), int(self._spans[stop - 1, 1])
        return StoredPlace(
            start, end, kind, int(self._pages[first]), label, section, anchor, int(self._rows[first]), boxes
        )
