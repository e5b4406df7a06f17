"""Noun phrases: words and short phrases that a text comes back to, scored by how often they occur on their own.

English phrases are divided by word classes. In any other language with spaces only counts are used: a word that is
short and frequent is a function word, and words that differ by a short ending or beginning (particles of Korean, the
article of Arabic) are one where the bare form, or the common part of several forms, occurs.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from hirag_dist.llm.rule_based.language import (
    GENERIC,
    NOUN,
    STOP,
    STRUCTURE,
    VERB,
    VERBS,
    is_common,
    is_everyday,
    singular,
    word_class,
    word_list,
)
from hirag_dist.llm.rule_based.names import Spelling, bare
from hirag_dist.types import FoundName

_MAX_WORDS = 3
_WEIGHT = (0.0, 0.8, 1.6, 2.0)  # by number of words
_COMPOUND = 0.6  # score of two nouns that occur once: "queen cell"
_LIKE_ADJECTIVES = ("y", "id", "ent", "ant", "ern", "er")
_HANGUL = re.compile("[가-힣]")
_MIN_STEM, _MIN_HANGUL_STEM = 4, 2  # characters
_MAX_AFFIX = 2
_FREQUENT, _MIN_FREQUENT = 0.01, 6  # share of the text's words, and count, from which a short word is a function word
_SHORT, _SHORT_CASELESS, _MAX_FUNCTION = 3, 2, 5  # letters: a function word by itself; if it is frequent

_WEAK = word_list("weak")
_TECHNOLOGY_TAILS, _EVENT_TAILS, _PRODUCT_TAILS = (
    word_list(f"{kind}_tails") for kind in ("technology", "event", "product")
)

Phrase = tuple[str, ...]


class _Word(NamedTuple):
    """A word that can be part of a phrase.

    Attributes:
        key: form that it is counted as.
        shown: form that it is shown in.
        ends: whether a phrase can end in it.
        last: whether the phrase ends here.
    """

    key: str
    shown: str
    ends: bool
    last: bool = False


class _Grammar(Protocol):
    def read(self, word: str, at: int) -> _Word | None:
        """Return a word of a sentence as a part of a phrase; None where it breaks one."""
        ...

    def score(self, phrase: Phrase, count: int, own: float) -> float:
        """Return how well a phrase stands out; 0 where it is none. `own`: occurrences outside longer phrases."""
        ...


def find_phrases(lines: Sequence[Sequence[str]], spelling: Spelling | None) -> list[FoundName]:
    """Return the noun phrases of a text.

    Args:
        lines: the words of each sentence.
        spelling: of a text in English; None in another language.
    """
    grammar: _Grammar = _Counted(lines) if spelling is None else _English(spelling)
    places: dict[Phrase, list[tuple[int, int]]] = {}
    shown: dict[Phrase, Counter[str]] = {}
    for number, words in enumerate(lines):
        if spelling is not None and spelling.titled[number] and len(words) > 12:
            continue
        for start, run in _runs(words, grammar):
            for first, end in _spans(run):
                phrase = run[first:end]
                key = tuple(word.key for word in phrase)
                places.setdefault(key, []).append((number, start + first))
                shown.setdefault(key, Counter())[" ".join(word.shown for word in phrase)] += 1
    inside: dict[Phrase, list[int]] = {}
    for key, where in places.items():
        for part in _parts(key) if len(where) > 1 else ():
            inside.setdefault(part, []).append(len(where))
    found = []
    for key, where in places.items():
        longer = inside.get(key, [])
        own = len(where) - sum(longer) / max(len(longer), 1)
        score = 0.0 if len(set(key)) < len(key) else grammar.score(key, len(where), own)
        if score > 0:
            name = min(shown[key], key=lambda form: (-shown[key][form], form))
            found.append(FoundName(name, term_kind(key), tuple(where), score))
    return found


def _runs(words: Sequence[str], grammar: _Grammar) -> Iterable[tuple[int, list[_Word]]]:
    """Yield (place, words) of each unbroken run of words that can form a phrase."""
    run: list[_Word] = []
    for at, text in enumerate([*words, "."]):
        word = grammar.read(text, at)
        if word is not None:
            run.append(word)
        if run and (word is None or word.last):
            yield at + (word is not None) - len(run), run
            run = []


def _spans(run: Sequence[_Word]) -> Iterable[tuple[int, int]]:
    for end in range(1, len(run) + 1):
        if run[end - 1].ends:
            for first in range(max(end - _MAX_WORDS, 0), end):
                yield first, end


def _parts(key: Phrase) -> Iterable[Phrase]:
    for size in range(1, len(key)):
        for at in range(len(key) - size + 1):
            yield key[at : at + size]


class _English:
    def __init__(self, spelling: Spelling) -> None:
        self._spelling = spelling

    def read(self, word: str, at: int) -> _Word | None:
        shown = bare(word)
        low = shown.lower()
        if not low.replace("-", "").replace("'", "").isalpha() or len(word) < 3 or low in STRUCTURE:
            return None
        if word[0].isupper() and not self._spelling.small[low]:
            return None  # a name
        kind = word_class(low)
        if kind in (STOP, VERB):
            return None
        key = singular(low) if kind == NOUN else low
        return _Word(key, key, kind == NOUN, last=shown != word)

    def score(self, phrase: Phrase, count: int, own: float) -> float:
        first, last = phrase[0], phrase[-1]
        if len(phrase) == 1:
            ordinary = is_everyday(last) or len(last) < 4
            return 0.0 if count < 3 or own < 1 or ordinary else _WEIGHT[1] * own
        if first in _WEAK or own <= 0.5:
            return 0.0
        compound = len(phrase) == 2 and word_class(first) == NOUN
        if all(map(is_common, phrase)):
            return 0.8 * own if compound and count > 2 else 0.0  # "interest rate"
        if count < 3 and last in VERBS:  # "curve display": a verb more often than not
            return 0.0
        if count > 1:
            return _WEIGHT[len(phrase)] * own
        plausible = compound and not {first, last} & GENERIC and not first.endswith(_LIKE_ADJECTIVES)
        return _COMPOUND if plausible else 0.0


class _Counted:
    def __init__(self, lines: Sequence[Sequence[str]]) -> None:
        counts = Counter(word.lower() for words in lines for word in words if word[0].isalpha())
        self._stems = _stems(counts)
        self._common = _function_words(counts)

    def read(self, word: str, at: int) -> _Word | None:
        low = word.lower()
        if not word[0].isalpha() or low in self._common:
            return None
        bare_form = self._stems.get(word, word) if _HANGUL.match(word) else word  # without a Korean particle
        return _Word(self._stems.get(low, low), bare_form, ends=True)

    def score(self, phrase: Phrase, count: int, own: float) -> float:
        return _WEIGHT[len(phrase)] * own if count > 1 and own >= 1 else 0.0


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


def term_kind(words: Sequence[str]) -> str:
    """Return the kind of a common-noun term, by its last word."""
    last = words[-1].lower()
    if last in _TECHNOLOGY_TAILS:
        return "technology"
    if last in _EVENT_TAILS:
        return "event"
    if len(words) > 1 and last in _PRODUCT_TAILS:
        return "product"
    return "concept"
