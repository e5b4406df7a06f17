"""Endpoints of the bridge that a question names: "How is A connected to B?" asks for the path from A to B.

The paper joins key entities of communities alone (Eq. 14–15). Here the named entities come before them, so that the
first paths are those that were asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby, pairwise
from typing import Any, Final

from numpy.typing import NDArray

from hirag_dist.core.retrieval.entity_linking import NamePhrase, spelled_words, words
from hirag_dist.core.retrieval.question_words import WORDS_OF_CLASS, question_words

MAX_ENDPOINTS: Final = 8

Ranked = list[tuple[int, float]]


def named_endpoints(
    question: str, phrases: Sequence[NamePhrase], layers: NDArray[Any], closeness: Mapping[int, float]
) -> list[int]:
    """Return the rows of the entities that the bridge joins first; none where the question names fewer than two.

    Of the entities of one name, that of the lowest layer counts, then the nearest to the question, then the lowest row.
    Names that only show the type of the question ("connection") do not count. Names that are written with a capital
    letter or a digit come before the others, since they are more specific; otherwise the order is the question's.

    Args:
        question: text.
        phrases: its longest names (`entity_linking.longest_phrases`).
        layers: (n_entities,) of each entity.
        closeness: row → similarity to the question.
    """
    read, spelled = words(question), spelled_words(question)
    proper: list[int] = []
    others: list[int] = []
    for (start, end), own in groupby(phrases, key=lambda one: (one.start, one.end)):
        phrase = " ".join(read[start:end])
        if any(phrase in listed for listed in WORDS_OF_CLASS.values()):
            continue
        row = min((one.row for one in own), key=lambda row: (int(layers[row]), -closeness[row], row))
        specific = any(letter.isupper() or letter.isdigit() for word in spelled[start:end] for letter in word)
        (proper if specific else others).append(row)
    found = list(dict.fromkeys([*proper, *others]))[:MAX_ENDPOINTS]
    return found if len(found) > 1 else []


def joined_in_order(named: Ranked, keys: Ranked) -> Ranked:
    """Return (row, similarity) of the entities that the bridge joins, in order: the named ones, then the key entities.

    A row that is among both keeps its first position, as one that several communities give does (Eq. 14).
    """
    return list((dict(named) | dict(keys)).items())


def asks_for_paths(question: str) -> bool:
    """Return whether the words of a question ask for a connection, or nothing is known of them.

    >>> asks_for_paths("How are A and B connected?"), asks_for_paths("Who met A and B?"), asks_for_paths("Jak A a B?")
    (True, False, True)
    """
    found = question_words(words(question))
    return "path" in found or not found


def along_first(ranked: Ranked, ends: NDArray[Any], paths: Sequence[Sequence[int]]) -> Ranked:
    """Return ranked relations with those along some paths first, in the order of the paths' steps.

    Args:
        ranked: (relation row, score), best first. Relations of one step keep this order, and so do all others.
        ends: (n_relations, 2) entity rows of all relations.
        paths: node rows of each.

    >>> import numpy as np
    >>> along_first([(0, 0.9), (1, 0.5), (2, 0.4)], np.array([[7, 8], [3, 2], [1, 2]]), [[1, 2, 3]])
    [(2, 0.4), (1, 0.5), (0, 0.9)]
    """
    steps: dict[tuple[int, int], int] = {}
    for path in paths:
        for one, other in pairwise(path):
            steps.setdefault((min(one, other), max(one, other)), len(steps))
    if not steps:
        return ranked
    pairs: list[list[int]] = ends[[row for row, _ in ranked]].tolist()
    step = {row: steps.get((min(pair), max(pair)), len(steps)) for (row, _), pair in zip(ranked, pairs, strict=True)}
    return sorted(ranked, key=lambda one: step[one[0]])
