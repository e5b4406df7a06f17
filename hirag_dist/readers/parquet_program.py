"""The program that reads Parquet files, in a process with limits: Arrow reserves whatever size a page's header names.

Requests, replies and forks are those of `pdf_text.answer_requests`. A request has the `uri` of a file, and the
`encoding` that the user names, or null. Without `group`
its reply has `names`, of the columns, and `n_groups`. With `group` it has `columns` to read, or null for all, and
`path`, a file that the rows of this row group are written to, a JSON object a line, until they pass `max_bytes`; the
reply then says whether they are `cut`. A reply has `refused` where the file is damaged, or `error`: memory, cpu or
crash. Dates and times are written in ISO 8601, and bytes that are no text in base64, in an object with the one key
`_BYTES`.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from hirag_dist.readers.encoding import NotText, WrongEncoding, decode_text
from hirag_dist.readers.open import READ_ERRORS, explain
from hirag_dist.readers.pdf_text import answer_requests

_BYTES = "\0base64"
_BATCH_BYTES = 1 << 24
_BATCH_ROWS = 64
_BUFFER_BYTES = 1 << 20


def read_file(request: Mapping[str, Any], data: bytes) -> dict[str, Any]:
    """Return the reply to a request."""
    try:
        filesystem, path = fs.FileSystem.from_uri(request["uri"])
        with filesystem.open_input_file(path) as file:
            parquet = pq.ParquetFile(file, buffer_size=_BUFFER_BYTES, pre_buffer=False)
            if "group" not in request:
                return {"names": list(parquet.schema_arrow.names), "n_groups": parquet.num_row_groups}
            return {"cut": _write_rows(parquet, request)}
    except MemoryError:
        raise
    except READ_ERRORS as error:
        return {"refused": explain(error)}


def _write_rows(parquet: pq.ParquetFile, request: Mapping[str, Any]) -> bool:
    left = request["max_bytes"]
    with Path(request["path"]).open("w", encoding="utf-8") as lines:
        plain = partial(_plain, encoding=request["encoding"])
        for row in _rows(parquet, request["group"], request["columns"]):
            line = json.dumps(row, default=plain, ensure_ascii=False) + "\n"
            left -= len(line)
            if left < 0:
                return True
            lines.write(line)
    return False


def _rows(parquet: pq.ParquetFile, group: int, columns: list[str] | None) -> Iterator[dict[str, Any]]:
    metadata = parquet.metadata.row_group(group)
    if not metadata.num_rows:  # its columns have no pages
        return
    row_bytes = max(1, metadata.total_byte_size // metadata.num_rows)
    n_rows = max(1, min(_BATCH_ROWS, _BATCH_BYTES // row_bytes))
    for batch in parquet.iter_batches(n_rows, row_groups=[group], columns=columns, use_threads=False):
        yield from pa.RecordBatch.from_arrays(list(map(_plain_column, batch.columns)), batch.schema.names).to_pylist()


def _plain_column(column: pa.Array) -> pa.Array:
    """Return a column with dates and times as text, since Python has none before the year 1 and after 9999.

    Strings become bytes where they are not UTF-8.
    """
    kind = column.type
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind) or pa.types.is_time(kind):
        return column.cast(pa.string())
    if pa.types.is_string(kind):
        try:
            column.validate(full=True)
        except pa.ArrowInvalid:
            return column.cast(pa.binary())
    return column


def _plain(value: Any, encoding: str | None) -> object:
    """Return what JSON has for a value that is of none of its types."""
    if isinstance(value, bytes):
        try:
            return decode_text(value, named=encoding)
        except (NotText, WrongEncoding):
            return {_BYTES: base64.b64encode(value).decode()}
    return str(value)


if __name__ == "__main__":
    answer_requests(read_file)
