"""The walk over entities and chunks, against the same as a matrix multiplied until it stands still."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from hirag_dist.core.graph.pagerank import (
    RESTART,
    STEP_EDGES,
    TOLERANCE,
    VisibleEdges,
    WalkGraph,
    pagerank_steps,
)
from hirag_dist.types import CsrGraph
from tests.core.graphs import Lists, walk_shares, ways_of
from tests.core.labelled_graphs import N_SETS, labelled_graph


def ways_of_graph(graph: CsrGraph, mentioned_in: Lists, n_chunks: int) -> WalkGraph:
    layers = [0] * graph.n_nodes
    own = ways_of(layers, [[] for _ in layers], mentioned_in, n_chunks)
    return own._replace(indptr=graph.indptr, indices=graph.indices, relation_rows=graph.relation_rows)


def random_ways(seed: int) -> tuple[WalkGraph, NDArray[np.float64]]:
    """Return ways among up to three layers, and how likely each leads where: (n, n), a row of zeros where none does."""
    rng = np.random.default_rng(seed)
    sizes = [int(rng.integers(3, 14)), *rng.integers(1, 5, int(rng.integers(0, 3))).tolist()]
    layers = np.repeat(np.arange(len(sizes)), sizes)
    n, n_chunks = len(layers), int(rng.integers(1, 9))
    joined = np.triu(rng.random((n, n)) < 0.15, 1)
    joined |= joined.T
    mentions = (rng.random((n, n_chunks)) < 0.2) & (layers == 0)[:, None]
    related = [np.flatnonzero(row).tolist() for row in joined]
    ways = ways_of(layers.tolist(), related, [np.flatnonzero(row).tolist() for row in mentions], n_chunks)
    steps = np.zeros((n + n_chunks, n + n_chunks))
    steps[:n, :n] = joined & (layers[None, :] <= layers[:, None])
    steps[:n, n:] = mentions
    steps[n:, :n] = mentions.T
    return ways, steps / np.maximum(steps.sum(axis=1, keepdims=True), 1)


def slow(steps: NDArray[np.float64], start: NDArray[np.float64]) -> NDArray[np.float64]:
    found = np.zeros_like(start)
    going = start
    for _ in range(200):
        found += RESTART * going
        going = (1 - RESTART) * going @ steps
    return found


def random_start(rng: np.random.Generator, n: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    nodes = rng.integers(0, n, int(rng.integers(1, 5)))  # one may come twice
    shares = rng.random(len(nodes))
    return nodes, shares / shares.sum()


@pytest.mark.parametrize("seed", range(5))
def test_shares_are_those_of_the_matrix(seed: int) -> None:
    ways, steps = random_ways(seed)
    rng = np.random.default_rng([seed, 1])
    nodes, shares = random_start(rng, len(steps))
    start = np.zeros(len(steps))
    np.add.at(start, nodes, shares)
    wanted = slow(steps, start)
    rows, mass = walk_shares(ways, nodes, shares, tolerance=1e-12)
    n = len(ways.layers)
    assert (np.diff(rows) > 0).all()
    assert set(rows.tolist()) == set(np.flatnonzero(wanted[n:]).tolist())
    assert mass == pytest.approx(wanted[n:][rows], abs=1e-8)
    near_rows, near = walk_shares(ways, nodes, shares)  # what still waits is at most the tolerance for each way
    ways_of_all = int((steps > 0).sum())
    assert near == pytest.approx(wanted[n:][near_rows], abs=TOLERANCE * (ways_of_all + len(steps)))


def test_the_work_is_bounded_whatever_the_graph() -> None:
    """Everything is joined to everything: 200 entities in 200 chunks."""
    n = 200
    everyone = list(range(n))
    ways = ways_of([0] * n, [[b for b in everyone if b != a] for a in everyone], [everyone] * n, n)
    for tolerance in (1e-5, 1e-6):  # each place has some 400 ways
        n_steps = 0
        steps = pagerank_steps(ways, np.array([0]), np.ones(1), tolerance=tolerance)
        for _ in steps:
            n_steps += 1
        assert 1 <= n_steps <= 1 / (RESTART * tolerance) / STEP_EDGES + 1


@pytest.mark.parametrize("seed", range(4))
def test_a_callers_walk_is_that_over_what_is_left_to_the_bit(seed: int) -> None:
    whole = labelled_graph(seed)
    rng = np.random.default_rng([seed, 2])
    reached = set(rng.choice(N_SETS, int(rng.integers(1, N_SETS)), replace=False).tolist())
    sets = rng.integers(N_SETS, size=12)  # of each chunk
    mentioned_in = [
        [chunk for chunk in range(12) if int(sets[chunk]) in whole.spoken[row] and rng.random() < 0.5]
        for row in range(whole.n)
    ]
    seen = np.isin(sets, list(reached))
    left = [[chunk for chunk in own if seen[chunk]] for own in mentioned_in]
    places = [*whole.seen(reached), *(whole.n + np.flatnonzero(seen)).tolist()]
    if not places:
        return
    shares = np.array([0.5, 0.3, 0.2])
    ways, hidden_mentions = ways_of_graph(whole.graph, mentioned_in, 12), ways_of_graph(whole.left(reached), left, 12)
    visible = VisibleEdges.unknown(ways)
    for _ in range(4):  # later walks meet nodes whose visible edges are found already, and others
        nodes = rng.choice(np.array(places, np.int64), 3)
        wanted = [part.tolist() for part in walk_shares(hidden_mentions, nodes, shares)]
        for known in (None, visible):
            found = walk_shares(ways, nodes, shares, whole.access(reached), seen, visible=known)
            assert [part.tolist() for part in found] == wanted
    assert visible.degrees.any()
