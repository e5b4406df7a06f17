"""Bytes → text, whatever the encoding: of a whole file, or its lines in bounded memory.

In this order: a byte order mark; UTF-16 or UTF-32 without one, by the positions of NUL bytes; ISO-2022-JP by its
escapes; strict UTF-8; the charset that a page or a mail declares; the encoding that the user names, without which the
guess of chardetng, the detector of Firefox. Where it is guessed a file may mix encodings: lines that are valid UTF-8
are decoded as UTF-8, and the other lines by the guess for all of them.

Of 77 texts of 3 to 120 characters in 16 legacy encodings chardetng reads 67, chardet 7 reads 59, charset-normalizer 33.
"""

from __future__ import annotations

import codecs
import io
import re
from bisect import bisect_left
from collections.abc import Callable, Iterator
from typing import AnyStr

from hirag_dist.config.sections import ascii_codec
from hirag_dist.readers.model import FileRefused, InputTooLarge

_LINE_ENDS = re.compile("\r\n|[\r\v\f\x85]")
_CONTROLS = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f]")
_SURROGATES = re.compile("[\ud800-\udfff]")
_REMOVED = re.compile("\\A\ufeff|\r(?=\n)|[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f]")


def clean_text(text: str) -> str:
    r"""Return the text with one kind of line end and without characters that are no text.

    A leading byte order mark goes. CRLF, CR, vertical tab, form feed and NEL become LF (taking the last three
    out would join words). NUL and the other C0 and C1 control characters but tab and LF go; a lone surrogate
    becomes U+FFFD. Everything else stays, and nothing is normalised to NFC or NFKC: character spans point
    into this text, so it must be what the reader of the document sees.

    Returns:
        A string that encodes to UTF-8; maybe empty.

    >>> clean_text("\ufeffAlice\x00 met\r\nBob\ud800")
    'Alice met\nBob\ufffd'
    """
    text = text.removeprefix("\ufeff")
    text = _LINE_ENDS.sub("\n", text)
    text = _CONTROLS.sub("", text)
    return _SURROGATES.sub("\ufffd", text)


def cleaned_offsets(text: str) -> Callable[[int], int]:
    r"""Return the function from an offset in a text to the offset in `clean_text` of it.

    >>> at = cleaned_offsets("\ufeffAlice\x00 met\r\nBob")
    >>> at(1), at(12), at(15)
    (0, 9, 12)
    """
    removed = [match.start() for match in _REMOVED.finditer(text)]
    if not removed:
        return lambda offset: offset
    return lambda offset: offset - bisect_left(removed, offset)


