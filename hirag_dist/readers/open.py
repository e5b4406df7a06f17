"""A URI or `SourceFile` → its bytes, decompressed; local files and object stores alike go through pyarrow.fs."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import posixpath
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, cast
from urllib.parse import unquote

import pyarrow as pa
from pyarrow import fs

from hirag_dist.config.object_stores import store_uri
from hirag_dist.readers.model import InputTooLarge, ReadOptions, SourceFile

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer as Buffer


FORMATS = {
    ".txt": "txt", ".text": "txt", ".rst": "txt", "": "txt",
    ".md": "md", ".markdown": "md",
    ".html": "html", ".htm": "html", ".xhtml": "html",
    ".pdf": "pdf",
    ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "json",
    ".parquet": "parquet", ".pq": "parquet",
    ".csv": "csv", ".tsv": "tsv", ".tab": "tsv",
    ".docx": "docx", ".docm": "docx", ".dotx": "docx",
    ".pptx": "pptx", ".pptm": "pptx", ".ppsx": "pptx",
    ".xlsx": "xlsx", ".xlsm": "xlsx",
    ".epub": "epub", ".eml": "eml",
}  # fmt: skip
"""File name extension → format. A name without one (README) is read as text."""

_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")


def is_uri(name: str) -> bool:
    """Tell a URI from a path."""
    return _URI.match(name) is not None


def is_utf8(name: str) -> bool:
    """Tell a name in UTF-8 from one with other bytes, which Python holds as lone surrogates."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def public_uri(uri: str) -> str:
    """Return a URI without the credentials and the query that it may hold.

    >>> public_uri("s3://key:secret@bucket/a.txt?region=eu-west-1")
    's3://bucket/a.txt'
    """
    scheme, _, rest = uri.partition("?")[0].partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}://{host.rpartition('@')[2] if ':' in host else host}{slash}{path}"


def split_name(name: str) -> tuple[str, str, str | None]:
    """Return stem, extension in lower case and compression of a path or URI.

    >>> split_name("s3://bucket/notes.v2.JSONL.gz")
    ('notes.v2', '.jsonl', 'gz')
    """
    base = posixpath.basename(name)
    if is_uri(name):
        base = unquote(posixpath.basename(name.partition("?")[0]))
    stem, extension = posixpath.splitext(base)
    compression = COMPRESSIONS.get(extension.lower())
    if compression is not None:
        stem, extension = posixpath.splitext(stem)
    return stem, extension.lower(), compression


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
_PIECE_BYTES = 1 << 22

READ_ERRORS = (OSError, EOFError, pa.ArrowException, lzma.LZMAError, zlib.error)
"""What opening and reading raise for a file that is missing, forbidden, out of reach or damaged."""


class _Decompressed(io.RawIOBase):
    """A decompressed stream that ends with an error where it is too many times as large as the file."""

    def __init__(self, inner: io.RawIOBase, max_bytes: int, max_expansion: int) -> None:
        self._inner = inner
        self._left = max_bytes
        self._max_expansion = max_expansion

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Buffer) -> int:
        data = self._inner.read(len(memoryview(buffer)))
        memoryview(buffer)[: len(data)] = data
        self._left -= len(data)
        if self._left < 0:
            raise expands_too_far(self._max_expansion)
        return len(data)


def expands_too_far(max_expansion: int) -> InputTooLarge:
    """Return the error of a file whose content is too many times as large as the file."""
    return InputTooLarge(f"the content is more than {max_expansion} times as large as the stored file: unpack it")


@contextmanager
def open_source(source: SourceFile, options: ReadOptions) -> Iterator[io.BufferedReader]:
    """Open a file for reading its content from the start to the end, decompressed.

    Raises:
        READ_ERRORS: on opening, and later from the stream.
        InputTooLarge: later from the stream, if decompression makes too much of the file.
    """
    filesystem, path = fs.FileSystem.from_uri(store_uri(source.uri))
    with filesystem.open_input_stream(path, compression=None) as raw:
        opened = cast(io.RawIOBase, raw)
        if source.compression is not None:
            inner = cast(io.RawIOBase, _DECOMPRESSORS[source.compression](raw))
            opened = _Decompressed(inner, options.max_content_bytes(source.size_bytes), options.max_expansion)
        stream = io.BufferedReader(opened, _BUFFER_BYTES)
        with stream:
            yield cast(io.BufferedReader, stream)


def read_all(stream: io.BufferedReader, max_bytes: int) -> bytes:
    """Return the whole content of a stream.

    Raises:
        InputTooLarge: it is larger than max_bytes.
        READ_ERRORS: from the stream.
    """
    pieces: list[bytes] = []  # read(max_bytes) would reserve max_bytes
    left = max_bytes
    while piece := stream.read(_PIECE_BYTES):
        left -= len(piece)
        if left < 0:
            break
        pieces.append(piece)
    if left < 0:
        pieces.clear()
        too_large = f"the content is larger than {max_bytes} bytes"
        raise InputTooLarge(f"{too_large}: split the file, or raise reading.max_file_bytes")
    return b"".join(pieces)


def explain(error: BaseException) -> str:
    """Return one line of plain words for what reading a file raised, without paths, URIs and credentials."""
    if isinstance(error, FileNotFoundError):
        return "the file is not there any more"
    if isinstance(error, PermissionError):
        return "no permission to read the file"
    if isinstance(error, EOFError):
        return "the compressed data is truncated"
    if isinstance(error, (lzma.LZMAError, zlib.error, gzip.BadGzipFile)):
        return f"the compressed data is damaged: {error}"
    words = re.sub(r"\S+://\S+", "…", " ".join(str(error).split()))
    if not isinstance(error, READ_ERRORS):
        words = f"{type(error).__name__}: {words}"
    return f"the file cannot be read: {words[:300]}"
