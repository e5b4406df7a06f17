"""Drift of a toy index: none where it is fresh, and every gate fails where the index was damaged for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from hirag_dist.application.drift import measure_drift
from hirag_dist.core.drift.report import DriftReport
from hirag_dist.schemas import CLUSTERS, COMMUNITIES, REPORT_INPUTS, SUMMARIES
from hirag_dist.storage.snapshot.reader import Snapshot
from tests.altered_snapshots import altered
from tests.toy_builds import LONG, Bench, rows


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Snapshot:
    return Bench(tmp_path_factory.mktemp("toy")).build([LONG], communities={"max_size": 4})


def failing(report: DriftReport) -> list[tuple[str, str]]:
    return [(gate.name, gate.part) for gate in report.gates if not gate.holds]


def with_rows(snapshot: Snapshot, name: str, schema: pa.Schema, change: Callable[[dict[str, Any]], Any]) -> pa.Table:
    """Return a table with each row changed; a row that becomes None is left out."""
    return pa.Table.from_pylist([row for row in map(change, rows(snapshot, name)) if row is not None], schema)


def test_a_fresh_index_is_its_own_shadow(fresh: Snapshot) -> None:
    report = measure_drift(fresh)
    assert [layer.layer for layer in report.layers] == [0, 1]
    for layer in report.layers:
        clusters = layer.clusters
        assert (clusters.jaccard, clusters.ari, layer.compactness_ratio, layer.orphans) == (1.0, 1.0, 1.0, 0)
        assert clusters.sizes == clusters.shadow_sizes
        assert clusters.sizes.groups == rows(fresh, "layers")[layer.layer]["n_clusters"]
        assert 0 < layer.compactness == layer.shadow_compactness < 1
    communities = report.communities
    assert communities
    assert communities.modularity == communities.shadow_modularity > 0.5
    assert (communities.modularity_gap, communities.orphans) == (0.0, 0)
    for part in (communities.top, communities.leaves):
        assert (part.jaccard, part.ari) == (1.0, 1.0)
        assert part.sizes == part.shadow_sizes
    leaves = [row for row in rows(fresh, "communities") if row["is_leaf"]]
    assert communities.leaves.sizes.groups == len(leaves) > communities.top.sizes.groups
    assert report.holds


def test_an_entity_in_no_cluster_is_an_orphan(fresh: Snapshot) -> None:
    lost = rows(fresh, "entities")[0]["entity_id"]
    table = fresh.table("clusters").filter(pc.not_equal(fresh.table("clusters")["entity_id"], lost))
    report = measure_drift(altered(fresh, {"clusters": table}))
    assert failing(report) == [("orphans", "layer 0")]
    assert report.layers[0].orphans == 1
    assert report.layers[0].clusters.jaccard < 1


def test_clusters_of_entities_that_are_not_alike_fail_the_compactness(fresh: Snapshot) -> None:
    ids = [row["entity_id"] for row in rows(fresh, "entities") if row["layer"] == 0]
    other = dict(zip(ids, np.random.default_rng(0).permutation(ids).tolist(), strict=True))
    table = with_rows(
        fresh, "clusters", CLUSTERS, lambda row: row | {"entity_id": other.get(row["entity_id"], row["entity_id"])}
    )
    report = measure_drift(altered(fresh, {"clusters": table}))
    assert failing(report) == [("compactness ratio", "layer 0")]
    assert report.layers[0].clusters.ari < 0.2
    assert report.layers[1] == measure_drift(fresh).layers[1]


def test_a_cluster_above_the_largest_size_fails(fresh: Snapshot) -> None:
    table = with_rows(
        fresh,
        "clusters",
        CLUSTERS,
        lambda row: row if row["layer"] else (row | {"cluster_id": "all"} if row["best"] else None),
    )
    report = measure_drift(altered(fresh, {"clusters": table}))
    assert failing(report) == [("compactness ratio", "layer 0"), ("oversized clusters", "layer 0")]
    assert report.layers[0].clusters.sizes.groups == report.layers[0].clusters.sizes.large == 1
    assert report.layers[0].clusters.ari == 0.0


def test_communities_across_the_graph_fail_the_modularity(fresh: Snapshot) -> None:
    ids = [row["entity_id"] for row in rows(fresh, "entities")]
    other = dict(zip(ids, np.random.default_rng(0).permutation(ids).tolist(), strict=True))
    table = with_rows(
        fresh, "communities", COMMUNITIES, lambda row: row | {"entity_ids": [other[id_] for id_ in row["entity_ids"]]}
    )
    report = measure_drift(altered(fresh, {"communities": table}))
    assert failing(report) == [("modularity gap", "communities")]
    assert report.communities
    assert report.communities.top.ari < 0.2
    assert report.communities.modularity_gap > 0.5


def test_an_entity_in_no_community_is_an_orphan(fresh: Snapshot) -> None:
    lost = rows(fresh, "entities")[0]["entity_id"]
    table = with_rows(
        fresh,
        "communities",
        COMMUNITIES,
        lambda row: row | {"entity_ids": [id_ for id_ in row["entity_ids"] if id_ != lost]},
    )
    report = measure_drift(altered(fresh, {"communities": table}))
    assert ("orphans", "communities") in failing(report)
    assert report.communities
    assert report.communities.orphans == 1


def test_texts_that_are_due_fail_the_stale_share(fresh: Snapshot) -> None:
    text = [{"name": "n", "type": "t", "description": "d" * 400}]
    reply = {"layer": 0, "entities": text, "covers": [], "origin": "model", "n_founded": 4, "n_turned": 2}
    reply |= {"inputs": [], "sources": [], "stale_share": 0.5}
    summaries = [reply | {"cluster_id": "a", "stale_since": 2}, reply | {"cluster_id": "b", "stale_since": 0}]
    community = rows(fresh, "reports")[0]["community_id"]
    inputs = [{"community_id": community, "inputs": [], "sources": [], "stale_share": 0.0, "stale_since": 0}]
    note = {
        "number": 2,
        "base": "before",
        "documents": {"added": 1, "changed": 0, "removed": 0},
        "debt": {"summaries": {"units": 1, "tokens": 900}, "reports": {"units": 0, "tokens": 0}},
    }
    tables = {
        "summaries": pa.Table.from_pylist(summaries, SUMMARIES),
        "report_inputs": pa.Table.from_pylist(inputs, REPORT_INPUTS),
    }
    snapshot = altered(fresh, tables, {"update": note})
    report = measure_drift(snapshot)
    assert failing(report) == [("stale share", "")]
    state = report.update
    assert state
    assert (state.number, state.base, state.documents["added"]) == (2, "before", 1)
    assert state.debt["summaries"] == {"units": 1, "tokens": 900}
    assert (state.summaries.units, state.summaries.due, state.summaries.due_share) == (2, 1, 0.5)
    assert (state.reports.units, state.reports.due) == (1, 0)
    assert 0.4 < state.stale_share < 0.5
    assert not report.notes
    assert replace(report, update=None).holds


def test_kernels_that_are_missing_here_are_replaced_and_named(fresh: Snapshot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hirag_dist.compute.kernels.find_spec", lambda name: None)
    config = fresh.manifest.build["config"]
    unknown = {"clustering": config["clustering"] | {"of_a_later_version": 1}}
    # another snapshot of the same content would be the same snapshot, with its first manifest
    table = with_rows(fresh, "layers", fresh.table("layers").schema, lambda row: row | {"decision": "another"})
    report = measure_drift(altered(fresh, {"layers": table}, build={"kernels": "gpu", "config": config | unknown}))
    assert (report.kernels, report.index_kernels) == ("cpu", "gpu")
    assert "kernels: gpu" in report.notes[0]
    assert report.holds


def test_an_index_that_came_by_updates(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    words = LONG.split()
    bench.build([" ".join(words[:28])])
    bench.base_id = ""
    texts = [" ".join(words[:28]), " ".join(words[20:36]), " ".join(words[30:])]
    bench.build(texts[:2], update={"max_ratio": 3})
    report = measure_drift(bench.build(texts, update={"max_ratio": 3}))
    state = report.update
    assert state
    assert (state.number, state.documents) == (2, {"added": 1, "changed": 0, "removed": 0})
    assert state.base
    assert state.summaries.units == sum(layer.clusters.sizes.groups for layer in report.layers)
    assert report.communities
    assert report.communities.orphans == 0
    for layer in report.layers:
        assert (layer.orphans, layer.clusters.sizes.large) == (0, 0)
        assert 0 < layer.clusters.jaccard <= 1
    due = {"summaries": state.summaries.due, "reports": state.reports.due}
    assert due == {kind: part["units"] for kind, part in state.debt.items()}, "what is due is debt"
    assert due["summaries"] > 0, "the budget of so small an update does not pay for all"
    assert measure_drift(bench.build(texts)) == report, "nothing changed"
