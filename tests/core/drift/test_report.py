"""Gates of a drift report."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hirag_dist.core.drift.measures import StaleTexts
from hirag_dist.core.drift.report import (
    CommunityDrift,
    DriftReport,
    GroupSizes,
    LayerDrift,
    PartitionDrift,
    UpdateStaleness,
)

SAME = PartitionDrift(GroupSizes(3, 0, 0), GroupSizes(3, 0, 0), 1.0, 1.0)
LAYER = LayerDrift(0, 12, 0, SAME, 0.5, 0.5)
COMMUNITIES = CommunityDrift(12, 0, SAME, SAME, 0.8, 0.8)
UPDATE = UpdateStaleness(1, "base", {"added": 1}, {}, StaleTexts(2, 0, 100, 0, 0), StaleTexts(2, 0, 100, 0, 0))
REPORT = DriftReport("s", "cpu", "cpu", (LAYER,), COMMUNITIES, UPDATE)


def failing(report: DriftReport) -> list[tuple[str, str]]:
    return [(gate.name, gate.part) for gate in report.gates if not gate.holds]


def test_all_gates_hold_where_nothing_drifted() -> None:
    assert REPORT.holds
    assert len(REPORT.gates) == 6
    assert not any(gate.advice for gate in REPORT.gates)


@pytest.mark.parametrize(
    ("layer", "name"),
    [
        (replace(LAYER, compactness=0.474), "compactness ratio"),
        (replace(LAYER, orphans=1), "orphans"),
        (replace(LAYER, clusters=replace(SAME, sizes=GroupSizes(3, 0, 1))), "oversized clusters"),
    ],
)
def test_gates_of_a_layer(layer: LayerDrift, name: str) -> None:
    report = replace(REPORT, layers=(layer,))
    assert failing(report) == [(name, "layer 0")]
    assert [gate.advice.split("`")[1] for gate in report.gates if not gate.holds] == [
        "hirag-dist index INPUT --rebuild"
    ]


def test_limits_themselves_hold() -> None:
    layer = replace(LAYER, compactness=0.95, shadow_compactness=1.0)
    large = replace(SAME, sizes=GroupSizes(3, 2, 1), shadow_sizes=GroupSizes(3, 0, 1))
    communities = replace(COMMUNITIES, modularity=0.5 - 0.0049, shadow_modularity=0.5)
    update = replace(UPDATE, summaries=StaleTexts(2, 1, 100, 20, 20))
    assert replace(REPORT, layers=(layer, replace(LAYER, clusters=large)), communities=communities, update=update).holds


@pytest.mark.parametrize(
    ("communities", "name"),
    [(replace(COMMUNITIES, modularity=0.79), "modularity gap"), (replace(COMMUNITIES, orphans=1), "orphans")],
)
def test_gates_of_communities(communities: CommunityDrift, name: str) -> None:
    assert failing(replace(REPORT, communities=communities)) == [(name, "communities")]


def test_a_gap_is_relative_to_the_shadow() -> None:
    assert replace(COMMUNITIES, modularity=0.6).modularity_gap == pytest.approx(0.25)
    assert replace(COMMUNITIES, modularity=0.9).modularity_gap == pytest.approx(-0.125), "better than the shadow"
    assert replace(COMMUNITIES, modularity=0.0, shadow_modularity=0.0).modularity_gap == 0.0
    assert replace(COMMUNITIES, modularity=-0.1, shadow_modularity=0.0).modularity_gap == pytest.approx(0.1)


def test_a_stale_share_advises_to_refresh() -> None:
    update = replace(UPDATE, reports=StaleTexts(2, 1, 100, 21, 21))
    report = replace(REPORT, update=update)
    assert update.stale_share == pytest.approx(0.105)
    (gate,) = (gate for gate in report.gates if not gate.holds)
    assert (gate.name, gate.value_text, gate.limit_text) == ("stale share", "10.5%", "≤ 10.0%")
    assert "hirag-dist refresh" in gate.advice
