"""Graph measures of a case worked by hand; `test_summary` compares larger ones with networkx."""

from __future__ import annotations

import numpy as np
import pytest

from hirag_dist.inspection.model import SimpleGraph, clustering, simple_graph


def graph_of(edges: list[tuple[int, int]], n_nodes: int) -> SimpleGraph:
    pairs = np.array(edges, dtype=np.int64).reshape(-1, 2)
    return simple_graph(pairs[:, 0], pairs[:, 1], n_nodes)


def test_a_triangle_with_a_tail_has_three_closed_of_five_triples() -> None:
    # 0-1-2 a triangle, 3 hangs on 2, 4 is alone. Triples: one around 0, one around 1, three around 2; three are closed.
    found = clustering(graph_of([(0, 1), (1, 2), (2, 0), (2, 3)], 5))
    assert found.transitivity == pytest.approx(3 / 5)
    assert found.average_local == pytest.approx((1 + 1 + 1 / 3) / 5)
    assert found.triangles == 1


def test_loops_and_parallel_relations_count_once() -> None:
    graph = graph_of([(0, 1), (1, 0), (0, 1), (2, 2), (1, 2)], 3)
    assert graph.n_edges == 2
    assert graph.degrees.tolist() == [1, 2, 1]
