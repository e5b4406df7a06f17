"""A toy graph with communities, and a slow ranking, for the tests of the levels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hirag_dist.core.retrieval.bridge import Parallel
from hirag_dist.core.retrieval.levels import CommunityIndex, invert
from hirag_dist.types import CsrGraph


@dataclass
class Toy:
    """A graph of entity rows, relations (row, row) in any direction, and communities as (level, members)."""

    n_rows: int
    relations: list[tuple[int, int]]
    weights: list[float]
    communities: list[tuple[int, list[int]]]
    ratings: list[float]
    vectors: NDArray[np.float32]

    def index(self) -> CommunityIndex:
        indptr = np.cumsum([0, *(len(members) for _, members in self.communities)]).astype(np.int64)
        members = np.array([row for _, rows in self.communities for row in rows], np.int32)
        levels = np.array([level for level, _ in self.communities], np.int32)
        order = np.arange(len(self.communities))[::-1].copy()  # ids in the opposite order of places
        of_indptr, of = invert(indptr, members, levels, self.n_rows)
        return CommunityIndex(levels, np.array(self.ratings), order, indptr, members, of_indptr, of)

    def graph(self) -> tuple[CsrGraph, Parallel]:
        """The graph with the heaviest relation of each pair, and the others of pairs with several."""
        by_pair: dict[tuple[int, int], list[int]] = {}
        for at, (a, b) in enumerate(self.relations):
            if a != b:
                by_pair.setdefault((min(a, b), max(a, b)), []).append(at)
        entries = []
        others: dict[int, list[int]] = {}
        for (a, b), rows in by_pair.items():
            heaviest = max(rows, key=lambda at: (self.weights[at], -at))
            if len(rows) > 1:
                others[heaviest] = [at for at in rows if at != heaviest]
            total = sum(self.weights[at] for at in rows)
            entries += [(a, b, total, heaviest), (b, a, total, heaviest)]
        entries.sort()
        counts = np.bincount(np.array([entry[0] for entry in entries], np.int64), minlength=self.n_rows)
        graph = CsrGraph(
            np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
            np.array([entry[1] for entry in entries], np.int32),
            np.array([entry[2] for entry in entries], np.float32),
            np.array([entry[3] for entry in entries], np.int32),
        )
        of = sorted(others)
        parallel = Parallel(
            np.array(of, np.int32),
            np.cumsum([0, *(len(others[head]) for head in of)]).astype(np.int64),
            np.array([at for head in of for at in others[head]], np.int32),
        )
        return graph, parallel


def random_toy(seed: int) -> Toy:
    """Two or three nested levels; some leaves end early; many equal similarities and ratings."""
    rng = np.random.default_rng(seed)
    n_rows = int(rng.integers(3, 40))
    relations = [tuple(int(row) for row in rng.integers(0, n_rows, 2)) for _ in range(int(rng.integers(0, 4 * n_rows)))]
    communities: list[tuple[int, list[int]]] = []

    def divide(level: int, rows: NDArray[np.int64]) -> None:
        labels = rng.integers(0, 3, len(rows))
        for label in range(3):
            inside = np.sort(rows[labels == label])
            if len(inside):
                communities.append((level, inside.tolist()))
                if level < 2 and len(inside) > 2 and rng.random() < 0.6:
                    divide(level + 1, inside)

    divide(0, np.arange(n_rows))
    shuffled = [communities[at] for at in rng.permutation(len(communities))]
    vectors = rng.integers(-2, 3, (n_rows, 4)).astype(np.float32)
    weights = [float(rng.integers(1, 4)) for _ in relations]
    ratings = [float(rng.integers(0, 3)) for _ in shuffled]
    return Toy(n_rows, relations, weights, shuffled, ratings, vectors)


def slow_top(scores: dict[int, float], limit: int) -> list[int]:
    return sorted(scores, key=lambda row: (-scores[row], row))[:limit]
