"""Votes for chunks, and their order, against the same written as loops over dictionaries."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from hirag_dist.core.scoring import exact_scores
from hirag_dist.core.sources import Origins, Votes, rank_sources

N_CHUNKS = 7


def csr(lists: list[list[int]]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    bounds = np.cumsum([0, *(len(rows) for rows in lists)]).astype(np.int64)
    return bounds, np.array([row for rows in lists for row in rows], np.int32)


class Toy:
    """Entities in up to four layers; each above layer 0 is joined to some of the layer below, and to others."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        sizes = [int(rng.integers(1, 12)) for _ in range(int(rng.integers(1, 5)))]
        self.layers = np.repeat(np.arange(len(sizes)), sizes).astype(np.int32)
        n = len(self.layers)
        joined = rng.random((n, n)) < 0.4
        joined |= joined.T
        np.fill_diagonal(joined, False)
        self.neighbours = [np.flatnonzero(row).tolist() for row in joined]
        self.entity_chunks = [
            rng.permutation(N_CHUNKS)[: rng.integers(0, 4)].tolist() if layer == 0 else [] for layer in self.layers
        ]
        self.relation_chunks = [rng.permutation(N_CHUNKS)[: rng.integers(0, 4)].tolist() for _ in range(9)]
        self.vectors = rng.integers(-2, 3, (n, 4)).astype(np.float32)
        self.query = rng.integers(-2, 3, 4).astype(np.float32)
        self.origins = Origins(
            self.layers, *csr(self.neighbours), self.vectors, *csr(self.entity_chunks), *csr(self.relation_chunks)
        )

    def slow(
        self, entities: list[tuple[int, float]], relations: list[tuple[int, float]], seen: set[int]
    ) -> dict[int, float]:
        votes: dict[int, float] = {}

        def vote(chunks: list[int], score: float) -> None:
            known = [chunk for chunk in chunks if chunk in seen]
            for chunk in known:
                votes[chunk] = votes.get(chunk, 0.0) + max(score, 0.0) / len(known) ** 0.5

        def entity(row: int, score: float) -> None:
            if self.layers[row] == 0:
                vote(self.entity_chunks[row], score)
                return
            below = [other for other in self.neighbours[row] if self.layers[other] == self.layers[row] - 1]
            near = {other: float(self.vectors[other] @ self.query) for other in below}
            for other in sorted(below, key=lambda other: (-near[other], other))[:5]:
                entity(other, min(score, near[other]))

        for row, score in entities:
            entity(row, score)
        for row, score in relations:
            vote(self.relation_chunks[row], score)
        return votes


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize("hidden", [False, True])
def test_votes_are_those_of_the_slow_version(seed: int, hidden: bool) -> None:
    toy = Toy(seed)
    rng = np.random.default_rng([seed, 1])
    n = len(toy.layers)
    entities = [(int(row), float(rng.random())) for row in rng.integers(0, n, int(rng.integers(0, 9)))]
    relations = [(int(row), float(rng.random())) for row in rng.integers(0, 9, int(rng.integers(0, 5)))]
    seen = rng.random(N_CHUNKS) < 0.5 if hidden else np.ones(N_CHUNKS, np.bool_)
    chunk_vectors = rng.integers(-2, 3, (N_CHUNKS, 4)).astype(np.float32)
    votes = Votes(toy.origins, toy.query, N_CHUNKS, seen if hidden else None)
    votes.of_entities(entities)
    votes.of_relations(relations)
    expected = toy.slow(entities, relations, set(np.flatnonzero(seen).tolist()))
    rows = np.array(sorted(expected), np.int64)
    wanted = np.array([expected[row] for row in rows.tolist()])
    ranked = rank_sources(rows, wanted, chunk_vectors, toy.query, 100)
    found = votes.ranked(chunk_vectors, toy.query, 100)
    assert sorted(row for row, _ in found) == rows.tolist()
    gaps = np.diff(np.sort(wanted))
    if not ((gaps > 0) & (gaps < 1e-9)).any():  # sums in another order may swap what is as good as equal
        assert found == ranked


def test_sources_fuse_votes_and_similarity_by_rank() -> None:
    """Chunk 2 leads the votes, chunk 0 the vectors, chunk 1 is second in both; chunk 3 has no vote."""
    vectors = np.array([[3.0], [2.0], [1.0], [9.0]], np.float32)
    query = np.array([1.0], np.float32)
    found = rank_sources(np.array([0, 1, 2]), np.array([1.0, 2.0, 3.0]), vectors, query, 10)
    assert [row for row, _ in found] == [0, 2, 1]
    assert dict(found) == pytest.approx({0: 1 / 62 + 1 / 60, 2: 1 / 60 + 1 / 62, 1: 2 / 61})
    assert [row for row, _ in rank_sources(np.array([0, 1]), np.array([1.0, 2.0]), vectors, query, 1)] == [0]
    assert rank_sources(np.zeros(0, np.int64), np.zeros(0), vectors, query, 5) == []


def test_a_summary_entity_votes_through_its_five_nearest_members() -> None:
    """Entity 7 stands for 0–6, each in a chunk of its own; 1 and 2 are equally near, 5 and 6 the farthest."""
    lists = [[7], [7], [7], [7], [7], [7], [7], [0, 1, 2, 3, 4, 5, 6]]
    near = [0.9, 0.5, 0.5, 0.4, 0.3, 0.2, 0.1]
    origins = Origins(
        np.array([0] * 7 + [1], np.int32),
        *csr(lists),
        np.array([*near, 0.8], np.float32)[:, None],
        *csr([[at] for at in range(7)] + [[]]),
        *csr([]),
    )
    votes = Votes(origins, np.array([1.0], np.float32), 7)
    votes.of_entities([(7, 0.45)])
    assert votes._votes.tolist() == pytest.approx([0.45, 0.45, 0.45, 0.4, 0.3, -1, -1])
    assert exact_scores(origins.vectors, np.array([7]), np.array([1.0], np.float32)).tolist() == pytest.approx([0.8])
