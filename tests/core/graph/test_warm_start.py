"""Warm starts: what no change is near is kept, the rest is as good as without one, and ids are carried on."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
import pyarrow as pa
import pytest

from hirag_dist.compute.kernels import CpuKernels
from hirag_dist.core.graph.communities import community_table, level_labels, warm_start
from hirag_dist.core.graph.csr import by_lowest_node
from hirag_dist.core.graph.hierarchy_metrics import modularity
from hirag_dist.core.graph.leiden import visiting_keys
from hirag_dist.core.text.ids import content_id
from hirag_dist.types import CsrGraph, WarmStart
from tests.core.graphs import csr

MAX_SIZE = 12
GRAPHS = {
    "caveman": nx.relaxed_caveman_graph(15, 16, 0.1, seed=3),
    "heavy-tailed": nx.barabasi_albert_graph(300, 3, seed=4),
    "planted": nx.planted_partition_graph(8, 30, 0.4, 0.01, seed=5),
}


def ids(graph: nx.Graph) -> pa.ChunkedArray:
    return pa.chunked_array([[f"{node:024x}" for node in graph]])


def compact(graph: nx.Graph) -> CsrGraph:
    """Rows in the order of the nodes."""
    return csr(nx.convert_node_labels_to_integers(graph))


def detect(graph: nx.Graph, warm: WarmStart | None = None, max_size: int = MAX_SIZE) -> list[np.ndarray]:
    return CpuKernels().leiden(compact(graph), max_size, 1.0, visiting_keys(ids(graph), 7), warm)


def table(graph: nx.Graph, previous: pa.Table | None = None, warm: WarmStart | None = None) -> pa.Table:
    return community_table(detect(graph, warm), compact(graph), ids(graph), previous)


def updated(before: nx.Graph, after: nx.Graph, previous: pa.Table) -> pa.Table:
    """The communities of a graph from those of the graph before."""
    return table(after, previous, warm_start(previous, pa.chunked_array([changed_ids(before, after)]), ids(after)))


def changed_ids(before: nx.Graph, after: nx.Graph) -> pa.Array:
    edges = [{(min(edge), max(edge)) for edge in graph.edges} for graph in (before, after)]
    ends = {node for edge in edges[0] ^ edges[1] for node in edge} | (set(after) - set(before))
    return pa.array([f"{node:024x}" for node in sorted(ends)], pa.string())


def members(communities: pa.Table) -> set[tuple[int, tuple[str, ...]]]:
    return {(row["level"], tuple(row["entity_ids"])) for row in communities.to_pylist()}


def perturbed(graph: nx.Graph, share: float, seed: int, first_new: int) -> nx.Graph:
    """The graph with some nodes gone, some new, and some edges moved."""
    random = np.random.default_rng(seed)
    found = graph.copy()
    count = max(int(share * len(graph)), 1)
    found.remove_nodes_from(random.choice(sorted(graph), count, replace=False).tolist())
    for node in range(first_new, first_new + count):
        near = int(random.choice(sorted(found)))
        found.add_edges_from((node, other) for other in [near, *list(found[near])[:3]])
    edges = sorted(found.edges)
    for at in random.choice(len(edges), count, replace=False).tolist():
        found.remove_edge(*edges[at])
        found.add_edge(edges[at][0], int(random.choice([node for node in found if node != edges[at][0]])))
    return found


def pair_and_one_more(between: list[tuple[int, int]]) -> tuple[nx.Graph, nx.Graph]:
    """Two complete graphs with edges between them, and the same with a new node beside the second."""
    graph = nx.disjoint_union(nx.complete_graph(20), nx.complete_graph(20))
    graph.add_edges_from(between)
    after = graph.copy()
    after.add_edges_from([(40, 21), (40, 22)])
    return graph, after


def test_communities_far_from_a_change_are_left_even_where_others_would_be_better() -> None:
    """Those before are halves of complete graphs; no edge leads from the first to the second."""
    graph, after = pair_and_one_more([])
    before = community_table([np.arange(40) // 10], compact(graph), ids(graph))
    kept = {row for row in members(before) if max(row[1]) <= f"{19:024x}"}
    assert len(kept) == 2
    assert kept <= members(updated(graph, after, before))
    assert not kept & members(table(after, before, warm_start(before, None, ids(after)))), "where all count as changed"


def test_a_subdivision_is_kept_while_nothing_changes_inside() -> None:
    """Also one that Leiden would not find: its community is not partitioned again."""
    graph, after = pair_and_one_more([(0, 20)])
    top, odd = np.arange(40) // 20, np.arange(40) // 5
    before = community_table([top, odd], compact(graph), ids(graph))
    found = updated(graph, after, before)
    first = {row for row in members(before) if f"{39:024x}" > max(row[1]) <= f"{19:024x}"}
    assert len(first) == 5
    assert first <= members(found)
    assert (1, tuple(f"{node:024x}" for node in range(20, 25))) not in members(found)  # a complete graph is not divided


@pytest.mark.parametrize("name", GRAPHS)
def test_updates_in_a_row_stay_good_connected_and_nested(name: str) -> None:
    graph, communities = GRAPHS[name], table(GRAPHS[name])
    for step in range(3):
        after = nx.Graph(perturbed(graph, 0.03, step, 1000 * (step + 1)))
        found = updated(graph, after, communities)
        rows = {row["community_id"]: row for row in found.to_pylist()}
        assert len(rows) == found.num_rows
        for row in rows.values():
            assert nx.is_connected(after.subgraph(int(own, 16) for own in row["entity_ids"]))
            if row["parent_id"] is not None:
                parent = rows[row["parent_id"]]
                assert (parent["level"], parent["is_leaf"]) == (row["level"] - 1, False)
                assert set(row["entity_ids"]) < set(parent["entity_ids"])
        leaves = [own for row in rows.values() if row["is_leaf"] for own in row["entity_ids"]]
        assert sorted(leaves) == sorted(ids(after).to_pylist())
        assert all(row["n_entities"] > MAX_SIZE for row in rows.values() if not row["is_leaf"])
        warm, cold = (
            modularity(compact(after), labels) for labels in (level_labels(found, ids(after))[0], detect(after)[0])
        )
        assert warm > cold * (0.95 if name == "heavy-tailed" else 0.99)  # a random graph has many unequal optima
        graph, communities = after, found


def test_changed_entities_are_those_named_and_new_ones_or_all() -> None:
    graph = nx.path_graph(6)
    previous = table(graph)
    order = pa.chunked_array([[f"{node:024x}" for node in range(8)]])
    known = pa.chunked_array([[f"{2:024x}", "unknown"], [f"{4:024x}"]])
    assert np.flatnonzero(warm_start(previous, known, order).changed).tolist() == [2, 4, 6, 7]
    assert warm_start(previous, None, order).changed.all()
    assert warm_start(previous.slice(0, 0), known, order).changed.all()


def overlaps(rows: list[dict[str, Any]], before: list[dict[str, Any]]) -> dict[int, str]:
    """The id that each community continues, every pair compared."""
    found = {}
    for at, row in enumerate(rows):
        for old in before:
            shared = len(set(row["entity_ids"]) & set(old["entity_ids"]))
            largest = max(len(row["entity_ids"]), len(old["entity_ids"]))
            if row["level"] == old["level"] and 2 * shared > largest:
                assert at not in found
                found[at] = old["community_id"]
    return found


@pytest.mark.parametrize("seed", range(2))
def test_an_id_is_kept_by_the_community_with_more_than_half_of_the_members(seed: int) -> None:
    random = np.random.default_rng(seed)
    graph = nx.empty_graph(60)

    def labels(moved: int) -> list[np.ndarray]:
        top = np.arange(60) // 12
        top[random.choice(60, moved, replace=False)] = random.integers(0, 5, moved)
        below = by_lowest_node(top * 10 + random.integers(0, 2, 60) * (np.arange(60) % 2))
        return [by_lowest_node(top), below]

    names = ids(graph)
    before = community_table(labels(10), csr(graph), names)
    found = community_table(labels(10), csr(graph), names, before)
    fresh = {(row["level"], tuple(row["entity_ids"])): row for row in found.to_pylist()}
    expected = overlaps(list(fresh.values()), before.to_pylist())
    assert expected
    for at, row in enumerate(fresh.values()):
        hashed = content_id("community", str(row["level"]), *row["entity_ids"])
        assert row["community_id"] == expected.get(at, hashed)
    assert len(set(found["community_id"].to_pylist())) == found.num_rows
    keys = list(zip(found["level"].to_pylist(), found["community_id"].to_pylist(), strict=True))
    assert keys == sorted(keys)


def test_a_node_less_leaves_the_order_of_the_others() -> None:
    names = pa.chunked_array([[f"{node:024x}" for node in range(50)]])
    keys = visiting_keys(names, 3)
    assert visiting_keys(names.slice(1), 3).tolist() == keys[1:].tolist()
    assert np.argsort(keys).tolist() != np.argsort(visiting_keys(names, 4)).tolist()
    assert keys[:2].tolist() == [11827935074198067546, 16110552855471057084]  # of every version
