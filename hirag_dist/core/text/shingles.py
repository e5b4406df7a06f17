"""Distinctive passages of texts: runs of words that other texts do not have, and where they occur."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator

from hirag_dist.core.text.normalize import UNSPACED

SHINGLE_WORDS = 8
_WORD = re.compile(rf"[{UNSPACED}]|[^\W{UNSPACED}]+")
_MIN_WORDS = 6  # of a text that is shorter than a shingle and counts as a whole

Passage = tuple[str, ...]


def words(text: str) -> list[str]:
    """Return the words of a text, case folded; where writing does not set words apart, its characters.

    >>> words("The Analytical-Engine, 1843: 東京")
    ['the', 'analytical', 'engine', '1843', '東', '京']
    """
    return _WORD.findall(unicodedata.normalize("NFKC", text).casefold())


def shingles(text: str) -> Iterator[Passage]:
    """Yield every run of `SHINGLE_WORDS` words; a shorter text is one passage, if it has at least six words.

    >>> list(shingles("One, two, three, four, five, six."))
    [('one', 'two', 'three', 'four', 'five', 'six')]
    """
    found = words(text)
    if len(found) >= SHINGLE_WORDS:
        yield from _runs(found, SHINGLE_WORDS)
    elif len(found) >= _MIN_WORDS:
        yield tuple(found)


class Passages:
    """A set of passages that texts are searched for.

    >>> passages = Passages([("analytical", "engine")])
    >>> passages.within("Notes on the Analytical Engine")
    {('analytical', 'engine')}
    """

    def __init__(self, passages: Iterable[Passage] = ()) -> None:
        self._by_length: dict[int, set[Passage]] = {}
        self.add(passages)

    def __len__(self) -> int:
        return sum(map(len, self._by_length.values()))

    def add(self, passages: Iterable[Passage]) -> None:
        """Add passages; empty ones are ignored."""
        for passage in passages:
            if passage:
                self._by_length.setdefault(len(passage), set()).add(passage)

    def within(self, text: str) -> set[Passage]:
        """Return the passages that a text holds, whatever its case and punctuation."""
        found: set[Passage] = set()
        if text and self._by_length:
            said = words(text)
            for length, passages in self._by_length.items():
                if len(said) >= length:
                    found |= passages.intersection(_runs(said, length))
        return found

    def discard(self, passages: Iterable[Passage]) -> None:
        """Remove passages."""
        for passage in passages:
            self._by_length.get(len(passage), set()).discard(passage)

    def discard_within(self, text: str) -> None:
        """Remove the passages that a text holds."""
        self.discard(self.within(text))


def _runs(found: list[str], length: int) -> Iterator[Passage]:
    return zip(*(found[at:] for at in range(length)), strict=False)
