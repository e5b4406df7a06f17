"""A question on its way through the levels of its mode: what is asked, and what was found so far."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hirag_dist.config.model import RetrievalConfig as RetrievalConfig
from hirag_dist.core.graph.shortest_paths import PathFinder
from hirag_dist.core.retrieval.entity_linking import (
    LOCAL_SHARE,
    NamedEntity,
    NamePhrase,
    named_endpoints,
    named_entities,
    named_first,
    rows_of,
)
from hirag_dist.core.retrieval.levels import RankedCommunity
from hirag_dist.retrieval.deadline import CooperativeDeadline
from hirag_dist.retrieval.view.index import MappedIndex
from hirag_dist.types import IntVector, Retrieval

Scored = list[tuple[int, float]]


class Stopwatch:
    """Times of the parts of a question's work, in milliseconds."""

    def __init__(self) -> None:
        """Begin."""
        self.times_ms: dict[str, float] = {}
        self._started = time.perf_counter()

    @contextmanager
    def timed(self, part: str) -> Iterator[None]:
        """Add the time of the block to a part."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self.times_ms[part] = self.times_ms.get(part, 0.0) + (time.perf_counter() - started) * 1e3

    def total(self) -> dict[str, float]:
        """Return the times of all parts, and the total until now."""
        return self.times_ms | {"total": (time.perf_counter() - self._started) * 1e3}


class QuestionEntities:
    """Entities that a question names, in an index as a caller may see it. Nothing is looked up before it is needed."""

    def __init__(self, index: MappedIndex, question: str, vector: NDArray[np.float32]) -> None:
        """Prepare."""
        self._index = index
        self._question = question
        self._vector = vector

    @cached_property
    def rows(self) -> list[int]:
        """All entities of the names in the question."""
        return rows_of(self._phrases)

    def endpoints(self) -> Scored:
        """Return (row, similarity) of the entities that the bridge joins before the key entities of communities."""
        if len(self._phrases) < 2:
            return []
        named, closeness = self._one_of_each_name
        return [(row, closeness[row]) for row in named_endpoints(named)]

    def local(self, nearest: Scored, limit: int) -> tuple[Scored, frozenset[int]]:
        """Return (row, similarity) of the local entities, named ones first, and the rows of the named ones."""
        if limit < LOCAL_SHARE or not self._phrases:
            return nearest, frozenset()
        named, closeness = self._one_of_each_name
        return named_first(named, nearest, closeness, limit)

    @cached_property
    def _phrases(self) -> list[NamePhrase]:
        return self._index.name_phrases(self._question)

    @cached_property
    def _one_of_each_name(self) -> tuple[list[NamedEntity], dict[int, float]]:
        scores = self._index.similarities(np.array(self.rows, np.int64), self._vector).tolist()
        closeness = dict(zip(self.rows, scores, strict=True))
        return named_entities(self._question, self._phrases, self._index.layers, closeness), closeness


@dataclass(frozen=True)
class Question:
    """A question, and what its levels work with.

    Attributes:
        vector: (dim,) of unit length.
        limits: settings, with those of the query.
        levels: names of the levels of its mode, in order.
        watch: times of the parts.
        misses_reports: whether communities without a report are shown by their members.
    """

    text: str
    vector: NDArray[np.float32]
    limits: RetrievalConfig
    levels: tuple[str, ...]
    names: QuestionEntities
    paths: PathFinder
    deadline: CooperativeDeadline
    watch: Stopwatch
    misses_reports: bool = False


@dataclass(frozen=True)
class Found:
    """Rows and items found so far; a level returns a copy with its own.

    Attributes:
        result: items, as they are returned.
        nearest: (row, similarity) of the entities nearest to the question, best first (Eq. 12).
        near_chunks, word_chunks: (row, score) of the nearest chunks, and of those with the question's words.
        communities: that hold the nearest entities, best first (Eq. 13).
        rows: level of the context → rows of its records in the result.
        unreported: rows of communities that have members in the place of a report.
        entity_seeds, relation_seeds: (row, score) from which sources are ranked.
        related: rows and ends of the relations of the nearest entities, in the mode graphrag-local.
    """

    result: Retrieval
    nearest: Scored = field(default_factory=list)
    near_chunks: Scored = field(default_factory=list)
    word_chunks: Scored = field(default_factory=list)
    communities: tuple[RankedCommunity, ...] = ()
    rows: Mapping[str, list[int]] = field(default_factory=dict)
    unreported: frozenset[int] = frozenset()
    entity_seeds: Scored = field(default_factory=list)
    relation_seeds: Scored = field(default_factory=list)
    related: tuple[IntVector, NDArray[np.int32]] = field(
        default_factory=lambda: (np.zeros(0, np.int64), np.zeros((0, 2), np.int32))
    )
