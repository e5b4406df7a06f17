"""Common words, pairs of words and names of a cluster's members; and a split by them where they share little."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hirag_dist.llm.rule_based.language import HAN_RUN, NOUN, STOP, UNSPACED, VERB, WORD, singular, word_class
from hirag_dist.llm.rule_based.word_lists import DATES, DEMONYMS, EVERYDAY, GENERIC, STRUCTURE, WEAK

_ENOUGH = 0.6  # share of the members that one theme must hold to stand for all
_RANKED = 60
_NAME = re.compile(
    r"[A-ZÀ-ÞА-Я][\w’'-]+(?: (?:of the |of |de |du |di |von |van )?[A-ZÀ-ÞА-Я][\w’'-]+){1,3}|\b[A-ZÀ-Þ]{2,6}s?\b"
)

Phrases = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Topic:
    """Shared phrases (in small letters), best first, and the places of the members that they hold together."""

    words: tuple[str, ...]
    members: tuple[int, ...]


def phrases_of(text: str) -> Phrases:
    """Return the names, nouns and noun pairs of a text: how they are compared → how they are written."""
    found: dict[str, str] = {}
    for name in _NAME.findall(text):
        words = name.lower().split()
        if word_class(words[0]) == STOP or words[0] in DATES:
            continue
        found.setdefault(name.lower(), name)
    previous = shown_before = ""
    for word in WORD.findall(text):
        low = word.lower().removesuffix("'s").removesuffix("’s")
        kind = word_class(low)
        usable = kind not in (STOP, VERB) and len(low) > 2 and low not in DATES and low not in STRUCTURE
        if not usable:
            previous = ""
            continue
        plain = singular(low)
        shown = word[: len(low)] if word[0].isupper() else plain
        found.setdefault(plain, shown)
        if previous and kind == NOUN and previous not in WEAK:
            found.setdefault(f"{previous} {plain}", f"{shown_before} {shown}")
        previous, shown_before = (plain if kind == NOUN else low), shown
        if word != word[: len(low)]:
            previous = ""
    if UNSPACED.search(text):
        found = {word: shown for word, shown in found.items() if not UNSPACED.search(word)}
        runs = HAN_RUN.findall(text)
        grams = [run[at : at + size] for run in runs for size in (4, 3, 2) for at in range(len(run) - size + 1)]
        found.update((gram, gram) for gram in grams)
    return found


def find_themes(members: Sequence[tuple[Phrases, Phrases]]) -> list[Topic]:
    """Return one theme, or up to three, that cover the members between them.

    Args:
        members: for each, the phrases of its name and of its description.
    """
    everyone = range(len(members))
    scores = _scores(members)
    if not scores:
        return [Topic((), tuple(everyone))]
    ranked = sorted(scores, key=lambda word: (-scores[word], word))[:_RANKED]
    first = _holders(ranked[0], members)
    if len(first) >= _ENOUGH * len(members) or len(members) < 6:
        return [Topic(_companions(ranked, everyone, members, scores), tuple(everyone))]
    centres = [ranked[0]]
    held = set(first)
    for word in ranked[1:]:
        fresh = [place for place in _holders(word, members) if place not in held]
        if len(fresh) >= max(2, len(members) // 6) and len(centres) < 3:
            centres.append(word)
            held.update(fresh)
    groups: list[list[int]] = [[] for _ in centres]
    for place, (named, told) in enumerate(members):
        fits = [2 * (word in named) + (word in told) for word in centres]
        groups[fits.index(max(fits))].append(place)
    return [
        Topic(_companions(ranked, group, members, scores, centre), tuple(group))
        for centre, group in zip(centres, groups, strict=True)
        if group
    ]


def _scores(members: Sequence[tuple[Phrases, Phrases]]) -> dict[str, float]:
    """Return how much each phrase that two members share says about them."""
    in_names = Counter(word for named, _ in members for word in named)
    in_texts = Counter(word for named, told in members for word in {**told, **named})
    scores = {}
    for word, count in in_texts.items():
        if count < 2:
            continue
        score = count + 1.2 * in_names[word]
        if " " in word or (UNSPACED.match(word) and len(word) > 2):
            score *= 1.5
        elif word in GENERIC or word in DEMONYMS or word_class(word) != NOUN:
            score *= 0.3
        elif word in EVERYDAY:
            score *= 0.8
        scores[word] = score
    return scores


def _holders(word: str, members: Sequence[tuple[Phrases, Phrases]]) -> list[int]:
    return [place for place, (named, told) in enumerate(members) if word in named or word in told]


def _companions(
    ranked: Sequence[str],
    group: Sequence[int],
    members: Sequence[tuple[Phrases, Phrases]],
    scores: Mapping[str, float],
    centre: str = "",
) -> tuple[str, ...]:
    """Return the phrases that most of a group share, its centre first, none a part of another."""
    counts = {word: sum(word in members[place][0] or word in members[place][1] for place in group) for word in ranked}
    order = sorted(ranked, key=lambda word: (-counts[word] * scores[word], word))
    chosen = [centre or ranked[0]]
    for word in order:
        if counts[word] < 2 or len(chosen) == 4:
            break
        plain = word in DEMONYMS or (" " not in word and word_class(word) != NOUN)
        if not plain and not any(word in other or other in word for other in chosen):
            chosen.append(word)
    return tuple(chosen)
