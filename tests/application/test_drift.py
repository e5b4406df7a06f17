"""Drift of a toy index: none where it is fresh, and every gate fails where the index was damaged for it."""

from __future__ import annotations

from pathlib import Path

import pyarrow.compute as pc
import pytest

from hirag_dist.application.drift import measure_drift
from hirag_dist.core.drift import DriftReport
from hirag_dist.storage.snapshot.reader import Snapshot
from tests.altered_snapshots import altered
from tests.toy_builds import LONG, Bench, rows


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Snapshot:
    return Bench(tmp_path_factory.mktemp("toy")).build([LONG], communities={"max_size": 4})


def failing(report: DriftReport) -> list[tuple[str, str]]:
    return [(gate.name, gate.part) for gate in report.gates if not gate.holds]


def test_a_fresh_index_is_its_own_shadow(fresh: Snapshot) -> None:
    report = measure_drift(fresh)
    assert [layer.layer for layer in report.layers] == [0, 1]
    for layer in report.layers:
        clusters = layer.clusters
        assert (clusters.jaccard, layer.compactness_ratio, layer.orphans) == (1.0, 1.0, 0)
        assert clusters.sizes == clusters.shadow_sizes
        assert clusters.sizes.groups == rows(fresh, "layers")[layer.layer]["n_clusters"]
        assert 0 < layer.compactness == layer.shadow_compactness < 1
    communities = report.communities
    assert communities
    assert communities.modularity == communities.shadow_modularity > 0.5
    assert (communities.modularity_gap, communities.orphans) == (0.0, 0)
    for part in (communities.top, communities.leaves):
        assert part.jaccard == 1.0
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


def test_an_index_that_came_by_an_update(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    words = LONG.split()
    bench.build([" ".join(words[:28])])
    bench.base_id = ""
    texts = [" ".join(words[:28]), " ".join(words[20:36]), " ".join(words[30:])]
    report = measure_drift(bench.build(texts, update={"max_ratio": 3}))
    state = report.update
    assert state
    assert (state.number, state.documents) == (1, {"added": 2, "changed": 0, "removed": 0})
    assert state.base
    assert state.summaries.units == sum(layer.clusters.sizes.groups for layer in report.layers)
    assert report.communities
    assert report.communities.orphans == 0
    for layer in report.layers:
        assert (layer.orphans, layer.clusters.sizes.large) == (0, 0)
        assert 0 < layer.clusters.jaccard <= 1
    due = {"descriptions": 0, "summaries": state.summaries.due, "reports": state.reports.due}
    assert due == {kind: part["units"] for kind, part in state.debt.items()}, "what is due is debt"
    assert due["summaries"] > 0, "the budget of so small an update does not pay for all"
    assert measure_drift(bench.build(texts)) == report, "nothing changed"
