"""Files of records with any fields, such as questions and recorded answers → their records, one at a time."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from hirag_dist.readers.clean import clean_text
from hirag_dist.readers.delimited import DELIMITERS, read_table
from hirag_dist.readers.document_builder import kind_of
from hirag_dist.readers.encoding import NotText, decode_text
from hirag_dist.readers.json_records import parse_json
from hirag_dist.readers.lines import LineTooLong, text_lines
from hirag_dist.readers.model import SourceFile, Unreadable
from hirag_dist.readers.open import READ_ERRORS, SourceTooLarge, explain, open_random, open_source, read_all

_BATCH_ROWS = 256


@dataclass(frozen=True, slots=True)
class Row:
    """One record.

    Attributes:
        record: its index in the file, bad ones counted.
        fields: name → value, as JSON or Parquet has it; text in CSV. An empty cell of CSV is None.
    """

    record: int
    fields: Mapping[str, object]


def read_rows(source: SourceFile, max_bytes: int = 1 << 28) -> Iterator[Row | Unreadable]:
    """Yield the records of a JSON Lines, JSON, CSV, TSV or Parquet file, and why one cannot be read.

    JSON holds a list of objects, one object with such a list under a key, or a map from id to object (which then has
    the id in its field `id`, where it has none of its own). What fails is an `Unreadable`, not an exception.

    Args:
        source: from `find_inputs`.
        max_bytes: the most that is held at once: a JSON file, or a line of others.
    """
    record = 0
    try:
        for found in _read(source, max_bytes):
            row = found if isinstance(found, str) else Row(record, found)
            yield Unreadable(source.display, record, row) if isinstance(row, str) else row
            record += 1
    except (NotText, SourceTooLarge, LineTooLong) as error:
        yield Unreadable(source.display, record, str(error))
    except READ_ERRORS as error:
        yield Unreadable(source.display, record, explain(error))
    else:
        if record == 0:
            yield Unreadable(source.display, 0, "the file holds no records")


def _read(source: SourceFile, max_bytes: int) -> Iterator[Mapping[str, object] | str]:
    if source.format == "parquet" and source.compression is None:
        with open_random(source) as file:
            yield from _parquet(file)
        return
    with open_source(source) as stream:
        if source.format == "parquet":
            yield from _parquet(pa.BufferReader(read_all(stream, max_bytes)))
        elif source.format == "json":
            yield from _json(decode_text(read_all(stream, max_bytes)))
        elif source.format == "jsonl":
            yield from _json_lines(text_lines(stream, max_bytes))
        elif source.format in ("csv", "tsv"):
            yield from _delimited(stream, max_bytes, "\t" if source.format == "tsv" else None)
        else:
            yield f"{source.format} has no records; give .jsonl, .json, .csv, .tsv or .parquet"


def _json_lines(lines: Iterator[str]) -> Iterator[Mapping[str, object] | str]:
    for number, line in enumerate(lines, start=1):
        if line and not line.isspace():
            try:
                yield _object(parse_json(line))
            except ValueError as error:
                yield f"line {number} is not valid JSON: {error}"


def _json(text: str) -> Iterator[Mapping[str, object] | str]:
    text = clean_text(text)
    try:
        value = parse_json(text)
    except ValueError as error:
        if "Extra data" in str(error) and "\n" in text.strip():
            yield from _json_lines(iter(text.split("\n")))
        else:
            yield f"not valid JSON: {error}"
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
        yield f"the file holds {kind_of(value)}, not a list or an object"
        return
    yield from map(_object, value)


def _holds_objects(items: list[object]) -> bool:
    return bool(items) and all(isinstance(item, dict) for item in items)


def _object(value: object) -> Mapping[str, object] | str:
    return value if isinstance(value, dict) else f"the record is {kind_of(value)}, not an object"


def _delimited(
    stream: io.BufferedReader, max_bytes: int, delimiter: str | None
) -> Iterator[Mapping[str, object] | str]:
    lines = text_lines(stream, max_bytes)
    for fields in read_table(lines, max_bytes, lambda header: delimiter or max(DELIMITERS, key=header.count)):
        yield fields if isinstance(fields, str) else {name: cell or None for name, cell in fields.items()}


def _parquet(file: pa.NativeFile) -> Iterator[Mapping[str, object] | str]:
    for batch in pq.ParquetFile(file).iter_batches(batch_size=_BATCH_ROWS):
        yield from batch.to_pylist()
