"""Gates of a drift report."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from hirag_dist.core import drift as module
from hirag_dist.core.drift import (
    CommunityDrift,
    DriftReport,
    Groups,
    GroupSizes,
    LayerDrift,
    PartitionDrift,
    StaleTexts,
    UpdateStaleness,
    best_jaccard,
    compactness,
    groups_of_labels,
    stale_reports,
    stale_summaries,
    weighted_jaccard,
)
from hirag_dist.schemas import REPORT_INPUTS, REPORTS, SUMMARIES
from hirag_dist.types import FloatMatrix
from tests.table_rows import filled_row, filled_table


def unit_rows(n: int, dim: int, seed: int) -> FloatMatrix:
    rows = np.random.default_rng(seed).standard_normal((n, dim))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


@pytest.mark.parametrize("block_rows", [1, 7, 10_000])
def test_the_mean_cosine_to_the_centroid(block_rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BLOCK_ROWS", block_rows)
    vectors, labels = unit_rows(60, 5, seed=1), np.random.default_rng(2).integers(-1, 6, 60)
    cosines = []
    for row in np.flatnonzero(labels >= 0):
        centroid = vectors[labels == labels[row]].astype(np.float64).mean(axis=0)
        cosines.append(vectors[row] @ centroid / np.linalg.norm(centroid))
    assert compactness(vectors, labels) == pytest.approx(np.mean(cosines), abs=1e-7)
    assert compactness(vectors, np.full(60, -1)) == 1.0, "rows in no cluster do not count"


def test_best_jaccard_of_overlapping_groups() -> None:
    # {0, 1, 2}, {2, 3} against {0, 1}, {2, 3, 4}: 2/3 and 2/3; the first also shares one of five with the second
    groups = Groups(np.array([0, 0, 0, 1, 1]), np.array([0, 1, 2, 2, 3]))
    others = Groups(np.array([0, 0, 1, 1, 1]), np.array([0, 1, 2, 3, 4]))
    assert best_jaccard(groups, others).tolist() == [2 / 3, 2 / 3]
    assert best_jaccard(others, groups).tolist() == [2 / 3, 2 / 3]


def test_agreement_is_weighted_by_size_whatever_the_labels_are() -> None:
    groups, others = groups_of_labels(np.array([1, 1, 1, 0])), groups_of_labels(np.array([0, 0, 0, -1]))
    none = groups_of_labels(np.full(4, -1))
    pairs = [(groups, others), (others, groups), (groups, groups), (none, none), (none, groups), (groups, none)]
    assert [weighted_jaccard(*pair) for pair in pairs] == [0.75, 1.0, 1.0, 1.0, 0.0, 0.0]


def summary(cluster: str, chars: int, covered: int, **stale: float) -> dict[str, Any]:
    text = {"name": "nn", "type": "tt", "description": "d" * (chars - 4)}
    covers = [{"member_id": "m", "entity": 0, "description": "cccc", "strength": 1.0}] * covered
    return filled_row(SUMMARIES, cluster_id=cluster, entities=[text], covers=covers, **stale)


def report(community: str, chars: int) -> dict[str, Any]:
    findings = [{"summary": "ssss", "explanation": "eeee", "entity_ids": [], "relation_ids": []}]
    texts = {"title": "tttt", "summary": "s" * (chars - 20), "rating_explanation": "r" * 8}
    return filled_row(REPORTS, community_id=community, findings=findings, **texts)


def test_summaries_count_by_the_tokens_of_their_entities_and_covers() -> None:
    rows = [
        summary("a", 40, 0, stale_share=0.5, stale_since=2),
        summary("b", 72, 2, stale_share=0.125),
    ]  # 10, 20 tokens
    expected = StaleTexts(units=2, due=1, tokens=30, due_tokens=10, changed_tokens=8)  # 5 + 2.5, to the even
    table = pa.Table.from_pylist(rows, SUMMARIES)
    assert stale_summaries(table) == expected
    parts = pa.concat_tables([table.slice(0, 1), table.slice(1)])
    assert stale_summaries(parts) == expected, "as chunks of a longer array too"
    assert stale_summaries(SUMMARIES.empty_table()) == (none := StaleTexts(0, 0, 0, 0, 0))
    assert (none.due_share, none.changed_share) == (0.0, 0.0)
    assert expected.due_share == pytest.approx(1 / 3)
    assert expected.changed_share == pytest.approx(8 / 30)


def test_reports_are_found_by_community() -> None:
    reports = pa.Table.from_pylist([report("x", 40), report("y", 80), report("members only", 400)], REPORTS)
    inputs = [("y", 1.0, 4), ("x", 0.0, 0), ("gone", 1.0, 4)]
    names = ("community_id", "stale_share", "stale_since")
    rows = filled_table(REPORT_INPUTS, (dict(zip(names, each, strict=True)) for each in inputs))
    assert stale_reports(rows, reports) == StaleTexts(units=3, due=2, tokens=30, due_tokens=20, changed_tokens=20)


SAME = PartitionDrift(GroupSizes(3, 0, 0), GroupSizes(3, 0, 0), 1.0)
LAYER = LayerDrift(0, 12, 0, SAME, 0.5, 0.5)
COMMUNITIES = CommunityDrift(12, 0, SAME, SAME, 0.8, 0.8)
UPDATE = UpdateStaleness(1, "base", {"added": 1}, {}, StaleTexts(2, 0, 100, 0, 0), StaleTexts(2, 0, 100, 0, 0))
REPORT = DriftReport("s", "cpu", "cpu", (LAYER,), COMMUNITIES, UPDATE)


def test_all_gates_hold_where_nothing_drifted() -> None:
    assert REPORT.holds
    assert len(REPORT.gates) == 6
    assert not any(gate.advice for gate in REPORT.gates)


@pytest.mark.parametrize(
    ("drifted", "name"),
    [
        (replace(LAYER, compactness=0.474), "compactness ratio"),
        (replace(LAYER, orphans=1), "orphans"),
        (replace(LAYER, clusters=replace(SAME, sizes=GroupSizes(3, 0, 1))), "oversized clusters"),
        (replace(COMMUNITIES, modularity=0.79), "modularity gap"),
        (replace(COMMUNITIES, orphans=1), "orphans"),
    ],
)
def test_a_gate_that_does_not_hold_advises_to_rebuild(drifted: LayerDrift | CommunityDrift, name: str) -> None:
    of_layer = isinstance(drifted, LayerDrift)
    report = replace(REPORT, layers=(drifted,)) if of_layer else replace(REPORT, communities=drifted)
    (gate,) = (gate for gate in report.gates if not gate.holds)
    assert (gate.name, gate.part) == (name, "layer 0" if of_layer else "communities")
    assert "`hirag-dist index INPUT --rebuild`" in gate.advice


def test_limits_themselves_hold() -> None:
    layer = replace(LAYER, compactness=0.95, shadow_compactness=1.0)
    large = replace(SAME, sizes=GroupSizes(3, 2, 1), shadow_sizes=GroupSizes(3, 0, 1))
    communities = replace(COMMUNITIES, modularity=0.5 - 0.0049, shadow_modularity=0.5)
    update = replace(UPDATE, summaries=StaleTexts(2, 1, 100, 20, 20))
    assert replace(REPORT, layers=(layer, replace(LAYER, clusters=large)), communities=communities, update=update).holds


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
