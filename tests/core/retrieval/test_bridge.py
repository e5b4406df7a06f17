"""Relations of hubs (Eq. 16); `test_equations.py` compares the whole bridge with the formulas of the paper."""

from __future__ import annotations

import numpy as np

from hirag_dist.core.graph.csr import build_graph
from hirag_dist.core.retrieval.bridge import Parallel, bridge_relations
from hirag_dist.storage.serving.writer import parallel_relations
from tests.core.graphs import relation_table


def test_bridge_relations_of_hubs_are_found() -> None:
    """Two hubs, rows 0 and 500, joined to each other and to everything else; the path visits both and row 999."""
    ends = [(0, row) for row in range(1, 1000)] + [(row, 500) for row in range(1, 1000) if row != 500]
    ids, relations = relation_table(1000, [(a, b, 1.0) for a, b in ends])
    graph = build_graph(ids, relations)
    parallel = Parallel(*parallel_relations(np.array(ends, np.int32), np.ones(len(ends))))
    found = [ends[row] for row in bridge_relations(graph, parallel, [999, 500, 0])]
    assert found == [(0, 500), (0, 999), (999, 500)]
    assert bridge_relations(graph, parallel, [999]) == []
    assert bridge_relations(graph, parallel, []) == []
