"""Choice of reports: small communities always, then leaves by size."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from hirag_dist.core.reports.selection import OUTLINES, ReportChoice, missing_reports
from hirag_dist.schemas import COMMUNITIES

SIZES = {"root": 12, "big": 7, "even": 5, "twin": 5, "tiny": 2}


def outline(own: str, n_entities: int) -> dict[str, Any]:
    """Return an outline; root holds big and even."""
    children = [{"community_id": each, "n_entities": SIZES[each], "entity_ids": []} for each in ("big", "even")]
    is_root = own == "root"
    shown = {"tree": "root", "parent_id": None, "parent_tree": None, "entity_ids": [], "relation_ids": []}
    numbers = {"level": 0 if is_root else 1, "n_entities": n_entities}
    return shown | numbers | {"community_id": own, "children": children if is_root else []}


def chosen(share: float) -> set[str]:
    outlines = pa.Table.from_pylist([outline(own, size) for own, size in SIZES.items()], OUTLINES)
    found = ReportChoice(share, min_entities=3).chosen(outlines)
    return {own for own, is_chosen in zip(SIZES, found.tolist(), strict=True) if is_chosen}


@pytest.mark.parametrize(
    ("share", "expected"),
    [
        (0.0, {"tiny"}),
        (0.25, {"tiny", "big"}),
        (0.5, {"tiny", "big", "even"}),  # before twin, by id
        (0.51, {"tiny", "big", "even", "twin"}),  # rounded up; root is no leaf
        (1.0, set(SIZES)),
    ],
)
def test_leaves_come_first_by_size(share: float, expected: set[str]) -> None:
    assert chosen(share) == expected


def test_missing_ones_have_neither_a_report_nor_a_dead_letter() -> None:
    empty = {"level": 0, "parent_id": None, "is_leaf": True, "n_relations": 0, "entity_ids": []}
    rows = [empty | {"community_id": own, "n_entities": size} for own, size in SIZES.items()]
    table = pa.Table.from_pylist(rows, COMMUNITIES)
    known = pa.chunked_array([["big"], ["even"]], pa.string())
    assert missing_reports(table, known, 3).tolist() == [True, False, False, True, False]
