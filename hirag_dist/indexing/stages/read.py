"""Files → documents, each text once, and their chunks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hirag_dist.core.retrieval.places import METADATA, is_record_file, unit_of
from hirag_dist.core.text.ids import chunk_id, document_id
from hirag_dist.core.text.tokens import TextSpan, chunk_spans
from hirag_dist.execution.dataset import Dataset, TableSet
from hirag_dist.execution.stage import ByKey, ByRows, Services, Split, Tables
from hirag_dist.readers import Document, ReadOptions, SourceFile, Unreadable, read_source
from hirag_dist.schemas import CHUNKS, DOCUMENT_METADATA, DOCUMENTS, PLACES, REJECTS
from hirag_dist.storage.spill import SpillFile, spill_file

SOURCES = pa.schema(
    [
        pa.field("uri", pa.string(), nullable=False),  # where it is read from
        pa.field("shown", pa.string(), nullable=False),  # its name in the index, whatever the folder it lies in
        pa.field("size_bytes", pa.int64(), nullable=False),
        pa.field("format", pa.string(), nullable=False),
        pa.field("compression", pa.string()),
        pa.field("modified", pa.string(), nullable=False),  # so that a changed file is read again
        pa.field("etag", pa.string(), nullable=False),
        pa.field("refusal", pa.string(), nullable=False),  # why it is not read; empty for none
    ]
)


READ_PLACES = pa.schema([DOCUMENTS.field("uri"), DOCUMENTS.field("record"), *PLACES])  # as files are read
_OF_PLACE = [name for name in PLACES.names if name != "document_id"]


READ_METADATA = pa.schema([*(DOCUMENTS.field(name) for name in ("document_id", "uri", "record")), DOCUMENT_METADATA[1]])
_PART_ROWS, _PART_CHARS = 4096, 1 << 24
_HELD_BYTES = 1 << 27


@dataclass(frozen=True)
class ReadDocuments:
    """Files → documents with their metadata and, for whatever could not be read, a reject with its reason."""

    name: ClassVar[str] = "read"
    version: ClassVar[int] = 7
    split: ClassVar[Split] = ByRows(32)

    class Inputs(TableSet):
        sources: Annotated[Dataset, SOURCES]

    class Outputs(TableSet):
        documents: Annotated[Dataset, DOCUMENTS]
        places: Annotated[Dataset, READ_PLACES]
        metadata: Annotated[Dataset, READ_METADATA]
        rejects: Annotated[Dataset, REJECTS]

    options: ReadOptions

    async def run(self, tables: Tables, services: Services) -> Tables:
        """Return the documents in file order, copies too.

        A document without a usable value of a metadata field is kept; a reject with its reason goes with it.
        """
        with ExitStack() as stack:
            schemas = DOCUMENTS, READ_PLACES, READ_METADATA, REJECTS
            documents, places, metadata, rejects = (_Rows(schema, stack) for schema in schemas)
            for row in tables["sources"].to_pylist():
                shown = row.pop("shown")
                source = SourceFile(name=shown, display=shown, **row)
                for found in read_source(source, self.options):
                    if not isinstance(found, Document):
                        rejects.add(_reject(self.name, unit_of_letter(shown, found), found.reason))
                        continue
                    where = unit_of(shown, found.record)
                    document = _document_row(found, shown, where)
                    documents.add(document, len(found.text))
                    own = {name: document[name] for name in ("uri", "record", "document_id")}
                    for place in found.places:
                        places.add(own | {name: getattr(place, name) for name in _OF_PLACE})
                    if self.options.metadata:
                        metadata.add(own | {"metadata": metadata_text(found.metadata)})
                    if found.faults:
                        rejects.add(_reject(METADATA, where, "; ".join(found.faults)))
            tables = {"documents": documents, "places": places, "metadata": metadata, "rejects": rejects}
            return {name: rows.table() for name, rows in tables.items()}


def unit_of_letter(name: str, found: Unreadable) -> str:
    """Return the unit of the dead letter of what could not be read of a file: of the first of several records `#0`."""
    is_first = not found.record and not found.is_file and is_record_file(name)
    return f"{name}#0" if is_first else unit_of(name, found.record)


def metadata_text(values: Mapping[str, Any]) -> str:
    """Return the metadata of a document as JSON that is the same for equal values."""
    return json.dumps(values, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def _reject(stage: str, where: str, reason: str) -> dict[str, Any]:
    return {"stage": stage, "unit_id": where, "reason": reason, "attempts": 1, "request": "", "reply": ""}


def _document_row(found: Document, shown: str, where: str) -> dict[str, Any]:
    return {
        "document_id": document_id(found.text, found.labels),
        "uri": shown,
        "record": found.record,
        "title": found.title,
        "source_ids": [found.source_id or where],
        "labels": sorted(set(found.labels)),
        "n_chars": len(found.text),
        "text": found.text,
    }


class _Rows:
    """Rows of a table, of which few are Python objects at a time, and a bounded part is in memory.

    Python objects take several times as much memory as the rows of a table. The files of a task may hold any amount of
    text, so that of what is read all but the last part lies in a temporary file, mapped.
    """

    def __init__(self, schema: pa.Schema, stack: ExitStack) -> None:
        self._schema = schema
        self._stack = stack
        self._spill: SpillFile | None = None
        self._spilled: list[pa.Table] = []
        self._tables: list[pa.Table] = []
        self._rows: list[dict[str, Any]] = []
        self._chars = 0

    def add(self, row: dict[str, Any], n_chars: int = 0) -> None:
        """Add a row with so many characters of text."""
        self._rows.append(row)
        self._chars += n_chars
        if len(self._rows) >= _PART_ROWS or self._chars >= _PART_CHARS:
            self._close_part()

    def table(self) -> pa.Table:
        """Return all rows."""
        self._close_part()
        return pa.concat_tables(self._spilled + self._tables)

    def _close_part(self) -> None:
        if self._rows or not (self._tables or self._spilled):
            self._tables.append(pa.Table.from_pylist(self._rows, self._schema))
        self._rows, self._chars = [], 0
        if sum(table.nbytes for table in self._tables) > _HELD_BYTES:
            self._spill = self._spill or self._stack.enter_context(spill_file())
            self._spilled.append(self._spill.table(self._tables, self._schema))
            self._tables = []


@dataclass(frozen=True)
class UniqueDocuments:
    """Documents → each text once for each set of labels, under its first name and all its ids; sorted by id.

    The places are those in the file of the first name.
    """

    name: ClassVar[str] = "unique"
    version: ClassVar[int] = 4
    split: ClassVar[Split] = ByKey("document_id", 2000)  # their whole texts

    class Inputs(TableSet):
        documents: Annotated[Dataset, DOCUMENTS]
        places: Annotated[Dataset, READ_PLACES]

    class Outputs(TableSet):
        documents: Annotated[Dataset, DOCUMENTS]
        places: Annotated[Dataset, PLACES]

    async def run(self, tables: Tables, services: Services) -> Tables:
        """Return the distinct documents of this partition."""
        found: dict[str, dict[str, Any]] = {}
        for row in sorted(tables["documents"].to_pylist(), key=lambda item: (item["uri"], item["record"])):
            first = found.setdefault(row["document_id"], row)
            if first is not row:
                first["source_ids"] = sorted({*first["source_ids"], *row["source_ids"]})
        rows = [found[key] for key in sorted(found)]
        documents, places = pa.Table.from_pylist(rows, DOCUMENTS), tables["places"]
        first_rows = pc.index_in(places["document_id"], value_set=documents["document_id"].combine_chunks())
        columns = ("uri", "record")
        is_of_first = [pc.equal(places[name], documents[name].combine_chunks().take(first_rows)) for name in columns]
        kept = places.filter(pc.and_(*is_of_first)).select(PLACES.names)
        by_start = [("document_id", "ascending"), ("start", "ascending")]
        return {"documents": documents, "places": kept.sort_by(by_start)}


@dataclass(frozen=True)
class UniqueMetadata:
    """Metadata of documents → that of each document once, of copies that of the first; sorted by id."""

    name: ClassVar[str] = "unique_metadata"
    version: ClassVar[int] = 1
    split: ClassVar[Split] = ByKey("document_id", 100_000)

    class Inputs(TableSet):
        metadata: Annotated[Dataset, READ_METADATA]

    class Outputs(TableSet):
        metadata: Annotated[Dataset, DOCUMENT_METADATA]

    async def run(self, tables: Tables, services: Services) -> Tables:
        """Return the metadata of the distinct documents of this partition."""
        rows = tables["metadata"].sort_by([(name, "ascending") for name in ("document_id", "uri", "record")])
        ids = rows["document_id"].to_numpy(zero_copy_only=False)
        first = np.concatenate([np.ones(min(len(ids), 1), np.bool_), ids[1:] != ids[:-1]])
        return {"metadata": rows.filter(pa.array(first)).select(DOCUMENT_METADATA.names)}


@dataclass(frozen=True)
class ChunkDocuments:
    """Cut each document into windows of tokens. Paper: §4.1."""

    name: ClassVar[str] = "chunk"
    version: ClassVar[int] = 1
    split: ClassVar[Split] = ByRows(64)

    class Inputs(TableSet):
        documents: Annotated[Dataset, DOCUMENTS]

    class Outputs(TableSet):
        chunks: Annotated[Dataset, CHUNKS]

    tokenizer: str
    size: int
    overlap: int
    method: Literal["sentences", "tokens", "none"]

    async def run(self, tables: Tables, services: Services) -> Tables:
        """Return the chunks, in the order of the documents."""
        rows = []
        for document in tables["documents"].to_pylist():
            text = document["text"]
            if self.method == "none":
                spans = [TextSpan(0, len(text), services.count_tokens(text))]
            else:
                at_sentences = self.method == "sentences"
                spans = chunk_spans(text, services.encoding, self.size, self.overlap, at_sentences)
            for position, span in enumerate(spans):
                rows.append(
                    {
                        "chunk_id": chunk_id(
                            document["document_id"], span.start, span.end, text[span.start : span.end]
                        ),
                        "document_id": document["document_id"],
                        "position": position,
                        "start": span.start,
                        "end": span.end,
                        "n_tokens": span.n_tokens,
                        "text": text[span.start : span.end],
                    }
                )
        return {"chunks": pa.Table.from_pylist(rows, CHUNKS)}
