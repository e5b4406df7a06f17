"""Recurring words and phrases of a text in any language with spaces: no word list, no capitals, only counts.

A word that is short and frequent is a function word of the text: a phrase neither begins nor ends with one. Words that
differ by a short ending or beginning (particles of Korean, the article of Arabic) are one where the bare form, or the
common part of several forms, occurs.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from hirag_dist.core.text.terms import MARKS
from hirag_dist.llm.rule_based.names import NameOccurrence

_WORD = re.compile(rf"(?:[^\W\d_][{MARKS}]*)(?:[\w{MARKS}]|['’׳״\-‐](?=\w))*|\d+|[^\w\s]")
_MAX_WORDS = 3
_WEIGHT = (0.0, 0.8, 1.6, 2.0)  # by number of words
_HANGUL = re.compile("[가-힣]")
_MIN_STEM, _MIN_HANGUL_STEM = 4, 2  # characters
_MAX_AFFIX = 2
_FREQUENT, _MIN_FREQUENT = 0.01, 6  # share of the text's words, and count, from which a short word is a function word
_SHORT, _SHORT_CASELESS, _MAX_FUNCTION = 3, 2, 5  # letters: a function word by itself; if it is frequent

Phrase = tuple[str, ...]


def find_phrases(sentences: Sequence[str]) -> list[NameOccurrence]:
    """Return the words and phrases that recur, each by its commonest spelling."""
    lines = [_WORD.findall(line) for line in sentences]
    counts = Counter(word.lower() for words in lines for word in words if word[0].isalpha())
    stems = _stems(counts)
    common = _function_words(counts)
    places: dict[Phrase, list[tuple[int, int]]] = {}
    shown: dict[Phrase, Counter[str]] = {}
    for number, words in enumerate(lines):
        for start, run in _runs(words, common):
            for at, phrase in _phrases(run):
                key = tuple(stems.get(word.lower(), word.lower()) for word in phrase)
                places.setdefault(key, []).append((number, start + at))
                shown.setdefault(key, Counter())[" ".join([*phrase[:-1], _bare(phrase[-1], stems)])] += 1
    inside: dict[Phrase, list[int]] = {}
    for key, where in places.items():
        for part in _parts(key) if len(where) > 1 else ():
            inside.setdefault(part, []).append(len(where))
    found = []
    for key, where in places.items():
        score = _score(key, len(where), inside.get(key, ()))
        if score > 0:
            spellings = shown[key]
            name = min(spellings, key=lambda form: (-spellings[form], form))
            found.append(NameOccurrence(name, "concept", where, score, proper=False))
    return found


def _runs(words: Sequence[str], common: frozenset[str]) -> Iterable[tuple[int, list[str]]]:
    """Yield (place, words) of each unbroken run of words that are no function words."""
    run: list[str] = []
    for at, word in enumerate([*words, "."]):
        if word[0].isalpha() and word.lower() not in common:
            run.append(word)
            continue
        if run:
            yield at - len(run), run
        run = []


def _phrases(run: Sequence[str]) -> Iterable[tuple[int, Phrase]]:
    for size in range(1, _MAX_WORDS + 1):
        for at in range(len(run) - size + 1):
            yield at, tuple(run[at : at + size])


def _parts(key: Phrase) -> Iterable[Phrase]:
    for size in range(1, len(key)):
        for at in range(len(key) - size + 1):
            yield key[at : at + size]


def _score(key: Phrase, count: int, inside: Sequence[int]) -> float:
    """Return the C-value: how often the phrase occurs on its own, more for a longer one; 0 for none."""
    own = count - (sum(inside) / len(inside) if inside else 0.0)
    if count < 2 or own < 1 or len(set(key)) < len(key):
        return 0.0
    return _WEIGHT[len(key)] * own


def _function_words(counts: Counter[str]) -> frozenset[str]:
    frequent = max(_MIN_FREQUENT, _FREQUENT * counts.total())
    return frozenset(
        word
        for word, count in counts.items()
        if not _HANGUL.match(word)
        and (_length(word) <= _shortest(word) or (_length(word) <= _MAX_FUNCTION and count >= frequent))
    )


def _shortest(word: str) -> int:
    """Return the letters up to which a word is a function word; writing without vowels has shorter words."""
    return _SHORT if word.lower() != word.upper() else _SHORT_CASELESS


def _length(word: str) -> int:
    """Return the letters of a word; signs above and below others are none."""
    return sum(unicodedata.category(ch) != "Mn" for ch in word)


def _stems(counts: Mapping[str, int]) -> dict[str, str]:
    """Return word → the form that it is counted as, where another word of the text shares all but an affix."""
    prefixes = Counter(
        word[:size] for word in counts for size in range(max(_least(word), len(word) - _MAX_AFFIX), len(word) + 1)
    )
    stems: dict[str, str] = {}
    for word in counts:
        hangul = bool(_HANGUL.match(word))
        if hangul and prefixes[word] > 1:
            continue  # other words are this one with a particle
        sizes = range(1, min(_MAX_AFFIX, len(word) - _least(word)) + 1)
        ends = [word[: len(word) - cut] for cut in sizes]
        shared = [form for form in ends if form in counts or (hangul and prefixes[form] > 1)]
        shared += [word[cut:] for cut in sizes if word[cut:] in counts]
        if shared:
            stems[word] = shared[0]
    return {word: stems.get(form, form) for word, form in stems.items()}


def _least(word: str) -> int:
    return _MIN_HANGUL_STEM if _HANGUL.match(word) else _MIN_STEM


def _bare(word: str, stems: Mapping[str, str]) -> str:
    """Return a word without a Korean particle; as it is written in other writing."""
    return stems.get(word, word) if _HANGUL.match(word) else word
