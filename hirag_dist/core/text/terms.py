"""Terms of a text, by which texts are found word for word: one tokenisation for chunks and for questions.

No language is assumed: there is no stemming and no list of stop words. Case, the width of letters, and the accents of
Latin letters do not matter.

  words       of scripts with spaces, with the vowel signs of Indian scripts
  bigrams     of two characters, where words are not set apart (Chinese, Japanese, Thai, Lao, Khmer, Myanmar, Tibetan)
              and in Korean, where particles are attached to words; a character that stands alone is a term
  codes       of letters and digits, with signs between them (`AB-1234/5`, `3.14`, `v2`): the whole, and its parts

Distinctive passages are runs of words that other texts do not have (`Passages`).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import chain
from typing import Final

from hirag_dist.core.text.normalize import UNSPACED

MAX_CHARS: Final = 64  # of a term: longer ones, such as encoded data, are cut
_BIGRAMS = UNSPACED + "\u1100-\u11ff\uac00-\ud7a3"  # with Korean
MARKS: Final = "\u0300-\u036f\u0483-\u0487\u06d6-\u06dc\u06df-\u06e8\u06ea-\u06ed\u0900-\u0963\u0966-\u0d7f\u200c\u200d"
_LETTERS = rf"(?:[^\W_{_BIGRAMS}][{MARKS}]*)+"
_RUN = re.compile(rf"[{_BIGRAMS}]+|{_LETTERS}(?:[-.,/:_&@+#]{_LETTERS})*[+#]*")
_ASCII_RUN = re.compile(r"[a-z0-9]+(?:[-.,/:_&@+#][a-z0-9]+)*[+#]*")
_WORD = re.compile(_LETTERS)
_PIECE = re.compile(r"\d+|\D+")
_BIGRAM_RUN = re.compile(rf"[{_BIGRAMS}]")
_CODE = re.compile(r"[\d+#_@&]")
_ACCENTS = re.compile(
    "(?<=[a-z])[\u0300-\u036f]+|[\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0640\u064b-\u065f\u0670]"
)


def terms(text: str) -> list[str]:
    """Return the terms of a text, in its order.

    >>> terms("Curie's AB-12, 3.14")
    ['curie', 's', 'ab-12', 'ab', '12', '3.14', '3', '14']
    >>> terms("東京都 GPT4")
    ['東京', '京都', 'gpt4', 'gpt', '4']
    """
    return [term for run in runs(text) for term in terms_of_run(run)]


def runs(text: str) -> list[str]:
    """Return the runs of a text that are tokenised each for itself."""
    if text.isascii():
        return _ASCII_RUN.findall(text.lower())
    folded = unicodedata.normalize("NFKD", text).casefold()
    bare = _ACCENTS.sub("", folded)  # with the points of Hebrew and Arabic, which are written seldom
    return _RUN.findall(unicodedata.normalize("NFC", bare))


@lru_cache(1 << 16)
def terms_of_run(run: str) -> tuple[str, ...]:
    """Return the terms of one run."""
    if _BIGRAM_RUN.match(run):
        return tuple(run[at : at + 2] for at in range(max(len(run) - 1, 1)))
    if run.isalpha():
        return (run[:MAX_CHARS],)
    found = [run] if _CODE.search(run) else []
    for word in _WORD.findall(run):
        if word != run or not found:
            found.append(word)
        pieces = _PIECE.findall(word)
        if len(pieces) > 1:
            found += pieces
    return tuple(term[:MAX_CHARS] for term in found)


SHINGLE_WORDS = 8
_PASSAGE_WORD = re.compile(rf"[{UNSPACED}]|[^\W{UNSPACED}]+")
_STATEMENT_END = re.compile(r"[.!?;:\n\u3002\uff01\uff1f]+")
_MIN_PASSAGE_WORDS = 6  # of a text that is shorter than a shingle and counts as a whole

Passage = tuple[str, ...]


def words(text: str) -> list[str]:
    """Return the words of a text, case folded; where writing does not set words apart, its characters.

    >>> words("The Analytical-Engine, 1843: 東京")
    ['the', 'analytical', 'engine', '1843', '東', '京']
    """
    return _PASSAGE_WORD.findall(unicodedata.normalize("NFKC", text).casefold())


def shingles(text: str) -> Iterator[Passage]:
    """Yield every run of `SHINGLE_WORDS` words; a shorter text is one passage, if it has at least six words.

    >>> list(shingles("One, two, three, four, five, six."))
    [('one', 'two', 'three', 'four', 'five', 'six')]
    """
    found = words(text)
    if len(found) >= SHINGLE_WORDS:
        yield from _runs(found, SHINGLE_WORDS)
    elif len(found) >= _MIN_PASSAGE_WORDS:
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

    def __iter__(self) -> Iterator[Passage]:
        return chain.from_iterable(self._by_length.values())

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


class Joints:
    """Passages that arise where statements are joined, as a summary puts sentences of several documents in a row.

    >>> joints = Joints([("terms", "of", "calder", "it", "will", "answer")])
    >>> joints.add("These are the terms of Calder. It will answer.")
    >>> joints.joined()
    [('terms', 'of', 'calder', 'it', 'will', 'answer')]
    """

    def __init__(self, passages: Iterable[Passage]) -> None:
        """Look for these passages."""
        self._passages = list(passages)
        self._wanted = {
            passage[first:last]
            for passage in self._passages
            for first in range(len(passage))
            for last in range(first + 1, len(passage) + 1)
            if last - first < len(passage)
        }
        self._ends: set[Passage] = set()  # wanted parts with which a statement ends
        self._begins: set[Passage] = set()
        self._whole: set[Passage] = set()

    def add(self, text: str) -> None:
        """Note the statements of a text, which other texts may hold in any order."""
        for statement in _STATEMENT_END.split(text):
            said = tuple(words(statement))
            self._ends |= self._wanted.intersection(said[-size:] for size in range(1, SHINGLE_WORDS))
            self._begins |= self._wanted.intersection(said[:size] for size in range(1, SHINGLE_WORDS))
            if said in self._wanted:
                self._whole.add(said)

    def joined(self) -> list[Passage]:
        """Return the passages that two or three statements make, one after the other."""
        return [passage for passage in self._passages if self._is_joined(passage)]

    def _is_joined(self, passage: Passage) -> bool:
        cuts = range(1, len(passage))
        firsts = [cut for cut in cuts if passage[:cut] in self._ends]
        lasts = [cut for cut in cuts if passage[cut:] in self._begins]
        return any(
            first == last or (first < last and passage[first:last] in self._whole) for first in firsts for last in lasts
        )


def _runs(found: list[str], length: int) -> Iterator[Passage]:
    return zip(*(found[at:] for at in range(length)), strict=False)
