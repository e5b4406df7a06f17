"""Random graphs whose entities and relations are spoken of by documents of several label sets, and their filtered twin.

The obvious version: throw away what a caller may not see, and ask the graph that is left.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hirag_dist.core.access import patterns
from hirag_dist.types import AccessFilter, CsrGraph
from tests.core.graphs import csr_of

N_SETS = 4
DIM = 5


@dataclass
class Labelled:
    """A graph of `n` entities.

    Attributes:
        spoken: of each entity, the label sets of its documents.
        stated: of each relation, its (label set, strength) in the order of their documents; its ends in `ends`.
        parts: (entity, label set) → vector, of the entities that several label sets speak of.
    """

    n: int
    spoken: list[set[int]]
    ends: list[tuple[int, int]]
    stated: list[list[tuple[int, float]]]
    vectors: NDArray[np.float32]
    parts: dict[tuple[int, int], NDArray[np.float32]]

    @property
    def graph(self) -> CsrGraph:
        return self.left(set(range(N_SETS)))

    def access(self, reached: set[int]) -> AccessFilter:
        rows = np.array([row for row, sets in enumerate(self.spoken) for _ in sets], np.int64)
        sets = np.array([own for found in self.spoken for own in sorted(found)], np.int64)
        entities = patterns(rows, sets, self.n, np.array([len(found) > 1 for found in self.spoken], bool))
        rows = np.array([row for row, told in enumerate(self.stated) for _ in told], np.int64)
        sets = np.array([own for told in self.stated for own, _ in told], np.int64)
        several = [len({own for own, _ in told}) > 1 for told in self.stated]
        relations = patterns(rows, sets, len(self.ends), np.array(several, bool))
        flags = np.isin(np.arange(N_SETS + 1), list(reached))
        mixed = [row for row, many in enumerate(several) if many]
        told = [statement for row in mixed for statement in self.stated[row]]
        keys = sorted(self.parts)
        return AccessFilter(
            flags,
            entities.of,
            entities.states(flags),
            relations.of,
            relations.states(flags),
            np.array([row for row, _ in keys], np.int32),
            np.array([own for _, own in keys], np.int32),
            np.array([self.parts[key] for key in keys], np.float32).reshape(-1, DIM),
            np.array(mixed, np.int32),
            np.cumsum([0, *(len(self.stated[row]) for row in mixed)], dtype=np.int64),
            np.array([own for own, _ in told], np.int32),
            np.array([strength for _, strength in told], np.float64),
        )

    def seen(self, reached: set[int]) -> list[int]:
        """Return the entities that are left for a caller."""
        return [row for row in range(self.n) if self.spoken[row] & reached]

    def left(self, reached: set[int]) -> CsrGraph:
        """Return the graph that is left, its rows those of the whole one."""
        weights = [sum(strength for own, strength in told if own in reached) for told in self.stated]
        kept = [row for row, told in enumerate(self.stated) if {own for own, _ in told} & reached]
        return csr_of(self.n, [(*self.ends[row], weights[row]) for row in kept])

    def left_vectors(self, reached: int) -> NDArray[np.float32]:
        """Return the vectors that are left by one label set, NaN of what is hidden."""
        vectors = np.full_like(self.vectors, np.nan)
        for row in self.seen({reached}):
            vectors[row] = self.vectors[row] if self.spoken[row] == {reached} else self.parts[row, reached]
        return vectors


def labelled_graph(seed: int, n: int = 14, density: float = 0.2) -> Labelled:
    """Return a random graph; a relation's documents speak of both of its ends."""
    rng = np.random.default_rng(seed)
    spoken: list[set[int]] = [{int(rng.integers(N_SETS))} for _ in range(n)]
    ends, stated = [], []
    for low in range(n):
        for high in range(low + 1, n):
            if rng.random() < density:
                own = rng.integers(N_SETS, size=rng.integers(1, 4)).tolist()
                ends.append((low, high))
                stated.append([(label_set, float(rng.integers(1, 4))) for label_set in own])
                spoken[low].update(own)
                spoken[high].update(own)
    parts = {(row, own): unit(rng) for row, found in enumerate(spoken) if len(found) > 1 for own in sorted(found)}
    return Labelled(n, spoken, ends, stated, np.array([unit(rng) for _ in range(n)]), parts)


def unit(rng: np.random.Generator) -> NDArray[np.float32]:
    vector = rng.normal(size=DIM)
    return (vector / np.linalg.norm(vector)).astype(np.float32)
