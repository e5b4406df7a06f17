"""JSON and JSON Lines: values → documents."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator
from typing import cast

from hirag_dist.readers.clean import clean_text
from hirag_dist.readers.document_builder import (
    LABEL_FIELDS,
    TEXT_FIELDS,
    TITLE_FIELDS,
    DocumentBuilder,
    find_field,
    kind_of,
)
from hirag_dist.readers.model import Document, Unreadable

_LIST_FIELDS = ("documents", "docs", "data", "records", "rows", "items", "results", "passages", "chunks")
_INT_DIGITS = 4000
_VALUE_BYTES, _OBJECT_BYTES = 72, 240
"""Memory that a value in a list and an object take, about."""
_MEMORY_FACTOR = 8


def read_json_lines(lines: Iterable[str], maker: DocumentBuilder) -> Iterator[Document | Unreadable]:
    """Yield a document, or the reason why there is none, for each line that is not blank.

    A line holds an object with a text field, or a string that is the text itself.
    """
    record = 0
    for number, line in enumerate(lines, start=1):
        if not line or line.isspace():
            continue
        try:
            value = parse_json(line, maker.options.max_document_bytes)
        except ValueError as error:
            yield maker.unreadable(record, f"line {number} is not valid JSON: {error}")
        else:
            yield _from_value(value, record, maker)
        record += 1


def read_json(text: str, maker: DocumentBuilder) -> Iterator[Document | Unreadable]:
    """Yield the documents of a JSON file.

    It holds a list of strings or objects; one object with a text field; an object with such a list under a
    key; or a map from id to text or to object, the id being the default title and the default id. A file of JSON
    Lines is read as that.
    """
    text = clean_text(text)
    if not text or text.isspace():
        yield maker.unreadable(0, "the text is empty")
        return
    try:
        value = parse_json(text, maker.options.max_file_bytes)
    except ValueError as error:
        if "Extra data" in str(error) and "\n" in text.strip():
            yield from read_json_lines(iter_lines(text), maker)
        else:
            yield maker.unreadable(0, f"not valid JSON: {error}")
        return
    if isinstance(value, dict):
        yield from _from_object(value, maker)
    elif isinstance(value, list):
        yield from _from_list(value, maker)
    elif isinstance(value, str):
        yield maker.document(value)
    else:
        yield maker.unreadable(0, f"the file holds {kind_of(value)}, not a list or an object")


def _from_object(value: dict[str, object], maker: DocumentBuilder) -> Iterator[Document | Unreadable]:
    options = maker.options
    text_field = find_field(value, options.text_field, TEXT_FIELDS)
    lists = [key for key, items in value.items() if _is_list_of_records(items)]
    named = [key for key in lists if key.lower() in _LIST_FIELDS]
    if text_field is not None and text_field not in lists:
        yield maker.from_fields(value, 0, default_title=maker.stem)
    elif len(lists) == 1 or named:
        yield from _from_list(cast(list[object], value[(named or lists)[0]]), maker)
    elif len(lists) > 1:
        yield maker.unreadable(0, f"several lists ({', '.join(lists[:10])}): which holds the documents is not clear")
    elif find_field(value, options.title_field, TITLE_FIELDS + LABEL_FIELDS) is None and _is_map(value):
        for record, (key, item) in enumerate(value.items()):
            yield _from_value(item, record, maker, key)
    else:
        yield maker.from_fields(value, 0, default_title=maker.stem)


def _from_list(values: list[object], maker: DocumentBuilder) -> Iterator[Document | Unreadable]:
    if not values:
        yield maker.unreadable(0, "the list is empty")
    for record, value in enumerate(values):
        yield _from_value(value, record, maker)


def _from_value(value: object, record: int, maker: DocumentBuilder, key: str | None = None) -> Document | Unreadable:
    if isinstance(value, str):
        title = key or maker.title_of(value, record)
        return maker.document(value, record=record, default_title=title, source_id=key)
    if isinstance(value, dict):
        return maker.from_fields(value, record, key, key)
    return maker.unreadable(record, f"the record is {kind_of(value)}, not an object or a string")


def _is_list_of_records(value: object) -> bool:
    return isinstance(value, list) and any(isinstance(item, (str, dict)) for item in value)


def _is_map(value: dict[str, object]) -> bool:
    """Tell a map from id to text or object: all its values are of one of the two kinds."""
    return bool(value) and (
        all(isinstance(item, str) for item in value.values()) or all(isinstance(item, dict) for item in value.values())
    )


def iter_lines(text: str) -> Iterator[str]:
    """Yield the lines of a text one at a time, without their ends."""
    return (line.removesuffix("\n") for line in io.StringIO(text))


def parse_json(text: str, max_bytes: int) -> object:
    """Parse JSON, with raw line ends in strings allowed.

    Args:
        max_bytes: the values may take `_MEMORY_FACTOR` times as much memory, estimated from the marks between them.

    Raises:
        ValueError: it is no JSON, or nested too deeply to be read, or of too many values; the message says where.
    """
    values = text.count(",") + text.count("[")
    if values * _VALUE_BYTES + text.count("{") * _OBJECT_BYTES > _MEMORY_FACTOR * max_bytes:
        raise ValueError(f"it holds too many values, about {values}: split it, or raise the limits of `reading`")
    try:
        return json.loads(text, strict=False, parse_int=_integer)
    except json.JSONDecodeError as error:
        line = f"line {error.lineno}, " if error.lineno > 1 else ""
        raise ValueError(f"{error.msg} ({line}column {error.colno})") from error
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def _integer(digits: str) -> int | str:
    """Return an integer; as a string where Python refuses to convert so many digits."""
    return int(digits) if len(digits) < _INT_DIGITS else digits
