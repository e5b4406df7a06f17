"""Parquet: rows → documents, a batch at a time."""

from __future__ import annotations

from collections.abc import Iterator

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
from hirag_dist.readers.model import Document, InputTooLarge, ReadOptions, Unreadable
from hirag_dist.readers.parquet_pages import column_pages

_BATCH_ROWS = 64
MAX_LIST_VALUES = 1 << 24
"""Values that the lists of a column may hold in a row group; an empty page may name any number of them."""
_BUFFER_BYTES = 1 << 20


def read_parquet(file: pa.NativeFile, maker: DocumentBuilder) -> Iterator[Document | Unreadable]:
    """Yield a document, or the reason why there is none, for each row; only the columns needed are read.

    Args:
        file: open for random access.
        maker: of the file's documents.

    Raises:
        pyarrow.ArrowException: the file is damaged; what came before it is good.
        OSError: from the file.
    """
    parquet = open_parquet(file)
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
    keys = [key for source in options.metadata for key in source.keys]
    described = [find_field(names, key, ()) or find_field(names, key.partition(".")[0], ()) for key in keys]
    columns = [name for name in dict.fromkeys((text, title, labels, own_id, *described)) if name is not None]
    record = 0
    for row in bounded_rows(parquet, file, columns, options):
        yield maker.from_fields(row, record)
        record += 1
    if record == 0:
        yield maker.unreadable(0, "the table has no rows")


def open_parquet(file: pa.NativeFile) -> pq.ParquetFile:
    """Return a Parquet file that reads columns through a small buffer instead of whole."""
    return pq.ParquetFile(file, buffer_size=_BUFFER_BYTES, pre_buffer=False)


def bounded_rows(
    parquet: pq.ParquetFile, file: pa.NativeFile, columns: list[str] | None, options: ReadOptions
) -> Iterator[dict[str, object]]:
    """Yield the rows of a file, of which a few are in memory at a time.

    Args:
        file: the same as `parquet` reads.
        columns: to read; None for all.

    Raises:
        InputTooLarge: a page of these columns, or a list of one row, is too large; the rows of the row groups before
            it were yielded.
        pyarrow.ArrowException, OSError: as `read_parquet`.
    """
    for group in range(parquet.num_row_groups):
        metadata = parquet.metadata.row_group(group)
        if not metadata.num_rows:  # its columns have no pages
            continue
        n_rows = _batch_rows(metadata, parquet.schema, file, columns, options)
        for batch in parquet.iter_batches(n_rows, row_groups=[group], columns=columns, use_threads=False):
            yield from _rows(batch)


def _batch_rows(
    group: pq.RowGroupMetaData,
    schema: pq.ParquetSchema,
    file: pa.NativeFile,
    columns: list[str] | None,
    options: ReadOptions,
) -> int:
    """Return how many rows of a row group are read at a time: any value may be as large as the largest page.

    Raises:
        InputTooLarge: a page is too large.
    """
    largest = 1
    for at in range(group.num_columns):
        column = group.column(at)
        path = column.path_in_schema
        if columns is not None and not any(path == name or path.startswith(f"{name}.") for name in columns):
            continue
        first = column.data_page_offset
        if column.dictionary_page_offset:  # 0 and None: there is none
            first = min(first, column.dictionary_page_offset)
        n_values = 0
        for page in column_pages(file, first, min(column.total_compressed_size, max(file.size() - first, 0))):
            largest = max(largest, page.n_bytes)
            n_values += page.n_values
            if page.n_bytes > options.max_file_bytes:
                raise InputTooLarge(
                    f"a page of column {path!r} has more than {options.max_file_bytes} bytes: write smaller pages, or "
                    "raise reading.max_file_bytes"
                )
        if schema.column(at).max_repetition_level and n_values > MAX_LIST_VALUES:
            raise InputTooLarge(f"the lists of column {path!r} hold more than {MAX_LIST_VALUES} values in a row group")
    return max(1, min(_BATCH_ROWS, options.max_document_bytes // largest))


def _rows(batch: pa.RecordBatch) -> Iterator[dict[str, object]]:
    """Yield a batch's rows; where a string is not UTF-8, with all as bytes, for `from_fields` to decode."""
    try:
        yield from batch.to_pylist()
    except UnicodeDecodeError:
        fields = [field.with_type(pa.binary()) if pa.types.is_string(field.type) else field for field in batch.schema]
        yield from batch.cast(pa.schema(fields)).to_pylist()
