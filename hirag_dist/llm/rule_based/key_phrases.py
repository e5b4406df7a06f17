"""Terms: noun phrases that a text keeps coming back to, scored by how often they occur on their own (C-value)."""

from __future__ import annotations

from collections.abc import Sequence

from hirag_dist.llm.rule_based.entity_types import term_kind
from hirag_dist.llm.rule_based.language import (
    ADJECTIVE,
    GERUND,
    NOUN,
    PARTICIPLE,
    STOP,
    VERB,
    is_common,
    is_everyday,
    singular,
    word_class,
)
from hirag_dist.llm.rule_based.names import NameOccurrence, Spelling, bare
from hirag_dist.llm.rule_based.word_lists import DATES, DEMONYMS, GENERIC, NOUN_TOO, STRUCTURE, VERBS, WEAK, word_set

_MAX_WORDS = 4
_WEIGHT = (0.0, 0.8, 1.6, 2.0, 2.1)  # by number of words
_DETERMINERS = word_set("a an the this that these those of my your his her its our their each every any no some")
_LIKE_ADJECTIVES = ("y", "id", "ent", "ant", "ern", "er")
_VERB_TOO = VERBS & NOUN_TOO  # "curve display": a verb more often than not
_NAME = 10  # a capitalised word inside a phrase: "Bell state"


def find_terms(sentences: Sequence[Sequence[str]], spelling: Spelling) -> list[NameOccurrence]:
    """Return the recurring noun phrases of a text, in the singular and in small letters."""
    places: dict[tuple[str, ...], list[tuple[int, int]]] = {}
    compounds: set[tuple[str, ...]] = set()
    for number, words in enumerate(sentences):
        if spelling.titled[number] and len(words) > 12:
            continue
        for start, kinds, run in _runs(words, spelling):
            _note(places, compounds, number, start, kinds, run)
    single = {key[0]: len(where) for key, where in places.items() if len(key) == 1}
    inside: dict[tuple[str, ...], list[int]] = {}
    for key, where in places.items():
        if len(key) > 1 and len(where) > 1:
            for size in range(1, len(key)):
                for at in range(len(key) - size + 1):
                    inside.setdefault(key[at : at + size], []).append(len(where))
    found = []
    for key, where in places.items():
        score = _score(key, len(where), inside.get(key, ()), single, key in compounds)
        if score > 0:
            found.append(NameOccurrence(" ".join(key), term_kind(key), where, score, proper=False))
    return found


def _runs(words: Sequence[str], spelling: Spelling) -> list[tuple[int, list[int], list[str]]]:
    """Return (place, word classes, words) of each unbroken run of words that can form a noun phrase."""
    found: list[tuple[int, list[int], list[str]]] = []
    kinds: list[int] = []
    run: list[str] = []
    previous = ""
    for at, word in enumerate(words):
        kind, shown = _class_of(word, at, spelling)
        if kind == PARTICIPLE and (run or previous not in _DETERMINERS):
            kind = VERB
        if kind == _NAME and run and kinds[-1] != _NAME:
            found.append((at - len(run), kinds, run))
            kinds, run = [], []
        if kind in (STOP, VERB):
            if run:
                found.append((at - len(run), kinds, run))
                kinds, run = [], []
        else:
            kinds.append(kind)
            run.append(shown)
            if bare(word) != word:
                found.append((at + 1 - len(run), kinds, run))
                kinds, run = [], []
        previous = word
    if run:
        found.append((len(words) - len(run), kinds, run))
    return found


def _class_of(word: str, at: int, spelling: Spelling) -> tuple[int, str]:
    if not word[0].isalpha() or (len(word) < 3 and not word.isupper()):
        return STOP, word
    shown = bare(word)
    low = shown.lower()
    if word[0].isupper() and (at > 0 or spelling.small[low] == 0):
        if low in DEMONYMS or low in DATES or low in STRUCTURE or word_class(low) == STOP or word[-1] == ".":
            return STOP, shown
        if spelling.small[low] >= spelling.capital[low] and spelling.small[low]:
            return word_class(low), low
        return _NAME, shown
    if shown != low and "'" in shown + shown.replace("’", "'"):
        return _NAME, shown  # d'Italia
    if any(map(str.isdigit, low)):
        return STOP, low
    return word_class(low), low


def _note(
    places: dict[tuple[str, ...], list[tuple[int, int]]],
    compounds: set[tuple[str, ...]],
    number: int,
    start: int,
    kinds: list[int],
    run: list[str],
) -> None:
    n = len(run)
    for end in range(1, n + 1):
        last = kinds[end - 1]
        if last in (_NAME, ADJECTIVE, PARTICIPLE, GERUND):
            continue
        tail = singular(run[end - 1])
        for first in range(max(0, end - _MAX_WORDS), end):
            if first and kinds[first] == _NAME and kinds[first - 1] == _NAME:
                continue  # "England maiden" of a New England maiden
            key = (*run[first : end - 1], tail)
            places.setdefault(key, []).append((number, start + first))
            if end - first == 2 and kinds[first] == NOUN:
                compounds.add(key)


def _score(key: tuple[str, ...], count: int, inside: Sequence[int], single: dict[str, int], compound: bool) -> float:
    size = len(key)
    own = count - (sum(inside) / len(inside) if inside else 0.0)
    last = key[-1]
    if len(last) < 3 or last in STRUCTURE:
        return 0.0
    if size == 1:
        if count < 3 or is_everyday(last) or len(last) < 4 or own < 1:
            return 0.0
        return _WEIGHT[1] * own
    if key[0] in WEAK:
        return 0.0
    if (key[0] in GENERIC and last in GENERIC) or all(is_common(word.lower()) for word in key):
        return 0.8 * own if compound and count > 2 else 0.0  # "interest rate"
    if len(set(key)) < size or (count < 3 and last in _VERB_TOO):
        return 0.0
    if count > 1:
        return _WEIGHT[size] * own if own > 0.5 else 0.0
    if size > 3 or inside or last in GENERIC:
        return 0.0
    known = sum(single.get(word, 0) > 2 and not is_common(word) for word in key)
    if known:
        return 0.9 + 0.2 * known
    first = key[0]
    plausible = compound and len(first) > 2 and first not in GENERIC and singular(first) == first
    return 0.6 if plausible and not first.endswith(_LIKE_ADJECTIVES) else 0.0
