"""Stale texts, weighted by their tokens."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from hirag_dist.core.drift.measures import StaleTexts, stale_reports, stale_summaries
from hirag_dist.schemas import REPORT_INPUTS, REPORTS, SUMMARIES


def summary(cluster: str, chars: int, covered: int, share: float, since: int) -> dict[str, Any]:
    text = {"name": "n" * 2, "type": "t" * 2, "description": "d" * (chars - 4)}
    cover = {"member_id": "m", "entity": 0, "description": "c" * 4, "strength": 1.0}
    row = {"layer": 0, "cluster_id": cluster, "entities": [text], "covers": [cover] * covered, "origin": "model"}
    counts = {"n_founded": 3, "n_turned": 0, "inputs": [], "sources": []}
    return row | counts | {"stale_share": share, "stale_since": since}


def report(community: str, chars: int) -> dict[str, Any]:
    finding = {"summary": "s" * 4, "explanation": "e" * 4, "entity_ids": [], "relation_ids": []}
    texts = {"title": "t" * 4, "summary": "s" * (chars - 20), "rating_explanation": "r" * 8}
    more = {"rating": 1.0, "findings": [finding], "origin": "model", "n_dropped_references": 0}
    return {"community_id": community, "level": 0} | texts | more


def inputs(community: str, share: float, since: int) -> dict[str, Any]:
    return {"community_id": community, "inputs": [], "sources": [], "stale_share": share, "stale_since": since}


def test_summaries_count_by_the_tokens_of_their_entities_and_covers() -> None:
    rows = [summary("a", 40, 0, 0.5, 2), summary("b", 72, 2, 0.125, 0)]  # 10 and 20 tokens
    expected = StaleTexts(units=2, due=1, tokens=30, due_tokens=10, changed_tokens=8)  # 5 + 2.5, to the even
    table = pa.Table.from_pylist(rows, SUMMARIES)
    assert stale_summaries(table) == expected
    parts = pa.concat_tables([table.slice(0, 1), table.slice(1)])
    assert stale_summaries(parts) == expected, "as chunks of a longer array too"
    assert expected.due_share == pytest.approx(1 / 3)
    assert expected.changed_share == pytest.approx(8 / 30)


def test_reports_are_found_by_community() -> None:
    reports = pa.Table.from_pylist([report("x", 40), report("y", 80), report("members only", 400)], REPORTS)
    rows = pa.Table.from_pylist([inputs("y", 1.0, 4), inputs("x", 0.0, 0), inputs("gone", 1.0, 4)], REPORT_INPUTS)
    assert stale_reports(rows, reports) == StaleTexts(units=3, due=2, tokens=30, due_tokens=20, changed_tokens=20)


def test_no_text_is_not_stale() -> None:
    none = stale_summaries(SUMMARIES.empty_table())
    assert none == StaleTexts(0, 0, 0, 0, 0)
    assert (none.due_share, none.changed_share) == (0.0, 0.0)
    assert stale_reports(REPORT_INPUTS.empty_table(), REPORTS.empty_table()) == none
