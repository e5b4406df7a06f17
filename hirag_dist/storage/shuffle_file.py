"""Shuffle file: a table as numbered pieces in one file, each readable alone, passed between tasks.

The file has an entry for each piece, four little endian int64: offset, length, CRC-32 of the piece, and CRC-32 of these
three. Then follows each piece as an Arrow IPC stream; an empty piece takes no bytes. In Parquet, with a row group for
each piece, a reader of one piece would parse a footer that describes all.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from hirag_dist.errors import StoreError, WorkFileDamaged
from hirag_dist.storage.store import Store

_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")
_NUMBER = np.dtype("<i8")
_ENTRY_BYTES = 4 * _NUMBER.itemsize


def write_pieces(store: Store, path: str, pieces: Iterable[pa.Table]) -> None:
    """Write tables of one schema, in order, as the pieces of one file, atomically."""
    written = [_stream(piece) if piece.num_rows else b"" for piece in pieces]
    starts = np.cumsum([len(written) * _ENTRY_BYTES, *map(len, written)])[:-1]
    entries = [_entry(int(start), piece) for start, piece in zip(starts, written, strict=True)]
    store.write_bytes(path, b"".join([*entries, *written]), durable=False)


def read_piece(store: Store, path: str, number: int, schema: pa.Schema) -> pa.Table:
    """Return a piece, reading only its bytes.

    Raises:
        WorkFileDamaged: the file is gone, or is not what `write_pieces` wrote.
        StoreError: the file cannot be read.
    """
    try:
        entry = store.read_range(path, number * _ENTRY_BYTES, _ENTRY_BYTES)
        start, length, _, checksum = (int(value) for value in np.frombuffer(entry, _NUMBER))
        if zlib.crc32(entry[: -_NUMBER.itemsize]) != checksum:
            raise ValueError("a checksum is another one")  # before the piece is read: its length is not known
        data = store.read_range(path, start, length) if length else b""
        if _entry(start, data) != entry:
            raise ValueError("a checksum is another one")
        if not length:
            return schema.empty_table()
        with pa.ipc.open_stream(data) as stream:
            return stream.read_all().cast(schema)
    except (pa.ArrowException, ValueError, OSError) as error:
        raise WorkFileDamaged(f"{store.uri}/{path} is damaged: {error}", path) from error
    except StoreError as error:
        if store.exists(path) and isinstance(error.__cause__, OSError) and error.__cause__.errno is not None:
            raise
        raise WorkFileDamaged(f"{store.uri}/{path} is damaged or gone: {error}", path) from error


def _entry(start: int, piece: pa.Buffer | bytes) -> bytes:
    described = np.array([start, len(piece), zlib.crc32(piece)], _NUMBER).tobytes()
    return described + np.array([zlib.crc32(described)], _NUMBER).tobytes()


def _stream(table: pa.Table) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=_OPTIONS) as writer:
        writer.write_table(table)
    return sink.getvalue()
