"""Components of what a caller may see, against those of the graph that is left without the rest."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from hirag_dist.core.access.filter import visible_components
from hirag_dist.core.cooperative import Steps
from hirag_dist.core.graph.shortest_paths import PathFinder
from tests.core.labelled_graphs import N_SETS, Labelled, labelled_graph


@settings(deadline=None)  # the first example compiles
@given(st.integers(0, 10_000), st.sets(st.integers(0, N_SETS - 1)), st.sampled_from([0.05, 0.1, 0.2]))
def test_components_are_those_of_the_graph_without_what_is_hidden(seed: int, reached: set[int], density: float) -> None:
    labelled = labelled_graph(seed, density=density)
    left = labelled.left(reached)
    found = visible_components(labelled.graph, labelled.access(reached))
    matrix = csr_array((left.weights, left.indices, left.indptr), shape=(labelled.n, labelled.n))
    _, wanted = connected_components(matrix, directed=False)
    assert (found[:, None] == found).tolist() == (wanted[:, None] == wanted).tolist()
    assert found.dtype == np.int32
    assert not found.flags.writeable


def joined_by_a_hidden_one() -> Labelled:
    """Two rings of ten, whose only link is an entity that label set 1 alone speaks of."""
    ends = [(first + at, first + (at + 1) % 10) for first in (0, 10) for at in range(10)] + [(0, 20), (10, 20)]
    ends = [(min(pair), max(pair)) for pair in ends]
    spoken = [{0} for _ in range(20)] + [{1}]
    stated = [[(1, 1.0)] if 20 in pair else [(0, 1.0)] for pair in ends]
    return Labelled(21, spoken, ends, stated, np.zeros((21, 5), np.float32), {})


def parts(steps: Steps[list[list[int]]]) -> tuple[int, list[list[int]]]:
    """Return the number of steps and their result."""
    result: list[list[int]] = []

    def counted() -> Iterator[None]:
        nonlocal result
        result = yield from steps

    return sum(1 for _ in counted()), result


def test_pairs_that_only_something_hidden_connects_are_not_looked_for() -> None:
    labelled = joined_by_a_hidden_one()
    access = labelled.access({0})
    finder = PathFinder(labelled.graph, np.zeros(21, np.int32))  # all is one component
    rows = [at + first for at in range(10) for first in (0, 10)]
    components = visible_components(labelled.graph, access)
    nothing: list[list[int]] = [[]] * 19
    assert parts(finder.chain_steps(rows, access, most_read=0)) == (19, nothing)
    looked_for = parts(finder.chain_steps(rows, access, components, most_read=0))
    assert looked_for == (1, nothing), "nothing is read of the graph, so no step ends"


def test_a_step_ends_when_much_was_read_and_the_paths_are_the_same() -> None:
    labelled = labelled_graph(3, n=30)
    finder, rows = PathFinder(labelled.graph), list(range(30))
    wanted = finder.chain(rows)
    assert parts(finder.chain_steps(rows, most_read=10**6)) == (1, wanted)
    assert parts(finder.chain_steps(rows, most_read=0)) == (29, wanted)