_BOMS = (  # UTF-32 first: its little-endian mark begins with that of UTF-16
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_NUL_PATTERNS = {"0x0x": "utf-16-be", "x0x0": "utf-16-le", "000x": "utf-32-be", "x000": "utf-32-le"}
_MAGIC = (
    b"\x89PNG", b"\xff\xd8\xff", b"GIF89a", b"PK\x03\x04", b"\x1f\x8b", b"\x7fELF", b"\xd0\xcf\x11\xe0",
    b"BZh91AY&SY", b"PAR1", b"\xfd7zXZ\x00", b"\x28\xb5\x2f\xfd", b"\x04\x22\x4d\x18", b"7z\xbc\xaf",
    b"Rar!\x1a", b"SQLite format 3\x00", b"OggS\x00", b"ID3\x03", b"ID3\x04", b"\x00\x00\x01\x00", b"MZ\x90",
    b"%PDF-",
)  # fmt: skip
_CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")
_LINE_END = re.compile("\r\n|\r|\n")
_SAMPLE_BYTES = 1 << 14
_HEAD_BYTES = 1 << 12
_BATCH_SIZE = 1 << 20
_BLOCK_BYTES = 1 << 20
_ASCII = bytes(range(0x80))
_SIGNS = "\xa0’‘“”–—…•€£©®™°±·§«»½×".encode("cp1252")
_MULTIBYTE = frozenset(("gb18030", "big5hkscs", "cp932", "euc-jp", "cp949"))
_DAMAGE = 4
"""Characters of several bytes for each damaged byte, from which on a line is UTF-8 with damage."""


class NotText(ValueError):
    """The bytes are no text in any encoding."""

    def __init__(self) -> None:
        super().__init__("the content is binary, not text")


class WrongEncoding(FileRefused):
    """The bytes are not in the encoding that the user named."""

    def __init__(self, named: str, byte: int) -> None:
        super().__init__(
            f"the content is not {named}, which reading.encoding (--encoding) names: it has the byte "
            f"{byte:#04x} where {named} has no such character"
        )


def decode_text(data: bytes, declared: str | None = None, named: str | None = None) -> str:
    """Return bytes as text, with U+FFFD where a byte means nothing.

    Args:
        declared: the charset that the file itself names, believed unless the bytes contradict it.
        named: the encoding that the user names, in place of a guess.

    Raises:
        NotText: the bytes are binary.
        WrongEncoding: they are not in the named encoding.
    """
    codec = unicode_codec(data)
    if codec is not None:
        return data.decode(codec, errors="replace").removeprefix("\ufeff")
    return decode_bytes(data, declared, named)


def decode_bytes(data: bytes, declared: str | None = None, named: str | None = None) -> str:
    """Return bytes of which `unicode_codec` said None as text; arguments and errors as of `decode_text`."""
    if b"\x1b$" in data or b"\x1b(J" in data:
        text = _strict(data, "iso2022_jp")
        if text is not None:
            return text
    text = _utf8(data)
    if text is None and declared is not None and (codec := ascii_codec(declared)) is not None:
        text = _strict(data, codec)
    if text is not None:
        return text
    if named is None:
        return _decode_lines(data)
    try:
        return data.decode(ascii_codec(named) or named)
    except UnicodeDecodeError as error:
        raise WrongEncoding(named, error.object[error.start]) from None


def unicode_codec(head: bytes) -> str | None:
    """Return the Unicode codec that the head of a file shows, by its byte order mark or its NULs; else None.

    Raises:
        NotText: it is binary, by its magic number or its control characters.
    """
    for mark, codec in _BOMS:
        if head.startswith(mark):
            return codec
    if head.startswith(_MAGIC):
        raise NotText
    sample = head[:_SAMPLE_BYTES]
    units = sample[: len(sample) & ~3]
    quarter = len(units) // 4
    nuls = [units[offset::4].count(0) for offset in range(4)]
    pattern = "".join("0" if count > 0.4 * quarter else "x" if count <= 0.05 * quarter else "?" for count in nuls)
    if quarter and pattern in _NUL_PATTERNS:
        codec = _NUL_PATTERNS[pattern]
        sample = units.decode(codec, errors="replace").encode()
        if not _too_many_controls(sample):
            return codec
    if _too_many_controls(sample):
        raise NotText
    return None


def _too_many_controls(sample: bytes) -> bool:
    """Tell binary data, full of control characters and hardly ever UTF-8, from text with a few strays."""
    valid = _utf8(sample[: sample.rfind(b"\n") + 1] or sample) is not None
    return len(_CONTROL.findall(sample)) > (0.75 if valid else 0.05) * len(sample)


def _strict(data: bytes, codec: str) -> str | None:
    try:
        return data.decode(codec)
    except (ValueError, LookupError):  # ValueError: the codec "undefined", and a name with a NUL
        return None


def _utf8(data: bytes) -> str | None:
    """Decode UTF-8, also where characters beyond U+FFFF were written as two surrogates (CESU-8)."""
    text = _strict(data, "utf-8")
    if text is None and b"\xed" in data:
        try:
            text = data.decode("utf-8", errors="surrogatepass")
        except UnicodeDecodeError:
            return None
        return text.encode("utf-16-le", errors="surrogatepass").decode("utf-16-le", errors="replace")
    return text


def _decode_lines(data: bytes) -> str:
    """Decode lines of which at least one is not UTF-8."""
    sample, size = [], 0
    for line in io.BytesIO(data):
        if size >= _SAMPLE_BYTES:
            break
        if _utf8(line) is None:
            bare = line.removesuffix(b"\n")
            sample.append(bare[:_SAMPLE_BYTES])
            size += len(bare)
    return "".join(_decoded_blocks(data, _guess(b"\n".join(sample))))


def _guess(sample: bytes) -> str:
    """Return the codec of bytes that are not UTF-8."""
    from chardetng_py import detect  # not at the top: hardly any input needs it

    if not sample.translate(None, _ASCII + _SIGNS):
        return "cp1252"  # English with curly quotes and £, which chardetng takes for Polish
    codec: str = detect(sample, allow_utf8=False).lower()
    return ascii_codec(codec) or codec


def _decoded_blocks(data: bytes, codec: str) -> Iterator[str]:
    """Yield the text of some lines at a time: a list of all lines may take many times as much memory as they do."""
    stream = io.BytesIO(data)
    while lines := stream.readlines(_BLOCK_BYTES):
        block = b"".join(lines)
        text = _utf8(block)
        yield "".join([_line_text(line, codec) for line in lines]) if text is None else text


def _line_text(line: bytes, codec: str) -> str:
    """Return one line, with its end: UTF-8, or what the codec makes of it."""
    text = _utf8(line)
    if text is not None:
        return text
    bare = line.removesuffix(b"\n")
    return _decode_line(bare, codec) + "\n" * (len(line) - len(bare))


def _decode_line(line: bytes, codec: str) -> str:
    """Decode a line with the codec of the other lines, or with its own where that explains the line better."""
    damaged = line.decode("utf-8", errors="replace")
    n_damaged = damaged.count("\ufffd")
    if sum(character > "\x7f" for character in damaged) > (_DAMAGE + 1) * n_damaged:
        return damaged
    if codec not in _MULTIBYTE or _strict(line, codec) is None:
        own = _guess(line[:_SAMPLE_BYTES])
        if own in _MULTIBYTE and (text := _strict(line, own)) is not None:
            return text
    return line.decode(codec, errors="replace")


def text_lines(stream: io.BufferedReader, max_line_bytes: int, named: str | None = None) -> Iterator[str]:
    """Yield the cleaned lines of a stream, without their ends.

    About a megabyte is held at a time. The encoding is found for each such batch (`decode_bytes`), so that a
    stray byte far into a file does not matter to what came before it. Control characters go, CR and CRLF end
    lines too.

    Args:
        stream: at its start, with `peek`.
        named: the encoding that the user names, in place of a guess.

    Raises:
        NotText: the stream is binary.
        WrongEncoding: a batch is not in the named encoding; nothing from it on can be read.
        InputTooLarge: a line is longer than max_line_bytes; nothing after it can be read.
        OSError: from the stream.
    """
    codec = unicode_codec(stream.peek(_HEAD_BYTES))
    if codec is None or codec == "utf-8":
        for batch in _batches(stream.readline, max_line_bytes):
            yield from _split(decode_bytes(b"".join(batch), named=named))
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
            raise InputTooLarge(f"a line is longer than {max_line} bytes: split it")
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
