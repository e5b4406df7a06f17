"""Digest of a table's content: names, types and values, independent of chunks, buffers and file metadata."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from blake3 import blake3

from hirag_dist.core.row_changes import one_array

BLOCK_BYTES = 1 << 18  # of a file on this machine, hashed at a time
_ROWS = 65_536
_ONE_ARRAY_BYTES = 1 << 30  # offsets of an array of strings reach to 2 GiB


def table_digest(table: pa.Table, hasher: Callable[[], Any] = blake3) -> str:
    """Return the digest (hex) of a table's columns, in order.

    Args:
        hasher: makes a hash object, as `blake3` does, or `hashlib.sha256` for digests of former versions.
    """
    digest = hasher()
    digest.update(f"{table.num_rows}".encode())
    for name, column in zip(table.column_names, table.columns, strict=True):
        digest.update(f"|{name}:{column.type}|".encode())
        for first in range(0, len(column), _ROWS):
            part = column.slice(first, _ROWS)
            if pa.types.is_string(part.type) and part.nbytes > _ONE_ARRAY_BYTES:
                _add_long_texts(digest, part)
            else:
                _add(digest, one_array(part))
    found: str = digest.hexdigest()
    return found


def _add_long_texts(digest: Any, column: pa.ChunkedArray) -> None:
    """Add strings that no single array holds, as `_add` adds those of one."""
    if column.null_count:
        digest.update(b"n" + np.packbits(column.is_null().to_numpy()).tobytes())
    filled = pc.fill_null(column, "")
    digest.update(pc.binary_length(filled).to_numpy().astype("<i8").tobytes())
    for chunk in filled.chunks:
        _add_text(digest, chunk)


def _add(digest: Any, array: pa.Array) -> None:
    kind = array.type
    if array.null_count:
        digest.update(b"n" + np.packbits(array.is_null().to_numpy(zero_copy_only=False)).tobytes())
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        digest.update(pc.fill_null(array.value_lengths(), 0).to_numpy(zero_copy_only=False).astype("<i8").tobytes())
        _add(digest, array.flatten())
    elif pa.types.is_struct(kind):
        for at in range(kind.num_fields):
            _add(digest, array.field(at))
    elif pa.types.is_string(kind) or pa.types.is_binary(kind):
        filled = pc.fill_null(array, "" if pa.types.is_string(kind) else b"")
        lengths = pc.binary_length(filled).to_numpy(zero_copy_only=False).astype("<i8")
        digest.update(lengths.tobytes())
        _add_text(digest, filled)
    elif pa.types.is_boolean(kind):
        digest.update(np.packbits(pc.fill_null(array, False).to_numpy(zero_copy_only=False)).tobytes())
    else:
        values = pc.fill_null(array, 0) if array.null_count else array
        digest.update(np.ascontiguousarray(values.to_numpy(zero_copy_only=False)).tobytes())


def _add_text(digest: Any, array: pa.Array) -> None:
    """Add the bytes of strings without nulls, one after another."""
    offsets = np.frombuffer(array.buffers()[1], np.int32)[array.offset : array.offset + len(array) + 1]
    data = array.buffers()[2]
    if data is not None and len(offsets):
        digest.update(memoryview(data)[int(offsets[0]) : int(offsets[-1])])


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """Size and hashes of a file as it was written.

    Attributes:
        size: bytes.
        sha256, blake3: hex.
    """

    size: int
    sha256: str
    blake3: str


class HashingFile(io.RawIOBase):
    """Passes what is written on to another file."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._digests = hashlib.sha256(), blake3()
        self._size = 0

    @property
    def written(self) -> WrittenFile:
        """The bytes so far."""
        return WrittenFile(self._size, *(digest.hexdigest() for digest in self._digests))

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, data: Any) -> int:
        """Write bytes; return their number."""
        self._file.write(data)
        view = memoryview(data)
        if view.nbytes:  # a view of no bytes may have a shape that cannot be cast
            for digest in self._digests:
                digest.update(view.cast("B"))
        self._size += view.nbytes
        return view.nbytes

    def tell(self) -> int:
        """Return the number of bytes so far."""
        return self._size
