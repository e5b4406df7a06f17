"""Input and output of reading: a file, reading options, a document, or the reason why there is none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hirag_dist.core.metadata.fields import FieldSource
from hirag_dist.core.retrieval.places import record_name

FREE_BYTES = 1 << 26
"""Content that may be read from a file however small it is."""


class FileRefused(ValueError):
    """A file that is not read; the message is the reason, in words."""


class InputTooLarge(FileRefused):
    """A file, or a part of it, passes a limit of `ReadOptions`; the message names the key that raises the limit."""


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One file to read.

    Attributes:
        uri: where it is, absolute, for `pyarrow.fs.FileSystem.from_uri`; it may hold credentials, so never
            show it.
        display: the same without credentials and query, and a local file as the user named it; fit for
            messages.
        size_bytes: as stored, before decompression.
        format: txt, md, html, pdf, docx, pptx, xlsx, epub, eml, jsonl, json, parquet, csv or tsv; `unsupported` for
            any other.
        compression: gz, bz2, xz, zst or lz4; None for none.
        modified: time of the last change, in nanoseconds since the epoch; empty where it is not known.
        name: a local file's path below the INPUT that it was found by, links not resolved, so that it does not depend
            on where a corpus lies or what a link leads to; of a file of an object store its URI, as `display`.
        refusal: the reason why the file is not read; empty for none.
        etag: version of an object, which its store gives; empty where it gives none.
    """

    uri: str
    display: str
    size_bytes: int
    format: str
    compression: str | None
    modified: str = ""
    name: str = ""
    refusal: str = ""
    etag: str = ""


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Reading options.

    A field that is None is found by name, in any case, the first of these that a record has:
    text: text, content, contents, body, document, page_content, passage; title: title, name, headline;
    labels: labels, label, acl. `tags` are not labels: labels hide a document, tags describe it.
    id: id, _id, doc_id, document_id, passage_id, chunk_id, docid, pid.

    Attributes:
        text_field: the field or column that holds the text.
        title_field: the one that holds the title; a record without it gets the default title.
        label_field: the one that holds the access labels, a string or a list of strings. Where it is named
            here, a record without it is `Unreadable`, and so is a file of a format without fields: a mistyped
            name must not make documents public; null or empty is no label.
        id_field: the one that holds the owner's id of the record, a string or a number. Where it is named here, a
            record without it is `Unreadable`: a mistyped name must not cost all ids.
        encoding: Encoding of content that is neither UTF-8 nor in an encoding that it declares; None to guess.
        max_document_bytes: limit of the text of a document, and of a record of a JSONL or CSV file.
        max_file_bytes: limit of the content of a file that is read as a whole.
        max_records: limit of the records of a file.
        max_pages: limit of the pages of a PDF.
        max_expansion: limit of how many times the content may be larger than the stored file; `FREE_BYTES` of content
            may be read from any file.
        memory_bytes: maximum bytes of memory for reading one PDF, office file, book, mail or row group of Parquet.
        cpu_s: maximum processor seconds for reading one.
        metadata: declared fields, and where their values come from.
    """

    text_field: str | None = None
    title_field: str | None = None
    label_field: str | None = None
    id_field: str | None = None
    encoding: str | None = None
    max_document_bytes: int = 1 << 25
    max_file_bytes: int = 1 << 28
    max_records: int = 1_000_000
    max_pages: int = 10_000
    max_expansion: int = 250
    memory_bytes: int = 1 << 30
    cpu_s: int = 300
    metadata: tuple[FieldSource, ...] = ()

    def max_content_bytes(self, stored_bytes: int) -> int:
        """Return the limit of the content of a file of a size, by `max_expansion`."""
        return max(FREE_BYTES, self.max_expansion * stored_bytes)


@dataclass(frozen=True, slots=True)
class TextPlace:
    """A stretch of a document's text (characters, half open) with its position in the original.

    Attributes:
        kind: page, slide, section, chapter, sheet or part.
        page: page or slide from 1; 0 for none.
        page_label: that the file gives the page.
        section: heading, chapter, sheet or attachment that holds the text.
        anchor: identifier of the element or heading before it.
        row: of a sheet, from 1; 0 for none.
        boxes: areas of the page that hold the text: left, top, right and bottom of each from the top left corner, in
            65,535ths of the page, as unsigned 16-bit numbers, little endian.
    """

    start: int
    end: int
    kind: str
    page: int = 0
    page_label: str = ""
    section: str = ""
    anchor: str = ""
    row: int = 0
    boxes: bytes = b""


@dataclass(frozen=True, slots=True)
class Document:
    """One document.

    Attributes:
        uri: the file it came from, without credentials and query.
        title: one line, never empty.
        text: cleaned (`clean_text`), with at least one character that is not white space.
        labels: access labels in the order given, each once.
        record: index in a file of several records, bad ones counted; else 0.
        source_id: the owner's id of the record, case and form kept; "" where it has none.
        places: positions in the original, in the order of the text, without overlaps; a record of a file of records has
            none of its own.
        metadata: values of declared fields as JSON; fields without a value are absent.
        faults: for each declared field whose value is of another type, the reason on one line.
    """

    uri: str
    title: str
    text: str
    labels: tuple[str, ...]
    record: int
    source_id: str = ""
    places: tuple[TextPlace, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    faults: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A file or record that gives no document.

    Attributes:
        uri: the file, without credentials and query.
        record: index of the record; of the first one lost where the rest of a file is.
        reason: one line in plain words.
        is_file: Whether nothing of the whole file could be read; `record` is 0 then.
    """

    uri: str
    record: int
    reason: str
    is_file: bool = False

    @property
    def name(self) -> str:
        """The file, with the number of the record, from 1, unless it is the whole file."""
        return self.uri if self.is_file else record_name(self.uri, self.record)


class FileReason(str):
    """The reason why a whole file cannot be read, where a reader yields reasons of records too."""

    __slots__ = ()
