"""Files of records with any fields, such as questions and recorded answers → their records, one at a time."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from hirag_dist.readers.document_builder import kind_of
from hirag_dist.readers.encoding import NotText, clean_text, decode_text, text_lines
from hirag_dist.readers.limited_process import raise_if_full
from hirag_dist.readers.model import FileRefused, ReadOptions, SourceFile, Unreadable
from hirag_dist.readers.open import explain, open_source, read_all
from hirag_dist.readers.parquet import open_parquet
from hirag_dist.readers.text_records import DELIMITERS, iter_lines, json_values, parse_json, read_table


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

    Args:
        source: from `find_inputs`.
        options: limits; None for the defaults.
    """
    record = 0
    try:
        for found in _read(source, options or ReadOptions()):
            row = found if isinstance(found, str) else Row(record, found)
            yield Unreadable(source.display, record, row) if isinstance(row, str) else row
            record += 1
    except (NotText, FileRefused) as error:
        yield Unreadable(source.display, record, str(error))
    except Exception as error:  # as in `read_source`
        raise_if_full(error)
        yield Unreadable(source.display, record, explain(error))
    else:
        if record == 0:
            yield Unreadable(source.display, 0, "the file holds no records")


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
            yield from _delimited(stream, max_bytes, "\t" if source.format == "tsv" else None)
        else:
            yield f"{source.format} has no records; give .jsonl, .json, .csv, .tsv or .parquet"


def _json(text: str, max_bytes: int) -> Iterator[Mapping[str, object] | str]:
    text = clean_text(text)
    try:
        value = parse_json(text, max_bytes)
    except ValueError as error:
        if "Extra data" in str(error) and "\n" in text.strip():
            yield from map(_object, json_values(iter_lines(text), max_bytes))
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
    if isinstance(value, ValueError):
        return str(value)
    return value if isinstance(value, dict) else f"the record is {kind_of(value)}, not an object"


def _delimited(
    stream: io.BufferedReader, max_bytes: int, delimiter: str | None
) -> Iterator[Mapping[str, object] | str]:
    lines = text_lines(stream, max_bytes)
    for fields in read_table(lines, max_bytes, lambda header: delimiter or max(DELIMITERS, key=header.count)):
        yield fields if isinstance(fields, str) else {name: cell or None for name, cell in fields.items()}
