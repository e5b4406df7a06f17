"""Association of names by co-occurrence in the sentences of one text.

The strength of a pair is the cosine of its co-occurrences (Ochiai's coefficient), which is high where two names seldom
occur without each other, as pointwise mutual information is, and bounded where counts are small. It depends on one text
alone, so that a relation of a chunk stays the same whatever else is in the corpus; strengths of all chunks are added up
when relations are merged.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace

from hirag_dist.core.prompts.records import ExtractionReply, RelationRecord
from hirag_dist.types import FoundName

WINDOW_WORDS = 30  # farther apart in a sentence, two names do not count as together
_HALF_WORDS = 8  # distance at which a co-occurrence counts a half
_NEXT_SENTENCE = 0.25  # weight of names in consecutive sentences
_MAX_CROWD = 6  # names in a sentence, from which the next one is not looked at
_MAX_DISTANCE = 5  # sentences to the nearest name, for a name that is alone in its sentences
_ALONE = 0.1  # weight of that
RELATIONS_PER_NAME = 1.5
MIN_STRENGTH, MAX_STRENGTH = 1.0, 10.0
_SENTENCE_END = re.compile(r"[.!?][\"'”’)]?\s|[。！？]|\n")
_CHARS_PER_WORD, _CHARS_PER_CHARACTER = 6, 2  # a word with its space; two characters of writing without spaces


@dataclass(frozen=True, slots=True)
class Association:
    """Two names of a text that occur together.

    Attributes:
        first, second: their positions among the names, first < second.
        strength: 1 to 10.
        sentences: the sentence that has both closest together, twice, or the two consecutive ones.
    """

    first: int
    second: int
    strength: float
    sentences: tuple[int, int]


def with_strengths(extraction: ExtractionReply, text: str) -> ExtractionReply:
    """Return an extraction whose relations all have a strength: those without one, that of their names in the text.

    Two names that the text does not have close together get the least one.
    """
    if all(relation.strength for relation in extraction.relations):
        return extraction
    names = dict.fromkeys(name for one in extraction.relations if not one.strength for name in (one.source, one.target))
    number_of = {name: number for number, name in enumerate(names)}
    found = _places(list(names), text)
    pairs = _co_occurrences(found)

    def strength(relation: RelationRecord) -> float:
        one, other = sorted((number_of[relation.source], number_of[relation.target]))
        pair = pairs.get((one, other))
        return _strength(pair, found[one], found[other]) if pair else MIN_STRENGTH

    relations = (one if one.strength else replace(one, strength=strength(one)) for one in extraction.relations)
    return ExtractionReply(extraction.entities, tuple(relations))


def _places(names: Sequence[str], text: str) -> list[FoundName]:
    """Return where names stand in a text; the place in a sentence is counted in words of the usual length."""
    lowered = text.lower()
    ends = [end.end() for end in _SENTENCE_END.finditer(lowered)]
    per_word = _CHARS_PER_WORD if lowered.count(" ") * 2 * _CHARS_PER_WORD > len(lowered) else _CHARS_PER_CHARACTER
    found = []
    for name in names:
        places = []
        wanted = name.lower()
        at = lowered.find(wanted)
        while at >= 0:
            sentence = bisect_right(ends, at)
            places.append((sentence, (at - (ends[sentence - 1] if sentence else 0)) // per_word))
            at = lowered.find(wanted, at + len(wanted))
        found.append(FoundName(name, "", tuple(places), 0.0))
    return found


@dataclass(slots=True)
class _Pair:
    weight: float = 0.0
    best: float = 0.0
    sentences: tuple[int, int] = (0, 0)

    def add(self, weight: float, sentences: tuple[int, int]) -> None:
        self.weight += weight
        if weight > self.best:
            self.best, self.sentences = weight, sentences


def associations(names: Sequence[FoundName]) -> list[Association]:
    """Return the pairs of names that occur together, strongest first, and one at least for each name that has any.

    At most `RELATIONS_PER_NAME` pairs a name are returned, unless more are needed so that no name is left out.
    """
    pairs = _co_occurrences(names)
    for number in range(len(names)):
        _link_lonely(pairs, number, names)
    found = [
        Association(one, other, _strength(pair, names[one], names[other]), pair.sentences)
        for (one, other), pair in pairs.items()
    ]
    found.sort(key=lambda pair: (-pair.strength, pair.first, pair.second))
    return strongest(found, len(names))


def _co_occurrences(names: Sequence[FoundName]) -> dict[tuple[int, int], _Pair]:
    at: dict[int, list[tuple[int, int]]] = {}  # sentence → (word, name), in order
    for number, name in enumerate(names):
        for sentence, word in name.places:
            at.setdefault(sentence, []).append((word, number))
    pairs: dict[tuple[int, int], _Pair] = {}
    for sentence in sorted(at):
        here = sorted(at[sentence])
        closest: dict[tuple[int, int], int] = {}
        for rank, (word, one) in enumerate(here):
            for later, other in here[rank + 1 :]:
                if later - word > WINDOW_WORDS:
                    break
                if one != other:
                    key = (min(one, other), max(one, other))
                    closest[key] = min(closest.get(key, WINDOW_WORDS), later - word)
        for key, distance in closest.items():
            pairs.setdefault(key, _Pair()).add(1.0 / (1.0 + distance / _HALF_WORDS), (sentence, sentence))
        following = at.get(sentence + 1, [])
        if len(here) <= _MAX_CROWD and len(following) <= _MAX_CROWD:
            distinct = {(min(one, other), max(one, other)) for _, one in here for _, other in following if one != other}
            for key in distinct:
                pairs.setdefault(key, _Pair()).add(_NEXT_SENTENCE, (sentence, sentence + 1))
    return pairs


def _strength(pair: _Pair, one: FoundName, other: FoundName) -> float:
    """Return 1 to 10: the cosine of co-occurrences, less where it rests on few of them."""
    n_one, n_other = (len({sentence for sentence, _ in name.places}) for name in (one, other))
    cosine = min(pair.weight / math.sqrt(n_one * n_other), 1.0)
    certain = pair.weight / (pair.weight + 1.0)
    return round(min(MIN_STRENGTH + 2.0 * (MAX_STRENGTH - MIN_STRENGTH) * cosine * certain, MAX_STRENGTH), 2)


def _link_lonely(pairs: dict[tuple[int, int], _Pair], number: int, names: Sequence[FoundName]) -> None:
    """Tie a name that occurs together with none to the one that is named nearest before or after."""
    places = names[number].places
    if not places or any(number in key for key in pairs):
        return
    here = places[0][0]
    near = [
        (abs(sentence - here), other, sentence)
        for other, name in enumerate(names)
        if other != number
        for sentence, _ in name.places
        if abs(sentence - here) <= _MAX_DISTANCE
    ]
    if near:
        _, other, there = min(near)
        key = (min(number, other), max(number, other))
        pairs.setdefault(key, _Pair()).add(_ALONE, (min(here, there), max(here, there)))


def strongest(pairs: Sequence[Association], n_names: int) -> list[Association]:
    """Return the strongest pairs, `RELATIONS_PER_NAME` a name, but at least the strongest of each name.

    Args:
        pairs: strongest first.

    Returns:
        Pairs in the order that they are given in.
    """
    linked: set[int] = set()
    first: set[int] = set()  # positions of pairs that link a name for the first time
    for at, pair in enumerate(pairs):
        if pair.first not in linked or pair.second not in linked:
            linked.update((pair.first, pair.second))
            first.add(at)
    others = [at for at in range(len(pairs)) if at not in first]
    kept = first.union(others[: max(int(n_names * RELATIONS_PER_NAME) - len(first), 0)])
    return [pair for at, pair in enumerate(pairs) if at in kept]
