"""Content, order and choice of reports, against the obvious version on small graphs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from hirag_dist.compute.kernels import CpuKernels
from hirag_dist.core.graph.communities import community_table
from hirag_dist.core.graph.csr import build_graph
from hirag_dist.core.graph.leiden import visiting_keys
from hirag_dist.core.reports import selection
from hirag_dist.core.reports.selection import OUTLINES, ReportChoice, ReportOutlines, missing_reports, report_outlines
from hirag_dist.schemas import COMMUNITIES
from tests.table_rows import filled_row


@pytest.fixture(autouse=True)
def _several_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "_PLACE_ROWS", 7)


class Case:
    """A random graph with parallel relations, dangling relations and isolated entities, and its communities."""

    def __init__(self, seed: int, n_entities: int = 60) -> None:
        random = np.random.default_rng(seed)
        block = np.arange(n_entities) // 12
        ends = [
            (a, b)
            for a in range(n_entities)
            for b in range(n_entities)
            if a != b and random.random() < (0.25 if block[a] == block[b] else 0.01)
        ]
        names = [f"e{at:03d}" for at in random.permutation(n_entities)]
        self.ids = pa.chunked_array([names])
        self.relations = pa.table(
            {
                "relation_id": [f"r{at:04d}" for at in range(len(ends))],
                "source_id": [names[a] for a, _ in ends],
                "target_id": [names[b] if random.random() > 0.05 else "nobody" for _, b in ends],
                "weight": random.integers(1, 4, len(ends)).astype(np.float64),
            }
        )
        self.graph = build_graph(self.ids, self.relations)
        levels = CpuKernels().leiden(self.graph, 6, 1.0, visiting_keys(self.ids, seed))
        self.communities = community_table(levels, self.graph, self.ids)
        self.degree = np.diff(self.graph.indptr)

    def outlines(self, max_lines: int, max_tree: int) -> ReportOutlines:
        return report_outlines(self.communities, self.ids, self.relations, self.degree, max_lines, max_tree)


def rows(found: ReportOutlines) -> dict[str, dict[str, Any]]:
    return {row["community_id"]: row for row in [*found.below.to_pylist(), *found.above.to_pylist()]}


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("max_lines", [3, 1000])
def test_shown_are_the_most_connected_members_and_the_heaviest_relations(seed: int, max_lines: int) -> None:
    case = Case(seed)
    order = {own: at for at, own in enumerate(case.ids.to_pylist())}
    relations = case.relations.to_pylist()
    found = rows(case.outlines(max_lines, 10))
    communities = {row["community_id"]: row for row in case.communities.to_pylist()}
    assert found.keys() == communities.keys()
    for own, community in communities.items():
        members = set(community["entity_ids"])
        ranked = sorted(members, key=lambda name: (-case.degree[order[name]], order[name]))[:max_lines]
        inside = [row for row in relations if {row["source_id"], row["target_id"]} <= members]
        heaviest = sorted(inside, key=lambda row: (-row["weight"], row["relation_id"]))[:max_lines]
        assert found[own]["entity_ids"] == ranked
        assert found[own]["relation_ids"] == [row["relation_id"] for row in heaviest]
        assert found[own]["n_entities"] == len(members)
        named = {*ranked, *(row[end] for row in heaviest for end in ("source_id", "target_id"))}
        parts = [part for part in communities.values() if part["parent_id"] == own]
        children = {row["community_id"]: (row["n_entities"], set(row["entity_ids"])) for row in found[own]["children"]}
        assert children == {
            part["community_id"]: (part["n_entities"], named & set(part["entity_ids"])) for part in parts
        }


@pytest.mark.parametrize("max_tree", [1, 3, 10, 1000])
@pytest.mark.parametrize("seed", range(2))
def test_trees_hold_whole_subtrees_of_limited_size(seed: int, max_tree: int) -> None:
    case = Case(seed)
    outlines = case.outlines(5, max_tree)
    found = rows(outlines)
    above = set(outlines.above["community_id"].to_pylist())
    sizes: dict[str, int] = {}
    for own, row in found.items():
        parent = found.get(row["parent_id"])
        if own not in above:
            sizes[row["tree"]] = sizes.get(row["tree"], 0) + 1
            if parent is not None and row["parent_id"] not in above:
                assert parent["tree"] == row["tree"]
                assert row["parent_tree"] is None
            else:
                assert row["parent_tree"] == (parent["tree"] if parent else None)
        else:
            below = [own]
            for each in below:
                below += [other for other, it in found.items() if it["parent_id"] == each]
            assert len(below) > max_tree
            assert row["parent_tree"] is None
            assert parent is None or (row["parent_id"] in above and parent["tree"] == row["tree"])
    assert max(sizes.values()) <= max_tree
    assert not {found[own]["tree"] for own in above} & sizes.keys()
    if max_tree == 1000:
        assert not above
        assert len(sizes) == 1


SIZES = {"root": 12, "big": 7, "even": 5, "twin": 5, "tiny": 2}


def outline(own: str, n_entities: int) -> dict[str, Any]:
    """Return an outline; root holds big and even."""
    children = [{"community_id": each, "n_entities": SIZES[each], "entity_ids": []} for each in ("big", "even")]
    given = {"community_id": own, "tree": "root", "n_entities": n_entities, "level": int(own != "root")}
    return filled_row(OUTLINES, **given, children=children if own == "root" else [])


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
    rows = [filled_row(COMMUNITIES, community_id=own, n_entities=size) for own, size in SIZES.items()]
    table = pa.Table.from_pylist(rows, COMMUNITIES)
    known = pa.chunked_array([["big"], ["even"]], pa.string())
    assert missing_reports(table, known, 3).tolist() == [True, False, False, True, False]
