"""Detection of communities as a stage: cold, warm, the check of the one by the other, and its figures."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
import pyarrow as pa
import pytest

from hirag_dist.compute.kernels import CpuKernels
from hirag_dist.core.graph.communities import community_table
from hirag_dist.core.graph.csr import build_graph
from hirag_dist.execution.stage import Services
from hirag_dist.indexing.stages.communities import (
    CHANGED_ENTITIES,
    DETECTION_STATS,
    ENTITY_ORDER,
    DetectCommunities,
    adjacency,
)
from hirag_dist.schemas import COMMUNITIES, RELATIONS

RELATION_ENDS = pa.schema([RELATIONS.field(name) for name in ("relation_id", "source_id", "target_id", "weight")])
GRAPH = nx.planted_partition_graph(8, 20, 0.5, 0.01, seed=2)
NAMES = [f"{node:024x}" for node in GRAPH]


def tables(graph: nx.Graph) -> dict[str, pa.Table]:
    edges = [(f"{a:024x}", f"{b:024x}") for a, b in graph.edges]
    entities = [{"entity_id": f"{node:024x}", "layer": 0} for node in graph]
    relations = [{"relation_id": f"{a}{b}", "source_id": a, "target_id": b, "weight": 1.0} for a, b in edges]
    return {
        "entities": pa.Table.from_pylist(entities, ENTITY_ORDER),
        "relations": pa.Table.from_pylist(relations, RELATION_ENDS),
    }


def services() -> Services:
    return Services(None, None, lambda _: CpuKernels(), None, len)  # type: ignore[arg-type]


async def detected(
    given: dict[str, pa.Table], previous: pa.Table | None = None, changed: list[str] | None = None, before: int = 0
) -> tuple[pa.Table, dict[str, Any]]:
    entities = given["entities"].sort_by("entity_id")
    entries, degrees = adjacency(build_graph(entities["entity_id"], given["relations"]))
    given = {"entities": entities, "adjacency": entries, "degrees": degrees}
    if previous is not None:
        given["previous"] = previous
    if changed is not None:
        given["changed"] = pa.table({"entity_id": changed}, CHANGED_ENTITIES)
    found = await DetectCommunities(12, 1.0, 0, "cpu", before).run(given, services())
    assert found["communities"].schema == COMMUNITIES
    assert found["stats"].schema == DETECTION_STATS
    (row,) = found["stats"].to_pylist()
    return found["communities"], row


async def test_a_first_detection_is_cold_and_all_communities_are_new() -> None:
    found, stats = await detected(tables(GRAPH))
    assert stats["modularity_cold"] > 0.7
    assert stats == {
        "modularity_warm": None,
        "modularity_cold": stats["modularity_cold"],
        "cold_adopted": True,
        "n_kept": 0,
        "n_new": found.num_rows,
        "changed_since_cold": 0,
    }


@pytest.mark.parametrize("changed", [NAMES[:1], None])
async def test_without_a_change_all_communities_are_kept(changed: list[str] | None) -> None:
    first, cold = await detected(tables(GRAPH))
    found, stats = await detected(tables(GRAPH), first, changed)
    assert found.equals(first)
    assert (stats["n_kept"], stats["n_new"], stats["cold_adopted"]) == (first.num_rows, 0, False)
    assert stats["modularity_warm"] == stats["modularity_cold"] == cold["modularity_cold"]


async def test_communities_worse_than_those_of_a_cold_detection_are_replaced() -> None:
    """All entities are in one community, and a subdivision of it that is a good one keeps no id: of another level."""
    given = tables(GRAPH)
    names = pa.chunked_array([NAMES])
    one = community_table([np.zeros(len(NAMES), np.int64)], build_graph(names, given["relations"]), names)
    found, stats = await detected(given, one, [])
    cold, _ = await detected(given)
    assert stats["cold_adopted"]
    assert stats["modularity_warm"] == pytest.approx(0.0)
    assert found.equals(cold)
