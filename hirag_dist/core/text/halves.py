"""Two halves of a text that is too long for a model to read at once."""

from __future__ import annotations

import re

_ENDS = (  # the best first: a paragraph, a sentence, a word
    re.compile(r"\n\s*\n"),
    re.compile(r"""[.!?…]["'”’»)\]]*\s+|[。！？]["'”’」』）]*\s*|\n"""),
    re.compile(r"\s+"),
)


def text_halves(text: str) -> tuple[str, str]:
    """Return the two halves of a text, parted at the end of a paragraph, sentence or word in its middle half.

    >>> text_halves("Ada wrote. Bob read it.")
    ('Ada wrote. ', 'Bob read it.')
    """
    middle = len(text) // 2
    for pattern in _ENDS:
        places = [match.end() for match in pattern.finditer(text, len(text) // 4, len(text) - len(text) // 4)]
        if places:
            middle = min(places, key=lambda place: abs(place - len(text) // 2))
            break
    return text[:middle], text[middle:]
