"""Parquet: rows → documents, from the process that reads them (`parquet_program`), a row group at a time."""

from __future__ import annotations

import base64
import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from hirag_dist.config.object_stores import store_uri
from hirag_dist.readers.document_builder import (
    DocumentBuilder,
    doubled_labels,
    find_field,
    label_fields,
    missing_text,
)
from hirag_dist.readers.limited_process import LimitedProcess
from hirag_dist.readers.model import Document, FileRefused, ReadOptions, SourceFile, Unreadable
from hirag_dist.readers.open import expands_too_far, open_source

READER: Final = LimitedProcess(Path(__file__).with_name("parquet_program.py"), "a row group")
"""The process of this process."""

_BYTES = "\0base64"
_JSON_FACTOR = 2  # bytes of JSON that a byte of content may take


def read_parquet(source: SourceFile, maker: DocumentBuilder) -> Iterator[Document | Unreadable]:
    """Yield a document, or the reason why there is none, for each row; only the columns needed are read.

    Raises:
        FileRefused, OSError: as `ParquetRows.rows` does; the documents before were yielded.
    """
    options = maker.options
    with open_parquet(source, options) as table:
        text, title, own_id = (maker.field(kind, table.names) for kind in ("text", "title", "id"))
        labels = label_fields(table.names, options.label_field)
        if text is None:
            yield maker.unreadable(None, missing_text(table.names, options.text_field))
            return
        if reason := doubled_labels(table.names, options.label_field):
            yield maker.unreadable(None, reason)
            return
        if not labels and options.label_field is not None:
            yield maker.unreadable(None, f"no column {options.label_field!r} with the labels")
            return
        keys = [key for field in options.metadata for key in field.keys]
        described = [
            find_field(table.names, key, ()) or find_field(table.names, key.partition(".")[0], ()) for key in keys
        ]
        columns = [name for name in dict.fromkeys((text, title, *labels, own_id, *described)) if name is not None]
        record = -1
        for record, row in enumerate(table.rows(columns)):
            yield maker.from_fields(row, record)
        if record < 0:
            yield maker.unreadable(None, "the table has no rows")


@contextmanager
def open_parquet(source: SourceFile, options: ReadOptions) -> Iterator[ParquetRows]:
    """Open a Parquet file where it is; unpacked to a temporary file first if it is compressed as a whole.

    Raises:
        FileRefused, OSError: as `ParquetRows.rows` does.
    """
    if source.compression is None:
        yield ParquetRows(source.uri, source.size_bytes, options)
        return
    with open_source(source, options) as stream, tempfile.NamedTemporaryFile() as unpacked:
        shutil.copyfileobj(stream, unpacked)
        unpacked.flush()
        yield ParquetRows(Path(unpacked.name).as_uri(), source.size_bytes, options)


class ParquetRows:
    """A Parquet file.

    Attributes:
        names: of the columns.
    """

    def __init__(self, uri: str, size_bytes: int, options: ReadOptions) -> None:
        """Read the footer of a file; `size_bytes` is its size as stored."""
        self._uri = uri
        self._options = options
        self._max_bytes = _JSON_FACTOR * options.max_content_bytes(size_bytes)
        footer = self._ask()
        self.names: list[str] = footer["names"]
        self._n_groups: int = footer["n_groups"]

    def rows(self, columns: list[str] | None = None) -> Iterator[dict[str, object]]:
        """Yield the rows, of which one is in memory at a time and those of a row group in a temporary file.

        Args:
            columns: to read; None for all.

        Raises:
            FileRefused: the file is damaged, or a row group passes a limit; the rows before were yielded.
            OSError: the process cannot be started.
        """
        for group in range(self._n_groups):
            with tempfile.NamedTemporaryFile("rb") as lines:
                failure: FileRefused | None = None
                try:
                    reply = self._ask(group=group, columns=columns, path=lines.name, max_bytes=self._max_bytes)
                    failure = expands_too_far(self._options.max_expansion) if reply["cut"] else None
                except FileRefused as error:
                    failure = error
                for line in lines:
                    if line.endswith(b"\n"):  # else the process ended while it was written
                        yield json.loads(line, object_hook=_bytes)
                if failure is not None:
                    raise failure

    def _ask(self, **request: object) -> dict[str, Any]:
        options = self._options
        return READER.ask({"uri": store_uri(self._uri), "encoding": options.encoding, **request}, b"", options)


def _bytes(value: dict[str, Any]) -> object:
    """Return the bytes that an object of JSON stands for; any other object as it is."""
    return base64.b64decode(value[_BYTES]) if value.keys() == {_BYTES} else value
