"""Communities: modularity near the best known, their table, and what continues what."""

import igraph
import leidenalg
import networkx as nx
import numpy as np
import pyarrow as pa
import pytest

from hirag_dist.compute.kernels import CpuKernels
from hirag_dist.core.entities.merging import inter_layer_relation
from hirag_dist.core.graph.communities import community_table, lineage
from hirag_dist.core.graph.csr import build_graph
from hirag_dist.core.graph.leiden import visiting_keys
from hirag_dist.core.text.ids import content_id
from hirag_dist.schemas import RELATIONS
from hirag_dist.types import CsrGraph


def built(graph: nx.Graph) -> tuple[CsrGraph, pa.ChunkedArray]:
    ids = pa.chunked_array([pa.array([f"n{node:05d}" for node in range(graph.number_of_nodes())])])
    rows = [
        inter_layer_relation("extracted", f"n{a:05d}", f"n{b:05d}", 0, "", float(data.get("weight", 1.0)))
        for a, b, data in graph.edges(data=True)
    ]
    return build_graph(ids, pa.Table.from_pylist(rows, RELATIONS)), ids


GRAPHS = {
    "caveman": nx.relaxed_caveman_graph(30, 12, 0.1, seed=3),
    "heavy-tailed": nx.barabasi_albert_graph(800, 3, seed=4),
    "planted": nx.planted_partition_graph(10, 40, 0.3, 0.01, seed=5),
    "karate": nx.karate_club_graph(),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_modularity_is_near_leidenalgs_best(name: str) -> None:
    graph = GRAPHS[name]
    weights = [float(data.get("weight", 1.0)) for _, _, data in graph.edges(data=True)]
    oracle = igraph.Graph(n=graph.number_of_nodes(), edges=list(graph.edges))
    found = [
        leidenalg.find_partition(oracle, leidenalg.ModularityVertexPartition, weights=weights, seed=seed).membership
        for seed in range(3)
    ]
    best = max(oracle.modularity(membership, weights=weights) for membership in found)
    csr, ids = built(graph)
    ours = oracle.modularity(CpuKernels().leiden(csr, 10**6, 1.0, visiting_keys(ids, 7))[0].tolist(), weights=weights)
    assert ours >= best - 0.002


def obvious_lineage(old: pa.Table, new: pa.Table) -> dict[str, str]:
    before = {row["community_id"]: set(row["entity_ids"]) for row in old.to_pylist()}
    found = {}
    for row in new.to_pylist():
        if row["community_id"] in before:
            continue
        members = set(row["entity_ids"])
        scored = [(len(members & other) / len(members | other), own) for own, other in before.items()]
        score, own = max(scored, default=(0.0, ""))
        if score >= 0.5:
            found[row["community_id"]] = own
    return found


@pytest.mark.parametrize("seed", range(4))
def test_lineage_is_that_of_every_pair_compared(seed: int) -> None:
    """Two partitions of overlapping sets of entities in two levels; ties and unchanged communities among them."""
    random = np.random.default_rng(seed)

    def table(n_groups: int) -> pa.Table:
        rows = []
        for level, groups in enumerate((n_groups, 3 * n_groups)):
            of = random.integers(0, groups, 40) if level else (np.arange(40) + random.integers(0, 2, 40)) // 8
            for group in np.unique(of):
                names = [f"e{node:02d}" for node in np.flatnonzero(of == group) + seed % 3]
                rows.append({"community_id": "-".join([str(level), *names])[:60], "entity_ids": names})
        return pa.Table.from_pylist(rows)

    old, new = table(5), table(6)
    found = lineage(old, new)
    assert found == obvious_lineage(old, new)
    assert lineage(old, old) == {}
    assert lineage(old.slice(0, 0), new) == {}


@pytest.mark.parametrize("name", ["caveman", "planted"])
def test_the_table_is_that_of_the_communities_one_by_one(name: str) -> None:
    graph = GRAPHS[name]
    csr, ids = built(graph)
    levels = CpuKernels().leiden(csr, 10, 1.0, visiting_keys(ids, 7))
    assert len(levels) > 1
    names = ids.to_pylist()
    deeper = [*levels[1:], np.full(len(names), -1)]
    expected = {}
    home: dict[int, str] = {}  # of each node, in the level above
    for level, labels in enumerate(levels):
        above = dict(home)
        for label in range(int(labels.max()) + 1):
            nodes = np.flatnonzero(labels == label).tolist()
            members = sorted(names[node] for node in nodes)
            own = content_id("community", str(level), *members)
            home |= dict.fromkeys(nodes, own)
            place = (level, above.get(nodes[0]), bool(deeper[level][nodes[0]] < 0))
            expected[own] = (*place, members, len(members), graph.subgraph(nodes).number_of_edges())
    table = community_table(levels, csr, ids)
    columns = ("level", "parent_id", "is_leaf", "entity_ids", "n_entities", "n_relations")
    found = {row["community_id"]: tuple(row[name] for name in columns) for row in table.to_pylist()}
    assert found == expected
    keys = list(zip(table["level"].to_pylist(), table["community_id"].to_pylist(), strict=True))
    assert keys == sorted(keys)
