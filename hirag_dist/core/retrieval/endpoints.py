"""Endpoints of the bridge that a question names: "How is A connected to B?" asks for the path from A to B.

The paper joins key entities of communities alone (Eq. 14–15). Here the named entities come before them, so that the
first paths are those that were asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final

from numpy.typing import NDArray

from hirag_dist.core.retrieval.entity_linking import words
from hirag_dist.core.retrieval.named_entities import NamedEntity, most_specific
from hirag_dist.core.retrieval.question_words import question_words

MAX_ENDPOINTS: Final = 8

Ranked = list[tuple[int, float]]


def named_endpoints(named: Sequence[NamedEntity]) -> list[int]:
    """Return the rows of the entities that the bridge joins first; none where the question names fewer than two.

    Those with specific names come before the others; otherwise the order is the question's.

    Args:
        named: an entity for each name in the question, in its order.
    """
    found = most_specific(named, MAX_ENDPOINTS)
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
