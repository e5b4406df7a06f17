"""Content of reports and their order, against the obvious version on small graphs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from hirag_dist.compute.kernels import CpuKernels
from hirag_dist.core.graph.communities import community_table
from hirag_dist.core.graph.csr import build_graph
from hirag_dist.core.graph.leiden import visiting_keys
from hirag_dist.core.reports.selection import ReportOutlines, report_outlines


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


@pytest.mark.parametrize("seed", range(2))
def test_each_tree_is_given_the_text_of_what_it_names_and_no_more(seed: int) -> None:
    case = Case(seed)
    found = case.outlines(4, 3)
    ends = {row["relation_id"]: {row["source_id"], row["target_id"]} for row in case.relations.to_pylist()}
    entities, relations = set(), set()
    for row in rows(found).values():
        relations |= {(row["tree"], own) for own in row["relation_ids"]}
        entities |= {(row["tree"], own) for own in row["entity_ids"]}
        entities |= {(row["tree"], own) for relation in row["relation_ids"] for own in ends[relation]}
    places = [(row["tree"], row["entity_id"]) for row in found.entities.to_pylist()]
    assert len(places) == len(set(places))
    assert set(places) == entities
    links = [(row["tree"], row["relation_id"]) for row in found.relations.to_pylist()]
    assert len(links) == len(set(links))
    assert set(links) == relations
    order = {own: at for at, own in enumerate(case.ids.to_pylist())}
    assert all(row["degree"] == case.degree[order[row["entity_id"]]] for row in found.entities.to_pylist())


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
