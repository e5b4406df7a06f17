"""Records of text files: rows of CSV and TSV, values of JSON and JSON Lines → documents, or records with all fields."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import cast

from hirag_dist.readers.document_builder import (
    MOVE_LABELS,
    ROW_ENDS,
    USUAL_FIELDS,
    DocumentBuilder,
    doubled_labels,
    find_field,
    kind_of,
    label_fields,
    missing_text,
    unread_labels,
)
from hirag_dist.readers.encoding import NotText, clean_text, decode_text, text_lines
from hirag_dist.readers.limited_process import raise_if_full
from hirag_dist.readers.model import Document, FileReason, FileRefused, ReadOptions, SourceFile, Unreadable
from hirag_dist.readers.open import explain, open_source, read_all
from hirag_dist.readers.parquet import open_parquet


@dataclass(frozen=True, slots=True)
class Row:
    """One record.

    Attributes:
        record: its index in the file, bad ones counted.
        fields: name → value, as JSON or Parquet has it; text in CSV. An empty cell of CSV is None.
    """

    record: int
    fields: Mapping[str, object]


def read_rows(source: SourceFile, options: ReadOptions | None = None) -> Iterator[Row | Unreadable]:
    """Yield the records of a JSON Lines, JSON, CSV, TSV or Parquet file, and why one cannot be read.

    JSON holds a list of objects, one object with such a list under a key, or a map from id to object (which then has
    the id in its field `id`, where it has none of its own). What fails is an `Unreadable`, not an exception.
    """
    record = 0
    try:
        for found in _read(source, options or ReadOptions()):
            row = found if isinstance(found, str) else Row(record, found)
            is_file = isinstance(row, FileReason)
            yield Unreadable(source.display, record, row, is_file) if isinstance(row, str) else row
            record += 1
    except (NotText, FileRefused) as error:
        yield Unreadable(source.display, record, str(error), is_file=not record)
    except Exception as error:  # as in `read_source`
        raise_if_full(error)
        yield Unreadable(source.display, record, explain(error), is_file=not record)
    else:
        if record == 0:
            yield Unreadable(source.display, 0, "the file holds no records", is_file=True)


def _read(source: SourceFile, options: ReadOptions) -> Iterator[Mapping[str, object] | str]:
    if source.format == "parquet":
        with open_parquet(source, options) as table:
            yield from table.rows()
        return
    max_bytes = options.max_document_bytes
    with open_source(source, options) as stream:
        if source.format == "json":
            yield from _json(decode_text(read_all(stream, options.max_file_bytes)), options.max_file_bytes)
        elif source.format == "jsonl":
            yield from map(_object, json_values(text_lines(stream, max_bytes), max_bytes))
        elif source.format in ("csv", "tsv"):
            delimiter = "\t" if source.format == "tsv" else ""
            lines = text_lines(stream, max_bytes)
            for fields in read_table(lines, max_bytes, lambda header: delimiter or max(DELIMITERS, key=header.count)):
                yield fields if isinstance(fields, str) else {name: cell or None for name, cell in fields.items()}
        else:
            yield FileReason(f"{source.format} has no records; give .jsonl, .json, .csv, .tsv or .parquet")


def _json(text: str, max_bytes: int) -> Iterator[Mapping[str, object] | str]:
    text = clean_text(text)
    try:
        value = parse_json(text, max_bytes)
    except ValueError as error:
        if "Extra data" in str(error) and "\n" in text.strip():
            yield from map(_object, json_values(iter_lines(text), max_bytes))
        else:
            yield FileReason(f"not valid JSON: {error}")
        return
    if isinstance(value, dict):
        lists = [items for items in value.values() if isinstance(items, list) and _holds_objects(items)]
        if len(lists) == 1:
            value = lists[0]
        elif value and _holds_objects(list(value.values())):
            value = [{"id": key} | item for key, item in value.items()]
        else:
            value = [value]
    if not isinstance(value, list):
        yield FileReason(f"the file holds {kind_of(value)}, not a list or an object")
        return
    yield from map(_object, value)


def _holds_objects(items: list[object]) -> bool:
    return bool(items) and all(isinstance(item, dict) for item in items)


def _object(value: object) -> Mapping[str, object] | str:
    if isinstance(value, ValueError):
        return str(value)
    return value if isinstance(value, dict) else f"the record is {kind_of(value)}, not an object"


DELIMITERS = (",", ";", "\t", "|")
MAX_COLUMNS = 10_000
_SEPARATOR_LINE = re.compile(r'"?sep=(.)"?')  # before the header, for Excel


def read_delimited(
    lines: Iterator[str], maker: DocumentBuilder, delimiter: str | None = None
) -> Iterator[Document | Unreadable]:
    """Yield a document, or the reason why there is none, for each row below the header.

    Quoting is as in RFC 4180; a quote that is never closed costs the row it is in, not the rest of the file.

    Args:
        delimiter: one character; None takes the one of `, ; tab |` under which the header has a text field,
            else the most frequent in it.
    """
    rows = read_table(
        lines,
        maker.options.max_document_bytes,
        lambda header: delimiter or _delimiter_of(header, maker),
        lambda header: _bad_header(header, maker),
        "the file is empty",
        lambda header: label_fields(header, maker.options.label_field),
    )
    for record, fields in enumerate(rows):
        if isinstance(fields, FileReason):
            yield maker.unreadable(None, fields)
            return
        yield maker.unreadable(record, fields) if isinstance(fields, str) else maker.from_fields(fields, record)


def read_table(
    lines: Iterator[str],
    max_row_bytes: int,
    delimiter_of: Callable[[str], str],
    check_header: Callable[[list[str]], str | None] = lambda header: None,
    if_empty: str = "",
    needed_of: Callable[[list[str]], list[str]] = lambda header: [],
) -> Iterator[dict[str, str] | str]:
    """Yield the fields of each row below the header, empty where the row is shorter; for a broken row the reason.

    A row that ends before a column with labels is broken: it may have been cut off, and then says nothing about who may
    read it.

    csv's limit on the size of a field, one number for the process, is raised and stays so.

    Args:
        max_row_bytes: limit of a row, which may go on over several lines.
        delimiter_of: header → one character.
        check_header: returns the reason why a header cannot be used; it is the only item then, as `FileReason`.
        if_empty: the only item of a file without lines, as `FileReason`; no item if empty.
        needed_of: header → the columns with labels.
    """
    csv.field_size_limit(max(csv.field_size_limit(), max_row_bytes))
    first = next((line for line in lines if line and not line.isspace()), None)
    if first is None:
        yield from [FileReason(if_empty)] if if_empty else []
        return
    if max(map(first.count, DELIMITERS)) >= MAX_COLUMNS:
        yield FileReason(f"the header has more than {MAX_COLUMNS} columns")
        return
    named = _SEPARATOR_LINE.fullmatch(first.strip())
    if named:
        first = next((line for line in lines if line and not line.isspace()), "")
    rows = split_rows(lines, first, named[1] if named else delimiter_of(first), max_row_bytes)
    names = next(rows, [])
    header = [] if isinstance(names, str) else [name.strip() for name in names]
    reason = names if isinstance(names, str) else check_header(header)
    if reason is not None:
        yield FileReason(reason)
        return
    needed = needed_of(header)
    n_needed = 1 + max(map(header.index, needed), default=-1)
    for row in rows:
        if isinstance(row, str):
            yield row
        elif len(row) < n_needed:
            yield (
                f"{ROW_ENDS}{header[n_needed - 1]!r} with the labels: complete it, or end it with an "
                "empty field if it has no labels"
            )
        elif any(cell.strip() for cell in row[len(header) :]):
            yield f"the row has {len(row)} fields, the header {len(header)}: quote fields that hold the delimiter"
        else:
            yield dict.fromkeys(header, "") | dict(zip(header, row, strict=False))


def _bad_header(header: list[str], maker: DocumentBuilder) -> str | None:
    """Return the reason why a header cannot be used; None if there is none."""
    options = maker.options
    if maker.field("text", header) is None:
        reason = missing_text(header, options.text_field)
        filled = [cell for cell in header if cell]
        return f"{reason}; {_NO_HEADER}" if filled and all(map(_DATUM.fullmatch, filled)) else reason
    if options.label_field is not None and not label_fields(header, options.label_field):
        return f"no column {options.label_field!r} with the labels"
    return doubled_labels(header, options.label_field)


_NO_HEADER = (
    "the first line looks like a row of data, not like a header: put a line above it that names the columns, such as "
    "id,text"
)
_DATUM = re.compile(
    r"[-+]?[\d.,' ]*\d[\d.,' ]*(?:[eE][-+]?\d+)?\s?[%€$£]?"  # a number
    r"|\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}(?:[T ]\d{1,2}:\d{2}.*)?|\d{1,2}:\d{2}(?::\d{2}.*)?"  # a date, a time
    r"|true|false|null|none|nan|n/a"
    r"|https?://\S+|[^@\s]+@[^@\s]+\.\w+"
    r"|.*\s.*[.!?…。！？][\"'”’»)]*",  # a sentence
    re.IGNORECASE | re.DOTALL,
)


def _delimiter_of(header: str, maker: DocumentBuilder) -> str:
    for delimiter in DELIMITERS:
        names = [name.strip() for name in next(csv.reader([header], delimiter=delimiter))]
        if maker.field("text", names) is not None:
            return delimiter
    return max(DELIMITERS, key=header.count)


class _Feed:
    """Lines for csv, which remembers those of the row being read, so that they can be read again."""

    def __init__(self, lines: Iterator[str], again: list[str], max_row_bytes: int) -> None:
        self._lines = lines
        self._max_row_bytes = max_row_bytes
        self._row_bytes = 0
        self._again = again[::-1]
        self.row: list[str] = []
        self.ended = False

    def __iter__(self) -> _Feed:
        return self

    def __next__(self) -> str:
        line = self._again.pop() if self._again else next(self._lines, None)
        if line is None:
            self.ended = True
            raise StopIteration
        self._row_bytes = self._row_bytes + len(line) if self.row else len(line)
        if self._row_bytes > self._max_row_bytes:
            raise csv.Error(f"a row is longer than {self._max_row_bytes} bytes")
        self.row.append(line)
        return line.replace("\n", " ") + "\n"

    def rewind(self) -> None:
        """Give the lines of the row again, but the first."""
        self._again = self.row[:0:-1]
        self.row = []
        self.ended = False


def split_rows(lines: Iterator[str], first: str, delimiter: str, max_row_bytes: int) -> Iterator[list[str] | str]:
    """Yield rows that are not blank, and for a row that is broken the reason.

    Args:
        lines: without their ends.
        first: a line before them.
        max_row_bytes: limit of a row; a longer one is broken.
    """
    feed = _Feed(lines, [first], max_row_bytes)
    while not feed.ended:
        try:
            for row in csv.reader(feed, delimiter=delimiter):
                if feed.ended:  # csv asked for more lines than there are
                    yield "a quote is opened and never closed"
                    feed.rewind()
                    break
                feed.row.clear()
                if len(row) > 1 or "".join(row).strip():
                    yield row
        except csv.Error as error:
            yield f"not valid CSV: {error}"
            feed.rewind()


_LIST_FIELDS = ("documents", "docs", "data", "records", "rows", "items", "results", "passages", "chunks")
_INT_DIGITS = 4000
_VALUE_BYTES, _OBJECT_BYTES = 72, 240
"""Memory that a value in a list and an object take, about."""
_MEMORY_FACTOR = 8


def read_json_lines(lines: Iterable[str], maker: DocumentBuilder) -> Iterator[Document | Unreadable]:
    """Yield a document, or the reason why there is none, for each line that is not blank.

    A line holds an object with a text field, or a string that is the text itself.
    """
    options = maker.options
    for record, value in enumerate(json_values(lines, options.max_document_bytes, options.label_field)):
        yield _from_value(value, record, maker)


def json_values(lines: Iterable[str], max_bytes: int, label_field: str | None = None) -> Iterator[object]:
    """Yield the value of each line that is not blank, or the ValueError that says why it has none."""
    for number, line in enumerate(lines, start=1):
        if line and not line.isspace():
            try:
                yield parse_json(line, max_bytes, label_field)
            except ValueError as error:
                yield ValueError(f"line {number} is not valid JSON: {error}")


def read_json(text: str, maker: DocumentBuilder) -> Iterator[Document | Unreadable]:
    """Yield the documents of a JSON file.

    It holds a list of strings or objects; one object with a text field; an object with such a list under a
    key; or a map from id to text or to object, the id being the default title and the default id. A file of JSON
    Lines is read as that.
    """
    text = clean_text(text)
    if not text or text.isspace():
        yield maker.unreadable(None, "the text is empty")
        return
    try:
        value = parse_json(text, maker.options.max_file_bytes, maker.options.label_field)
    except ValueError as error:
        if "Extra data" in str(error) and "\n" in text.strip():
            yield from read_json_lines(iter_lines(text), maker)
        else:
            yield maker.unreadable(None, f"not valid JSON: {error}")
        return
    if isinstance(value, dict):
        yield from _from_object(value, maker)
    elif isinstance(value, list):
        yield from _from_list(value, maker)
    elif isinstance(value, str):
        yield maker.document(value)
    else:
        yield maker.unreadable(None, f"the file holds {kind_of(value)}, not a list or an object")


def _from_object(value: dict[str, object], maker: DocumentBuilder) -> Iterator[Document | Unreadable]:
    text_field, describing = maker.field("text", value), USUAL_FIELDS["title"] + USUAL_FIELDS["label"]
    lists = [
        key
        for key, items in value.items()
        if isinstance(items, list) and any(isinstance(item, (str, dict)) for item in items)
    ]
    named = [key for key in lists if key.lower() in _LIST_FIELDS]
    if text_field is not None and text_field not in lists:
        yield maker.from_fields(value, 0, default_title=maker.stem)
    elif (len(lists) == 1 or named) and (around := unread_labels(value, maker.options)):
        yield maker.unreadable(None, f"the field {around!r} with the labels is around the records: {MOVE_LABELS}")
    elif len(lists) == 1 or named:
        yield from _from_list(cast(list[object], value[(named or lists)[0]]), maker)
    elif len(lists) > 1:
        yield maker.unreadable(None, f"several lists ({', '.join(lists[:10])}): which holds the documents is not clear")
    elif find_field(value, maker.options.title_field, describing) is None and _is_map(value):
        for record, (key, item) in enumerate(value.items()):
            yield _from_value(item, record, maker, key)
    else:
        yield maker.from_fields(value, 0, default_title=maker.stem)


def _from_list(values: list[object], maker: DocumentBuilder) -> Iterator[Document | Unreadable]:
    if not values:
        yield maker.unreadable(None, "the list is empty")
    for record, value in enumerate(values):
        yield _from_value(value, record, maker)


def _from_value(value: object, record: int, maker: DocumentBuilder, key: str | None = None) -> Document | Unreadable:
    if isinstance(value, str):
        title = key or maker.title_of(value, record)
        return maker.document(value, record=record, default_title=title, source_id=key)
    if isinstance(value, dict):
        return maker.from_fields(value, record, key, key)
    if isinstance(value, ValueError):
        return maker.unreadable(record, str(value))
    return maker.unreadable(record, f"the record is {kind_of(value)}, not an object or a string")


def _is_map(value: dict[str, object]) -> bool:
    """Tell a map from id to text or object: all its values are of one of the two kinds."""
    return bool(value) and (
        all(isinstance(item, str) for item in value.values()) or all(isinstance(item, dict) for item in value.values())
    )


def iter_lines(text: str) -> Iterator[str]:
    """Yield the lines of a text one at a time, without their ends."""
    return (line.removesuffix("\n") for line in io.StringIO(text))


def parse_json(text: str, max_bytes: int, label_field: str | None = None) -> object:
    """Parse JSON, with raw line ends in strings allowed.

    Args:
        max_bytes: the values may take `_MEMORY_FACTOR` times as much memory, estimated from the marks between them.
        label_field: as in `ReadOptions`.

    Raises:
        ValueError: it is no JSON, or nested too deeply to be read, or of too many values; the message says where. Or an
            object has a field for labels twice.
    """
    values = text.count(",") + text.count("[")
    if values * _VALUE_BYTES + text.count("{") * _OBJECT_BYTES > _MEMORY_FACTOR * max_bytes:
        raise ValueError(f"it holds too many values, about {values}: split it, or raise the limits of `reading`")
    try:
        hook = partial(_fields, label_field=label_field)
        return json.loads(text, strict=False, parse_int=_integer, object_pairs_hook=hook)
    except json.JSONDecodeError as error:
        line = f"line {error.lineno}, " if error.lineno > 1 else ""
        raise ValueError(f"{error.msg} ({line}column {error.colno})") from error
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def _fields(pairs: list[tuple[str, object]], label_field: str | None) -> dict[str, object]:
    """Return the fields of an object of JSON; of a name that is there twice, the last."""
    fields = dict(pairs)
    if len(fields) < len(pairs) and (reason := doubled_labels([name for name, _ in pairs], label_field)):
        raise ValueError(reason)
    return fields


def _integer(digits: str) -> int | str:
    """Return an integer; as a string where Python refuses to convert so many digits."""
    return int(digits) if len(digits) < _INT_DIGITS else digits
