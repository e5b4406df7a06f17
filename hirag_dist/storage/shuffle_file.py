"""Shuffle file: a table as numbered pieces in one file, each readable alone, passed between tasks.

The file has int64 offsets (n_pieces + 1, little endian), then each piece as an Arrow IPC stream; an empty piece takes
no bytes. In Parquet, with a row group for each piece, a reader of one piece would parse a footer that describes all.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from hirag_dist.errors import StoreError
from hirag_dist.storage.store import Store

_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")
_OFFSET = np.dtype("<i8")


def write_pieces(store: Store, path: str, pieces: Iterable[pa.Table]) -> None:
    """Write tables of one schema, in order, as the pieces of one file, atomically."""
    written = [_stream(piece) if piece.num_rows else b"" for piece in pieces]
    lengths = [(len(written) + 1) * _OFFSET.itemsize, *map(len, written)]
    store.write_bytes(path, b"".join([np.cumsum(lengths).astype(_OFFSET).tobytes(), *written]))


def read_piece(store: Store, path: str, number: int, schema: pa.Schema) -> pa.Table:
    """Return a piece, reading only its bytes.

    Raises:
        StoreError: the file cannot be read, or is not what `write_pieces` wrote.
    """
    try:
        bounds = np.frombuffer(store.read_range(path, number * _OFFSET.itemsize, 2 * _OFFSET.itemsize), _OFFSET)
        start, stop = (int(bound) for bound in bounds)
        if start == stop:
            return schema.empty_table()
        with pa.ipc.open_stream(store.read_range(path, start, stop - start)) as stream:
            return stream.read_all().cast(schema)
    except (pa.ArrowException, ValueError, OSError, StoreError) as error:
        raise StoreError(
            f"{store.uri}/{path} is damaged or gone; remove it and run again: its rows are still in the files that it "
            f"was written from ({error})"
        ) from error


def _stream(table: pa.Table) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=_OPTIONS) as writer:
        writer.write_table(table)
    return sink.getvalue()
