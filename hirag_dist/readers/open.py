"""A `SourceFile` → its bytes, decompressed; local files and object stores alike go through pyarrow.fs."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, cast

import pyarrow as pa
from pyarrow import fs

from hirag_dist.readers.model import SourceFile

COMPRESSIONS = {".gz": "gz", ".bz2": "bz2", ".xz": "xz", ".zst": "zst", ".zstd": "zst", ".lz4": "lz4"}
"""File name extension → compression."""

_DECOMPRESSORS: dict[str, Callable[[IO[bytes]], object]] = {
    "gz": lambda raw: gzip.GzipFile(fileobj=raw, mode="rb"),
    "bz2": bz2.BZ2File,
    "xz": lzma.LZMAFile,
    "zst": lambda raw: pa.CompressedInputStream(raw, "zstd"),
    "lz4": lambda raw: pa.CompressedInputStream(raw, "lz4"),
}
_BUFFER_BYTES = 1 << 18

READ_ERRORS = (OSError, EOFError, pa.ArrowException, lzma.LZMAError, zlib.error)
"""What opening and reading raise for a file that is missing, forbidden, out of reach or damaged."""


class SourceTooLarge(ValueError):
    """A file is larger than may be held in memory."""


@contextmanager
def open_source(source: SourceFile) -> Iterator[io.BufferedReader]:
    """Open a file for reading its content from the start to the end, decompressed.

    Raises:
        READ_ERRORS: on opening, and later from the stream.
    """
    filesystem, path = fs.FileSystem.from_uri(source.uri)
    with filesystem.open_input_stream(path, compression=None) as raw:
        opened = raw if source.compression is None else _DECOMPRESSORS[source.compression](raw)
        stream = io.BufferedReader(cast(io.RawIOBase, opened), _BUFFER_BYTES)
        with stream:
            yield cast(io.BufferedReader, stream)


@contextmanager
def open_random(source: SourceFile) -> Iterator[pa.NativeFile]:
    """Open a file that is not compressed for reading at any position. Raises as `open_source` does."""
    filesystem, path = fs.FileSystem.from_uri(source.uri)
    with filesystem.open_input_file(path) as file:
        yield file


def read_all(stream: io.BufferedReader, max_bytes: int) -> bytes:
    """Return the whole content of a stream.

    Raises:
        TooLarge: it is larger than max_bytes.
        READ_ERRORS: from the stream.
    """
    data = stream.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise SourceTooLarge(f"the content is larger than {max_bytes} bytes; split it or raise the limit")
    return data


def explain(error: BaseException) -> str:
    """Return one line of plain words for one of `READ_ERRORS`, without paths, URIs and credentials."""
    if isinstance(error, FileNotFoundError):
        return "the file is not there any more"
    if isinstance(error, PermissionError):
        return "no permission to read the file"
    if isinstance(error, EOFError):
        return "the compressed data is truncated"
    if isinstance(error, (lzma.LZMAError, zlib.error, gzip.BadGzipFile)):
        return f"the compressed data is damaged: {error}"
    words = re.sub(r"\S+://\S+", "…", " ".join(str(error).split()))
    return f"the file cannot be read: {words[:300]}"
