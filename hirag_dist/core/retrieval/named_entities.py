"""Entities that a question names: one for each named phrase, for the bridge and for the local level."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, Final, NamedTuple

from numpy.typing import NDArray

from hirag_dist.core.retrieval.entity_linking import NamePhrase, spelled_words, words
from hirag_dist.core.retrieval.question_words import WORDS_OF_CLASS

LOCAL_SHARE: Final = 4  # one in so many local entities may be there by its name

Ranked = list[tuple[int, float]]


class NamedEntity(NamedTuple):
    """An entity that a question names. `specific`: its name is written with a capital letter or a digit."""

    row: int
    specific: bool


def named_entities(
    question: str, phrases: Iterable[NamePhrase], layers: NDArray[Any], closeness: Mapping[int, float]
) -> list[NamedEntity]:
    """Return an entity for each name in a question, in its order.

    Of the entities of one name, that of the lowest layer counts, then the nearest to the question, then the lowest row.
    Names that only show the type of the question ("connection") do not count.

    Args:
        question: text.
        phrases: its longest names (`entity_linking.longest_phrases`).
        layers: (n_entities,) of each entity.
        closeness: row → similarity to the question.
    """
    read, spelled = words(question), spelled_words(question)
    found = []
    for (start, end), own in groupby(phrases, key=lambda one: (one.start, one.end)):
        phrase = " ".join(read[start:end])
        if any(phrase in listed for listed in WORDS_OF_CLASS.values()):
            continue
        row = min((one.row for one in own), key=lambda row: (int(layers[row]), -closeness[row], row))
        specific = any(letter.isupper() or letter.isdigit() for word in spelled[start:end] for letter in word)
        found.append(NamedEntity(row, specific))
    return found


def most_specific(named: Iterable[NamedEntity], limit: int) -> list[int]:
    """Return the rows of named entities, each once: those with specific names first, otherwise in their order.

    >>> most_specific([NamedEntity(5, False), NamedEntity(7, True), NamedEntity(5, False), NamedEntity(8, False)], 2)
    [7, 5]
    """
    return list(dict.fromkeys(one.row for one in sorted(named, key=lambda one: not one.specific)))[:limit]


def named_first(
    named: Sequence[NamedEntity], nearest: Ranked, closeness: Mapping[int, float], limit: int
) -> tuple[Ranked, frozenset[int]]:
    """Return (row, similarity) of the local entities, named ones first, and the rows of the named ones.

    A quarter of the entities at most are there by their names, the most specific ones, in the order of the question.
    The nearest follow in their order.

    Args:
        named: by the question, in its order.
        nearest: to the question.
        closeness: row → similarity to the question, of the named ones.
        limit: entities in all.

    >>> nearest = [(1, 0.9), (2, 0.8), (3, 0.7), (4, 0.6)]
    >>> named_first([NamedEntity(9, True), NamedEntity(3, True)], nearest, {3: 0.7, 9: 0.1}, 4)
    ([(9, 0.1), (1, 0.9), (2, 0.8), (3, 0.7)], frozenset({9}))
    """
    chosen = frozenset(most_specific(named, limit // LOCAL_SHARE))
    first = {one.row: closeness[one.row] for one in named if one.row in chosen}
    rest = [(row, score) for row, score in nearest if row not in chosen]
    return [*first.items(), *rest][:limit], chosen
