"""Communities: modularity near the best known, their table, what continues what, and summaries put into them."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import igraph
import leidenalg
import networkx as nx
import numpy as np
import pyarrow as pa
import pytest

from hirag_dist import schemas
from hirag_dist.compute.kernels import CpuKernels
from hirag_dist.core.graph.communities import community_table, renamed_reports, with_summaries
from hirag_dist.core.graph.leiden import visiting_keys
from hirag_dist.core.text.ids import content_id
from tests.core.graphs import csr, ids_of
from tests.table_rows import filled_row

GRAPHS = {
    "caveman": nx.relaxed_caveman_graph(30, 12, 0.1, seed=3),
    "heavy-tailed": nx.barabasi_albert_graph(400, 3, seed=4),
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
    keys = visiting_keys(ids_of(len(graph)), 7)
    ours = oracle.modularity(CpuKernels().leiden(csr(graph), 10**6, 1.0, keys)[0].tolist(), weights=weights)
    assert ours >= best - 0.002


@pytest.mark.parametrize("name", ["caveman", "planted"])
def test_the_table_is_that_of_the_communities_one_by_one(name: str) -> None:
    graph = GRAPHS[name]
    built, ids = csr(graph), ids_of(len(graph))
    levels = CpuKernels().leiden(built, 10, 1.0, visiting_keys(ids, 7))
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
    table = community_table(levels, built, ids)
    columns = ("level", "parent_id", "is_leaf", "entity_ids", "n_entities", "n_relations")
    found = {row["community_id"]: tuple(row[name] for name in columns) for row in table.to_pylist()}
    assert found == expected
    keys = list(zip(table["level"].to_pylist(), table["community_id"].to_pylist(), strict=True))
    assert keys == sorted(keys)


def community(own: str, level: int, members: str, parent: str | None = None) -> dict[str, Any]:
    given = {"parent_id": parent, "is_leaf": parent is not None, "n_entities": len(members)}
    return filled_row(schemas.COMMUNITIES, community_id=own, level=level, entity_ids=list(members), **given)


def slowly(communities: pa.Table, entities: pa.Table, relations: pa.Table) -> list[dict[str, Any]]:
    """The same by dictionaries of ids."""
    homes: dict[str, list[str]] = {}
    for row in communities.to_pylist():
        for entity in row["entity_ids"]:
            homes.setdefault(entity, []).append(row["community_id"])
    below: dict[str, list[str]] = {}
    for row in relations.to_pylist():
        if row["kind"] == "summary":
            below.setdefault(row["target_id"], []).append(row["source_id"])
    for row in sorted(entities.to_pylist(), key=lambda row: row["layer"]):
        if row["layer"]:
            members = below.get(row["entity_id"], [])
            votes = Counter(own for member in members for own in homes.get(member, ()))
            homes[row["entity_id"]] = [own for own, count in votes.items() if 2 * count > len(members)]
    pairs = {frozenset((row["source_id"], row["target_id"])) for row in relations.to_pylist()}
    made, ids = [], dict[str, str]()
    for row in communities.to_pylist():
        inside = {entity for entity, own in homes.items() if row["community_id"] in own}
        ids[row["community_id"]] = content_id("community", str(row["level"]), *sorted(inside))
        joined = sum(len(pair) == 2 and pair <= inside for pair in pairs)
        made.append(row | {"n_entities": len(inside), "n_relations": joined, "entity_ids": sorted(inside)})
    renamed = [row | {"community_id": ids[row["community_id"]], "parent_id": ids.get(row["parent_id"])} for row in made]
    return sorted(renamed, key=lambda row: (row["level"], row["community_id"]))


@pytest.mark.parametrize("seed", range(3))
def test_summaries_are_put_into_communities_as_slowly(seed: int) -> None:
    """40 entities, of which the tables lack some that communities and relations name, under two layers of summaries."""
    choose = random.Random(seed)
    names = [f"e{choose.randrange(10**6):06}-{at}" for at in range(40)]
    layers = dict.fromkeys(names[:38], 0) | {f"s{at}": 1 for at in range(8)} | {f"t{at}": 2 for at in range(3)}
    rows = []
    for level, n_communities in ((0, 2), (1, 5)):
        home = {name: choose.randrange(n_communities + 1) for name in names}  # the last: in none
        for at in range(n_communities):
            parent = f"0-{choose.randrange(2)}" if level else None
            own = community(f"{level}-{at}", level, "", parent)
            rows.append(own | {"entity_ids": [name for name in names if home[name] == at]})
    every = [*names, *list(layers)[38:]]
    related = [(choose.choice(every), choose.choice(every), "extracted") for _ in range(150)]
    summaries = [(name, f"s{at // 6}", "summary") for at, name in enumerate(names)] + [(names[0], "s3", "summary")]
    summaries += [(f"s{at}", f"t{at // 4}", "summary") for at in range(8)]
    entities = pa.table({"entity_id": list(layers), "layer": pa.array(list(layers.values()), pa.int32())})
    columns = dict(zip(("source_id", "target_id", "kind"), zip(*related, *summaries, strict=True), strict=True))
    communities = pa.Table.from_pylist(rows, schemas.COMMUNITIES)
    found, _ = with_summaries(communities, entities, pa.table(columns))
    assert found.to_pylist() == slowly(communities, entities, pa.table(columns))
    assert found.schema == schemas.COMMUNITIES


def test_reports_follow_their_communities() -> None:
    report = filled_row(schemas.REPORTS, community_id="old", title="T", summary="S", rating=1.0)
    found = renamed_reports(pa.Table.from_pylist([report], schemas.REPORTS), {"old": "new"})
    assert found.to_pylist() == [report | {"community_id": "new"}]
    assert found.schema == schemas.REPORTS
