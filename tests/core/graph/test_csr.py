"""Tables to CSR against networkx, and the graphs that have nothing in them."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest

from hirag_dist.compute.kernels import CpuKernels
from hirag_dist.core.graph.communities import community_table, hierarchical_labels, membership
from hirag_dist.core.graph.csr import components, subgraph
from hirag_dist.schemas import COMMUNITIES
from hirag_dist.types import CsrGraph
from tests.core.graphs import Edges, csr, csr_of, ids_of, order_keys


def edges(graph: CsrGraph) -> dict[tuple[int, int], tuple[float, int]]:
    return {
        (row, int(graph.indices[at])): (float(graph.weights[at]), int(graph.relation_rows[at]))
        for row in range(graph.n_nodes)
        for at in range(graph.indptr[row], graph.indptr[row + 1])
    }


def random_relations(seed: int, n_rows: int) -> Edges:
    """With loops, parallel relations in both directions, endpoints that are in no table, and several components."""
    rng = np.random.default_rng(seed)
    ends = rng.integers(0, n_rows + 2, (n_rows, 2))
    ends = np.concatenate([ends, ends[::2, ::-1], ends[::3]])
    return [(a, b, float(rng.integers(1, 5))) for a, b in ends.tolist()]


@pytest.mark.parametrize("seed", range(3))
def test_the_graph_is_the_one_that_networkx_builds(seed: int) -> None:
    n_rows = 14 + seed
    triples = random_relations(seed, n_rows)
    graph = csr_of(n_rows, triples)
    expected: dict[tuple[int, int], list[tuple[float, int]]] = {}
    for at, (a, b, weight) in enumerate(triples):
        if a != b and max(a, b) < n_rows:
            expected.setdefault((a, b), []).append((weight, at))
            expected.setdefault((b, a), []).append((weight, at))
    found = edges(graph)
    assert found.keys() == expected.keys()
    for pair, parallel in expected.items():
        heaviest = min(parallel, key=lambda item: (-item[0], item[1]))[1]
        assert found[pair] == (sum(weight for weight, _ in parallel), heaviest)
    for row in range(n_rows):
        neighbours = graph.indices[graph.indptr[row] : graph.indptr[row + 1]]
        assert (np.diff(neighbours) > 0).all(), "neighbours ascend"
    ours = nx.Graph()
    ours.add_nodes_from(range(n_rows))
    ours.add_edges_from(found)
    parts = sorted(nx.connected_components(ours), key=min)
    assert len(parts) > 3
    for label, members in enumerate(parts):
        assert {row for row in range(n_rows) if components(graph)[row] == label} == members


@pytest.mark.parametrize("seed", range(2))
def test_a_subgraph_is_the_one_that_networkx_cuts(seed: int) -> None:
    graph = csr_of(40, random_relations(seed, 40))
    nodes = np.flatnonzero(np.random.default_rng(seed).random(40) < 0.7)
    place = {int(node): at for at, node in enumerate(nodes)}
    expected = {(place[a], place[b]): value for (a, b), value in edges(graph).items() if a in place and b in place}
    assert edges(subgraph(graph, nodes)) == expected


def test_an_empty_graph_has_no_community() -> None:
    graph = csr_of(0, [(0, 1, 1.0)])
    assert graph.n_nodes == 0
    assert len(components(graph)) == 0
    levels = CpuKernels().leiden(graph, 10, 1.0, order_keys(graph.n_nodes, 0))
    assert [level.tolist() for level in levels] == [[]]
    table = community_table(levels, graph, ids_of(0))
    assert table.num_rows == 0
    assert table.schema == COMMUNITIES
    assert [part.tolist() for part in membership(table, ids_of(0))] == [[0], []]


def test_a_community_that_is_not_connected_is_cut_and_a_large_one_is_divided_until_it_fits() -> None:
    """A path of 12 nodes; the partition puts odd and even nodes together first, then halves whatever it gets."""
    graph = csr(nx.path_graph(12))
    calls = []

    def by_parity(part: CsrGraph, call: int) -> np.ndarray:
        calls.append(call)
        return np.arange(part.n_nodes) % 2

    def halves(part: CsrGraph, call: int) -> np.ndarray:
        calls.append(call)
        return (np.arange(part.n_nodes) >= part.n_nodes // 2).astype(np.int64)

    assert [level.tolist() for level in hierarchical_labels(graph, by_parity, 5)] == [list(range(12))]
    levels = hierarchical_labels(graph, halves, 5)
    assert [level.tolist() for level in levels] == [[0] * 6 + [1] * 6, [0] * 3 + [1] * 3 + [2] * 3 + [3] * 3]
    assert calls == [0, 0, 1, 2], "each call has its number, for a seed"
