"""Entities that a question names in an index as a caller may see it, looked up once for all that need them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hirag_dist.core.retrieval.entity_linking import NamePhrase, rows_of
from hirag_dist.core.retrieval.named_entities import (
    LOCAL_SHARE,
    NamedEntity,
    named_endpoints,
    named_entities,
    named_first,
)
from hirag_dist.storage.serving.mapped_index import MappedIndex

Scored = list[tuple[int, float]]


class QuestionEntities:
    """Entities that a question names. Nothing is looked up before it is needed."""

    def __init__(self, index: MappedIndex, question: str) -> None:
        """Prepare.

        Args:
            index: as the caller may see it.
            question: text.
        """
        self._index = index
        self._question = question
        self._phrases: list[NamePhrase] | None = None
        self._named: tuple[list[NamedEntity], dict[int, float]] | None = None

    @property
    def phrases(self) -> list[NamePhrase]:
        """Names of entities in the question, in its order."""
        if self._phrases is None:
            self._phrases = self._index.name_phrases(self._question)
        return self._phrases

    @property
    def rows(self) -> list[int]:
        """All entities of these names."""
        return rows_of(self.phrases)

    def endpoints(self, vector: NDArray[np.float32]) -> Scored:
        """Return (row, similarity) of the entities that the bridge joins before the key entities of communities."""
        if len(self.phrases) < 2:
            return []
        named, closeness = self._one_of_each_name(vector)
        return [(row, closeness[row]) for row in named_endpoints(named)]

    def local(self, nearest: Scored, vector: NDArray[np.float32], limit: int) -> tuple[Scored, frozenset[int]]:
        """Return (row, similarity) of the local entities, named ones first, and the rows of the named ones.

        Args:
            nearest: entities to the question.
            vector: of the question.
            limit: entities in all.
        """
        if limit < LOCAL_SHARE or not self.phrases:
            return nearest, frozenset()
        named, closeness = self._one_of_each_name(vector)
        return named_first(named, nearest, closeness, limit)

    def _one_of_each_name(self, vector: NDArray[np.float32]) -> tuple[list[NamedEntity], dict[int, float]]:
        if self._named is None:
            rows = self.rows
            scores = self._index.similarities(np.array(rows, np.int64), vector).tolist()
            closeness = dict(zip(rows, scores, strict=True))
            self._named = named_entities(self._question, self.phrases, self._index.layers, closeness), closeness
        return self._named
