"""Entity linking: phrases of a question are looked up among the names of entities.

A name matches a phrase with the same words, whatever the case, the width of the letters and the punctuation around
them. In scripts without spaces, every ideograph, kana and syllable (of the scripts of South-East Asia) is a word.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hirag_dist.core.access import Flags
from hirag_dist.core.numba_jit import compiled
from hirag_dist.core.text.normalize import UNSPACED
from hirag_dist.types import IntVector

MAX_WORDS: Final = 16  # of a name; in scripts without spaces these are letters
_MAX_ROWS = 16  # entities of one name
_MAX_READ = 512  # words of a question
_WORD = re.compile(rf"[{UNSPACED}]|[^\W_{UNSPACED}]+")
_FACTOR = 0x9E3779B97F4A7C15
_ALL_BITS = (1 << 64) - 1
_MAX_CHANGED_WORDS = 4  # of a name whose misspellings are looked up
_MAX_CHANGED_LETTERS = 24  # of a word
_OF_LENGTH = [n * pow(_FACTOR, n, 1 << 64) & _ALL_BITS for n in range(MAX_WORDS + 1)]  # added to a key of n words
_OF_LENGTHS = np.array(_OF_LENGTH, np.uint64)

Key = NDArray[np.uint64]


class NameIndex(NamedTuple):
    """Names of entities, by a hash of their words.

    Attributes:
        keys: (n,) uint64, ascending.
        rows: (n,) int32 entity of each; those of equal keys ascend.
    """

    keys: Key
    rows: NDArray[np.int32]


class NamePhrase(NamedTuple):
    """Words [start, end) of a question, and an entity of that name."""

    start: int
    end: int
    row: int


def words(text: str) -> list[str]:
    """Return the normalised words of a text.

    >>> words("Ｍarie Curie's 東京")
    ['marie', 'curie', 's', '東', '京']
    """
    return _WORD.findall(text.lower() if text.isascii() else unicodedata.normalize("NFKC", text).casefold())


def spelled_words(text: str) -> list[str]:
    """Return the words of a text as they are written; [] where case folding divides one of them.

    >>> spelled_words("Ｍarie Curie's work")
    ['Marie', 'Curie', 's', 'work']
    """
    found = _WORD.findall(text if text.isascii() else unicodedata.normalize("NFKC", text))
    return found if len(found) == len(words(text)) else []


def name_keys(names: Iterable[str]) -> tuple[Key, IntVector]:
    """Return (keys, positions) of the names of 1 to `MAX_WORDS` words.

    Args:
        names: of entities.

    Returns:
        A key of each, and its position among the names.
    """
    keys, positions = [], []
    for position, name in enumerate(names):
        name_words = words(name)
        if 0 < len(name_words) <= MAX_WORDS:
            keys.append(_key(name_words))
            positions.append(position)
    return np.array(keys, np.uint64), np.array(positions, np.int64)


def sorted_names(keys: Key, rows: IntVector) -> NameIndex:
    """Return an index of names, sorted for look-ups."""
    order = np.lexsort((rows, keys))
    return NameIndex(keys[order], rows[order].astype(np.int32))


def found_names(
    names: NameIndex, read: Sequence[str], admits: Callable[[NDArray[np.int32]], Flags] | None = None
) -> list[NamePhrase]:
    """Return every phrase that is the name of an entity, by its start, end and row.

    Args:
        names: of entities.
        read: the words of the question; those after the first 512 are ignored.
        admits: entity rows → which of them count, before the first 16 of a name are taken; None: all.
    """
    numbers = np.fromiter(map(_number, read[:_MAX_READ]), np.uint64)
    spans = np.empty((len(numbers) * MAX_WORDS, 4), np.int64)
    count = _fill_spans(names.keys, numbers, _OF_LENGTHS, spans)
    phrases: list[NamePhrase] = []
    for start, end, first, last in spans[:count].tolist():
        rows = names.rows[first:last]
        rows = rows if admits is None else rows[admits(rows)]
        phrases += [NamePhrase(start, end, row) for row in rows[:_MAX_ROWS].tolist()]
    return phrases


@compiled
def _fill_spans(
    keys: Key, numbers: NDArray[np.uint64], of_lengths: NDArray[np.uint64], spans: NDArray[np.int64]
) -> Any:
    """Write (start, end, first, last) of every phrase that has keys: its words, and the positions of these keys.

    Args:
        keys: of names, ascending.
        numbers: of the words of the question.
        of_lengths: added to a key, by its number of words.

    Returns:
        Their number.
    """
    count = 0
    for start in range(len(numbers)):
        phrase = np.uint64(0)
        for end in range(start + 1, min(start + MAX_WORDS, len(numbers)) + 1):
            phrase = phrase * np.uint64(_FACTOR) + numbers[end - 1]
            wanted = phrase + of_lengths[end - start]
            first, last = 0, len(keys)
            while first < last:
                middle = (first + last) >> 1
                if keys[middle] < wanted:
                    first = middle + 1
                else:
                    last = middle
            while last < len(keys) and keys[last] == wanted:
                last += 1
            if last > first:
                spans[count, 0], spans[count, 1], spans[count, 2], spans[count, 3] = start, end, first, last
                count += 1
    return count


def similar_names(
    names: NameIndex, read: Sequence[str], admits: Callable[[NDArray[np.int32]], Flags] | None = None
) -> list[tuple[int, list[str]]]:
    """Return the entities whose names differ from a name by one letter: (row, words of the name), by row.

    A letter is missing, added or another, or two neighbours are exchanged. All such spellings are looked up by their
    hashes, so the time does not depend on the number of names.

    Args:
        names: of entities.
        read: the words of the name; longer words and longer names than names of entities usually have are not changed.
        admits: entity rows → which of them count; None: all.
    """
    if not 0 < len(read) <= MAX_WORDS:
        return []
    own, n = _key(read), len(read)
    changed: list[tuple[int, str]] = []
    keys = []
    for position, word in enumerate(read[:_MAX_CHANGED_WORDS]):
        factor = pow(_FACTOR, n - 1 - position, 1 << 64)
        for spelling in sorted(_spellings(word)):
            changed.append((position, spelling))
            keys.append((own + (_hash(spelling) - _number(word)) * factor) & _ALL_BITS)
    wanted = np.array(keys, np.uint64)
    first, last = (np.searchsorted(names.keys, wanted, side) for side in ("left", "right"))
    found = []
    for at in np.flatnonzero(last > first).tolist():
        rows = names.rows[first[at] : last[at]]
        rows = rows if admits is None else rows[admits(rows)]
        position, spelling = changed[at]
        found += [(row, [*read[:position], spelling, *read[position + 1 :]]) for row in rows[:_MAX_ROWS].tolist()]
    return sorted(found)


def _spellings(word: str) -> set[str]:
    """Return the words that differ from a word by one letter.

    >>> sorted(_spellings("ab") & {"ba", "a", "abs", "ax", "ab", "abcd"})
    ['a', 'abs', 'ax', 'ba']
    """
    if len(word) > _MAX_CHANGED_LETTERS:
        return set()
    letters = {*"abcdefghijklmnopqrstuvwxyz", *word}
    splits = [(word[:at], word[at:]) for at in range(len(word) + 1)]
    found = {head + tail[1:] for head, tail in splits if tail}
    found |= {head + tail[1] + tail[0] + tail[2:] for head, tail in splits if len(tail) > 1}
    found |= {head + letter + rest for head, tail in splits for letter in letters for rest in {tail, tail[1:]}}
    return found - {word, ""}


def longest_names(phrases: Iterable[NamePhrase]) -> list[int]:
    """Return the rows of the longest phrases, in the order of the question, each once.

    >>> longest_names([NamePhrase(0, 1, 5), NamePhrase(0, 2, 7), NamePhrase(0, 2, 9), NamePhrase(3, 4, 5)])
    [7, 9, 5]
    """
    return rows_of(longest_phrases(phrases))


def rows_of(phrases: Iterable[NamePhrase]) -> list[int]:
    """Return the rows of some phrases in their order, each once."""
    return list(dict.fromkeys(phrase.row for phrase in phrases))


def longest_phrases(phrases: Iterable[NamePhrase]) -> list[NamePhrase]:
    """Return the longest phrases, in the order of the question; a word is part of one name.

    Of phrases that overlap the longest counts, of equally long ones the first. Entities of one name all count.
    """
    taken: set[int] = set()
    kept: dict[tuple[int, int], list[NamePhrase]] = {}
    for phrase in sorted(phrases, key=lambda one: (one.start - one.end, one.start, one.row)):
        span = (phrase.start, phrase.end)
        if span in kept:
            kept[span].append(phrase)
        elif taken.isdisjoint(range(*span)):
            taken.update(range(*span))
            kept[span] = [phrase]
    return [phrase for span in sorted(kept) for phrase in kept[span]]


def _key(phrase: Sequence[str]) -> int:
    key = 0
    for word in phrase:
        key = (key * _FACTOR + _number(word)) & _ALL_BITS
    return (key + _OF_LENGTH[len(phrase)]) & _ALL_BITS


@lru_cache(1 << 16)
def _number(word: str) -> int:
    return _hash(word)


def _hash(word: str) -> int:
    return int.from_bytes(blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")
