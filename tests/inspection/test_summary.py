"""Figures of `inspect`, against cases counted by hand and slow versions."""

from __future__ import annotations

import json

import networkx as nx
import numpy as np
import pyarrow as pa
import pytest

from hirag_dist.inspection.summary import inspect_tables

Tables = dict[str, pa.Table]


def test_figures_of_the_tiny_index_by_hand(tiny: Tables) -> None:
    small = inspect_tables(tiny, {"snapshot_id": "s1", "created_at": "2025-01-01T00:00:00Z", "complete": True})
    assert (small.snapshot_id, small.created_at, small.complete) == ("s1", "2025-01-01T00:00:00Z", True)
    expected = {"documents": 1, "chunks": 1, "entities": 6, "relations": 8, "clusters": 2, "cluster_members": 5}
    expected |= {"relations.extracted": 6, "relations.summary": 2, "communities": 4, "reports": 2, "layers": 2}
    assert {name: small.counts[name] for name in expected} == expected
    assert [(found.type, found.entities) for found in small.entity_types] == [("person", 5), ("concept", 1)]
    # a knows b (twice) and c, and one relation leads nowhere: neither raises a degree.
    assert [(hub.name, hub.degree) for hub in small.hubs] == [("a", 3), ("b", 3), ("c", 3), ("S", 2), ("d", 1)]
    assert (small.graph.edges, small.graph.components, small.graph.isolated) == (6, 2, 1)
    assert small.graph.largest_share == pytest.approx(5 / 6)
    # All of it is one chunk, so no pair is looked at; a and b of five have a summary.
    assert (small.paths.pairs, small.paths.exact, small.paths.mean) == (0, True, None)
    assert [layer.covered for layer in small.layers] == [pytest.approx(2 / 5), None]
    top, below = small.levels
    assert (top.communities, top.leaves, top.reports, top.sizes) == (2, 1, 1, (1.0, 2.0, 3.0, 4.0, 5.0))
    assert (below.entities_covered, top.entities_covered) == (pytest.approx(3 / 6), pytest.approx(5 / 6))
    assert (small.reports.communities_share, small.reports.entities_share) == (0.5, pytest.approx(5 / 6))
    assert [(line.stage, line.calls, line.cost_usd, line.models, line.endpoints) for line in small.bill] == [
        ("extract", 6, 0.375, ("m", "n"), ("llm",)),
        ("report", 2, 0.5, ("m",), ("llm",)),
    ]
    assert (small.total.calls, small.total.cost_usd, small.total.input_tokens) == (8, 0.875, 30)


def test_an_empty_index(empty: Tables) -> None:
    found = inspect_tables(empty, {})
    assert (found.graph.entities, found.graph.components, found.hubs, found.levels, found.bill) == (0, 0, (), (), ())
    assert found.complete is None
    json.dumps(found.to_dict(), allow_nan=False)


def test_a_generated_index_agrees_with_networkx(generated: Tables) -> None:
    found = inspect_tables(generated, {})
    entities, relations = generated["entities"].to_pylist(), generated["relations"].to_pylist()
    graph = nx.Graph()
    graph.add_nodes_from(row["entity_id"] for row in entities)
    graph.add_edges_from((row["source_id"], row["target_id"]) for row in relations)
    base = graph.subgraph([row["entity_id"] for row in entities if row["layer"] == 0])
    for summary, oracle in ((found.graph, graph), (found.base_graph, base)):
        assert (summary.entities, summary.edges) == (oracle.number_of_nodes(), oracle.number_of_edges())
        assert summary.components == nx.number_connected_components(oracle)
        assert summary.isolated == nx.number_of_isolates(oracle)
        assert summary.clustering.transitivity == pytest.approx(nx.transitivity(oracle))
        assert summary.clustering.average_local == pytest.approx(nx.average_clustering(oracle))
    degrees: dict[str, int] = dict(graph.degree)
    assert [hub.degree for hub in found.hubs] == sorted(degrees.values(), reverse=True)[:20]
    reported = {row["community_id"] for row in generated["reports"].to_pylist()}
    for level in found.levels:
        rows = [row for row in generated["communities"].to_pylist() if row["level"] == level.level]
        assert level.communities == len(rows)
        assert level.sizes == tuple(np.quantile([row["n_entities"] for row in rows], [0, 0.25, 0.5, 0.75, 1]))
        covered = {name for row in rows if row["community_id"] in reported for name in row["entity_ids"]}
        assert level.entities_covered == pytest.approx(len(covered) / len(entities))
