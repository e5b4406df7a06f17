"""Text hygiene: what every text goes through between its file and its `Document`."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable

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

    Args:
        text: any string, surrogates included.

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
