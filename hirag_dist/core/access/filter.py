"""Retrieval's arithmetic under labels: which rows a caller may see, and how near and heavy those seen in part are.

An entity seen in part is as near to a question as the nearest of its parts in reach; a relation seen in part weighs
what its statements in reach add up to. With one label set in reach both are what an index without the other documents
has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hirag_dist.core.access.labels import HIDDEN, PARTIAL, Flags
from hirag_dist.types import AccessFilter, FloatMatrix, IntVector

Score = Callable[[FloatMatrix, IntVector, NDArray[np.float32]], NDArray[np.float32]]


def read_only(access: AccessFilter) -> AccessFilter:
    """Return an access none of whose arrays is written to, as those that are mapped.

    To compiled code arrays that may be written to are of another type, and it is compiled anew for each combination.
    """
    parts: list[Any] = [part.view() for part in access]
    for part in parts:
        part.flags.writeable = False
    return AccessFilter(*parts)


def visible_rows(access: AccessFilter, rows: NDArray[np.integer[Any]]) -> Flags:
    """Return which entities may be seen, whole or in part: (n,)."""
    seen: Flags = access.entity_states[access.entity_patterns[rows]] != HIDDEN
    return seen


def visible_relations(access: AccessFilter, ends: NDArray[np.int32], rows: IntVector) -> Flags:
    """Return which relations may be seen: those whose own documents and both ends may.

    Args:
        ends: (n, 2) entity rows of each.
        rows: (n,) of relations.
    """
    own = access.relation_states[access.relation_patterns[rows]] != HIDDEN
    seen: Flags = own & visible_rows(access, ends[:, 0]) & visible_rows(access, ends[:, 1])
    return seen


def visible_scores(
    access: AccessFilter, vectors: FloatMatrix, rows: IntVector, query: NDArray[np.float32], score: Score
) -> NDArray[np.float32]:
    """Return the similarity to the question of entities that may be seen: (n,).

    Args:
        vectors: of all entities.
        score: (matrix, rows, question) → similarities.
    """
    scores = score(vectors, rows, query)
    mixed = np.flatnonzero(access.entity_states[access.entity_patterns[rows]] == PARTIAL)
    if len(mixed):
        own = rows[mixed]
        owner, parts = spans(*(np.searchsorted(access.part_entities, own, side) for side in ("left", "right")))
        reached = access.sets[access.part_sets[parts]]
        best = np.full(len(own), -np.inf, np.float32)
        np.maximum.at(best, owner[reached], score(access.part_vectors, parts[reached], query))
        scores[mixed] = best
    return scores


def visible_weights(access: AccessFilter, weights: NDArray[np.float64], rows: IntVector) -> NDArray[np.float64]:
    """Return the weights of relations that may be seen: (n,).

    Args:
        weights: of all relations.
    """
    found = np.array(weights[rows], np.float64)
    mixed = np.flatnonzero(access.relation_states[access.relation_patterns[rows]] == PARTIAL)
    if len(mixed):
        place = np.searchsorted(access.stated_rows, rows[mixed])
        owner, statements = spans(access.stated_indptr[place], access.stated_indptr[place + 1])
        reached = access.sets[access.statement_sets[statements]]
        strengths = access.statement_strengths[statements[reached]]
        found[mixed] = np.bincount(owner[reached], strengths, minlength=len(mixed))  # in order, as merging adds them
    return found


def spans(first: IntVector, last: IntVector) -> tuple[IntVector, IntVector]:
    """Return (owners, places): every place of each owner's span [first, last).

    >>> spans(np.array([5, 0]), np.array([7, 1]))
    (array([0, 0, 1]), array([5, 6, 0]))
    """
    counts = last - first
    owner = np.repeat(np.arange(len(counts)), counts)
    return owner, np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts - first, counts)
