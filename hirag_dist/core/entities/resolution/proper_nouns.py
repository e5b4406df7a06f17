"""Test of whether a name is a proper one: what a text writes with a capital where a sentence does not ask for it."""

from __future__ import annotations

import re

_ARTICLE = re.compile(r"(?:the|an?)\s+", re.IGNORECASE)
_BEFORE_A_SENTENCE = re.compile(r"(?:^|[.!?:;\n])[\s\"“'‘(]*(?:(?:The|An?)\s+)?$")


def is_proper(name: str, description: str) -> bool:
    """Test of whether a name is that of one thing rather than of a kind.

    The description decides: a proper name has its capital within a sentence, a common one is in lower case somewhere.
    Where it does not say, one word that begins with a capital is taken for proper, and several words are not: models
    write names like titles.

    >>> is_proper("Windows", "Sold by Microsoft as Windows."), is_proper("Bees", "Insects; bees make honey.")
    (True, False)
    """
    bare = _ARTICLE.sub("", name, count=1) if _ARTICLE.match(name) else name
    if not bare[:1].isupper():
        return False
    proper = len(bare.split()) == 1
    for found in re.finditer(rf"(?<!\w){re.escape(bare)}(?!\w)", description, re.IGNORECASE):
        if found.group()[0].islower():
            return False
        proper = proper or not _BEFORE_A_SENTENCE.search(description, 0, found.start())
    return proper
