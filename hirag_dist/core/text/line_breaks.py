"""Line breaks of plain text that stand inside a sentence, as in texts that are wrapped at a fixed width."""

from __future__ import annotations

import re
from itertools import groupby
from typing import Final

_MARKED: Final = re.compile(r"(?:[-*•+–|>#]|\(?\d{1,3}[.)])(?:\s|\Z)|\|")  # list items, tables, quotations, headings
_WIDTHS: Final = range(36, 111)  # characters of the longest line of a wrapped paragraph
_FULL, _GOES_ON = 0.75, 0.6  # shares of that width: a line that is full, and one that the next may go on from
_MIN_SMALL = 0.125  # share of the lines that begin inside a sentence, of a text that is wrapped


def unwrapped(text: str) -> str:
    r"""Return a text with a space for each line break inside a sentence. Its length and all positions stay.

    A line goes on with the next one if it is not much shorter than the longest of its paragraph, and the next begins
    with a small letter, or the text is wrapped: an eighth of its lines begin so, and most of the paragraph's are full.

    >>> unwrapped("He lit the lamp of the lighthouse and\nwent home.\n\n- one\n- two")
    'He lit the lamp of the lighthouse and went home.\n\n- one\n- two'
    """
    lines = text.split("\n")
    bare = [line.strip() for line in lines]
    inner = [bare[at] for at in range(1, len(lines)) if bare[at] and bare[at - 1]]
    small = sum(_begins_inside(line) for line in inner)
    if not small:
        return text
    is_wrapped = small >= _MIN_SMALL * len(inner)
    parts: list[str] = []
    for is_blank, block in groupby(range(len(lines)), key=lambda at: not bare[at]):
        rows = list(block)
        width = 0 if is_blank else max(len(bare[at]) for at in rows)
        wrapped_block = is_wrapped and 2 * sum(len(bare[at]) > _FULL * width for at in rows) >= len(rows)
        for at in rows:
            goes_on = (
                at > rows[0]
                and width in _WIDTHS
                and len(bare[at - 1]) > _GOES_ON * width
                and not bare[at - 1].startswith(("#", "|"))
                and not _MARKED.match(bare[at])
                and (wrapped_block or _begins_inside(bare[at]))
            )
            parts.append((" " if goes_on else "\n") + lines[at])
    return "".join(parts)[1:]


def _begins_inside(line: str) -> bool:
    """Return whether a line begins with a letter that is no capital."""
    return line[0].isalpha() and not line[0].isupper()
