"""A stream of bytes → lines of text, with bounded memory, for the formats that hold a record a line."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from typing import AnyStr

from hirag_dist.readers.clean import clean_text
from hirag_dist.readers.encoding import decode_bytes, unicode_codec
from hirag_dist.readers.model import InputTooLarge

_LINE_END = re.compile("\r\n|\r|\n")
_HEAD_BYTES = 1 << 12
_BATCH_SIZE = 1 << 20


def text_lines(stream: io.BufferedReader, max_line_bytes: int) -> Iterator[str]:
    """Yield the cleaned lines of a stream, without their ends.

    About a megabyte is held at a time. The encoding is found for each such batch (`decode_bytes`), so that a
    stray byte far into a file does not matter to what came before it. Control characters go, CR and CRLF end
    lines too.

    Args:
        stream: at its start, with `peek`.
        max_line_bytes: the longest line.

    Raises:
        NotText: the stream is binary.
        InputTooLarge: a line is longer than max_line_bytes; nothing after it can be read.
        OSError: from the stream.
    """
    codec = unicode_codec(stream.peek(_HEAD_BYTES))
    if codec is None or codec == "utf-8":
        for batch in _batches(stream.readline, max_line_bytes):
            yield from _split(decode_bytes(b"".join(batch)))
    else:
        wide = io.TextIOWrapper(stream, encoding=codec, errors="replace", newline="\n")
        for characters in _batches(wide.readline, max_line_bytes):
            yield from _split("".join(characters))


def _batches(readline: Callable[[int], AnyStr], max_line: int) -> Iterator[list[AnyStr]]:
    """Yield lists of whole lines, each about `_BATCH_SIZE` together."""
    batch: list[AnyStr] = []
    size = 0
    while line := readline(max_line + 1):
        if len(line) > max_line:
            if batch:
                yield batch
            raise InputTooLarge(
                f"a line is longer than {max_line} bytes: split it, or raise reading.max_document_bytes"
            )
        batch.append(line)
        size += len(line)
        if size >= _BATCH_SIZE:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _split(text: str) -> list[str]:
    """Return the lines of a text; a form feed, vertical tab or NEL in a line becomes a line end within it."""
    lines = _LINE_END.split(text)
    if not lines[-1]:
        lines.pop()
    return list(map(clean_text, lines))
