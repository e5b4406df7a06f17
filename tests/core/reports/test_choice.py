"""Choice of reports: small communities always, then by hits, leaves, size."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest

from hirag_dist.core.reports.choice import Policy, ReportChoice, missing_reports
from hirag_dist.core.reports.selection import OUTLINES
from hirag_dist.schemas import COMMUNITIES

SIZES = {"root": 12, "big": 7, "even": 5, "twin": 5, "tiny": 2}


def outline(own: str, n_entities: int) -> dict[str, Any]:
    """Return an outline; root holds big and even."""
    children = [{"community_id": each, "n_entities": SIZES[each], "entity_ids": []} for each in ("big", "even")]
    is_root = own == "root"
    shown = {"tree": "root", "parent_id": None, "parent_tree": None, "entity_ids": [], "relation_ids": []}
    numbers = {"level": 0 if is_root else 1, "n_entities": n_entities}
    return shown | numbers | {"community_id": own, "children": children if is_root else []}


def chosen(policy: Policy, share: float = 1.0, hits: Mapping[str, int] | None = None) -> set[str]:
    outlines = pa.Table.from_pylist([outline(own, size) for own, size in SIZES.items()], OUTLINES)
    found = ReportChoice(policy, share, min_entities=3).chosen(outlines, hits or {})
    return {own for own, is_chosen in zip(SIZES, found.tolist(), strict=True) if is_chosen}


@pytest.mark.parametrize(
    ("policy", "share", "expected"),
    [
        ("all", 0.1, set(SIZES)),
        ("on_demand", 1.0, {"tiny"}),
        ("top", 0.25, {"tiny", "big"}),
        ("top", 0.5, {"tiny", "big", "even"}),  # before twin, by id
        ("top", 0.51, {"tiny", "big", "even", "twin"}),  # rounded up; root is no leaf
        ("top", 1.0, set(SIZES)),
    ],
)
def test_leaves_come_first_by_size(policy: Policy, share: float, expected: set[str]) -> None:
    assert chosen(policy, share) == expected


def test_hits_come_before_size_and_unknown_ones_do_not_count() -> None:
    assert chosen("top", 0.25, {"root": 3, "twin": 2, "gone": 9}) == {"tiny", "root"}
    assert chosen("top", 0.5, {"root": 3, "twin": 2, "gone": 9}) == {"tiny", "root", "twin"}


def test_missing_ones_have_neither_a_report_nor_a_dead_letter() -> None:
    empty = {"level": 0, "parent_id": None, "is_leaf": True, "n_relations": 0, "entity_ids": []}
    rows = [empty | {"community_id": own, "n_entities": size} for own, size in SIZES.items()]
    table = pa.Table.from_pylist(rows, COMMUNITIES)
    known = pa.chunked_array([["big"], ["even"]], pa.string())
    assert missing_reports(table, known, 3).tolist() == [True, False, False, True, False]
