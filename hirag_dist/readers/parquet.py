"""Parquet: rows → documents, a batch at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import pyarrow as pa
import pyarrow.parquet as pq

from hirag_dist.readers.document_builder import (
    ID_FIELDS,
    LABEL_FIELDS,
    TEXT_FIELDS,
    TITLE_FIELDS,
    DocumentBuilder,
    find_field,
    missing_text,
)
from hirag_dist.readers.model import Document, Unreadable

_BATCH_ROWS = 64


def read_parquet(file: pa.NativeFile, maker: DocumentBuilder) -> Iterator[Document | Unreadable]:
    """Yield a document, or the reason why there is none, for each row; only the columns needed are read.

    Args:
        file: open for random access.
        maker: of the file's documents.

    Raises:
        pyarrow.ArrowException: the file is damaged; what came before it is good.
        OSError: from the file.
    """
    parquet = pq.ParquetFile(file)
    names = list(parquet.schema_arrow.names)
    options = maker.options
    text = find_field(names, options.text_field, TEXT_FIELDS)
    title = find_field(names, options.title_field, TITLE_FIELDS)
    labels = find_field(names, options.label_field, LABEL_FIELDS)
    own_id = find_field(names, options.id_field, ID_FIELDS)
    if text is None:
        yield maker.unreadable(0, missing_text(names, options.text_field))
        return
    if labels is None and options.label_field is not None:
        yield maker.unreadable(0, f"no column {options.label_field!r} with the labels")
        return
    columns = [name for name in dict.fromkeys((text, title, labels, own_id)) if name is not None]
    record = 0
    for batch in parquet.iter_batches(batch_size=_BATCH_ROWS, columns=columns):
        for row in _rows(batch):
            yield maker.from_fields(row, record)
            record += 1
    if record == 0:
        yield maker.unreadable(0, "the table has no rows")


def _rows(batch: pa.RecordBatch) -> list[dict[str, object]]:
    """Return a batch's rows; where a string is not UTF-8, with all as bytes, for `from_fields` to decode."""
    try:
        return cast(list[dict[str, object]], batch.to_pylist())
    except UnicodeDecodeError:
        fields = [field.with_type(pa.binary()) if pa.types.is_string(field.type) else field for field in batch.schema]
        return cast(list[dict[str, object]], batch.cast(pa.schema(fields)).to_pylist())
