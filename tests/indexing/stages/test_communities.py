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
EDGES = [(NAMES[low], NAMES[high]) for low, high in GRAPH.edges]
RELATIONS_OF_ALL = pa.Table.from_pylist(
    [{"relation_id": f"{a}{b}", "source_id": a, "target_id": b, "weight": 1.0} for a, b in EDGES], RELATION_ENDS
)


async def detected(
    previous: pa.Table | None = None, changed: list[str] | None = None
) -> tuple[pa.Table, dict[str, Any]]:
    entities = pa.Table.from_pylist([{"entity_id": name, "layer": 0} for name in NAMES], ENTITY_ORDER)
    entries, degrees = adjacency(build_graph(entities["entity_id"], RELATIONS_OF_ALL))
    given = {"entities": entities, "adjacency": entries, "degrees": degrees}
    if previous is not None:
        given["previous"] = previous
    if changed is not None:
        given["changed"] = pa.table({"entity_id": changed}, CHANGED_ENTITIES)
    services = Services(None, None, lambda _: CpuKernels(), None, len)  # type: ignore[arg-type]
    found = await DetectCommunities(12, 1.0, 0, "cpu").run(given, services)
    assert (found["communities"].schema, found["stats"].schema) == (COMMUNITIES, DETECTION_STATS)
    (row,) = found["stats"].to_pylist()
    return found["communities"], row


async def test_all_communities_of_a_first_detection_are_new_and_without_a_change_all_are_kept() -> None:
    first, stats = await detected()
    cold = stats["modularity_cold"]
    assert cold > 0.7
    expected = {"modularity_warm": None, "modularity_cold": cold, "cold_adopted": True, "changed_since_cold": 0}
    assert stats == expected | {"n_kept": 0, "n_new": first.num_rows}
    for changed in (NAMES[:1], None):
        found, stats = await detected(first, changed)
        assert found.equals(first)
        kept = {"modularity_warm": cold, "cold_adopted": False, "n_kept": first.num_rows, "n_new": 0}
        assert stats == expected | kept


async def test_communities_worse_than_those_of_a_cold_detection_are_replaced() -> None:
    """All entities are in one community, and a subdivision of it that is a good one keeps no id: of another level."""
    names = pa.chunked_array([NAMES])
    one = community_table([np.zeros(len(NAMES), np.int64)], build_graph(names, RELATIONS_OF_ALL), names)
    found, stats = await detected(one, [])
    cold, _ = await detected()
    assert stats["cold_adopted"]
    assert stats["modularity_warm"] == pytest.approx(0.0)
    assert found.equals(cold)
