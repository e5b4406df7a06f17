"""Memberships of cells → clusters: what counts, what is one, and what is shown."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from hirag_dist.indexing.stages.memberships import CELL_LINKS, MEMBER_ROWS, ChooseMemberships, grouped


def link(cell: int, cluster: int, own: str, share: float, density: float) -> dict[str, Any]:
    return {"cell": cell, "cluster": cluster, "entity_id": own, "share": share, "evidence": np.log(density)}


async def test_an_entity_keeps_its_best_membership_and_those_over_the_threshold() -> None:
    links = [
        link(2, 0, "a", 1.0, density=0.5),
        link(0, 1, "a", 0.625, density=0.8),  # as likely, in an earlier cell: the best
        link(0, 0, "a", 0.0625, density=0.8),
        link(1, 0, "b", 0.04, density=1e-300),
        link(1, 1, "b", 0.02, density=1e-300),
    ]
    services: Any = None
    tables = {"links": pa.Table.from_pylist(links, CELL_LINKS)}
    found = (await ChooseMemberships(0.1, 100).run(tables, services))["links"]
    kept = {(row["cell"], row["cluster"], row["entity_id"]): row for row in found.to_pylist()}
    assert {key: row["best"] for key, row in kept.items()} == {(0, 1, "a"): True, (2, 0, "a"): False, (1, 0, "b"): True}
    assert [kept[0, 1, "a"]["responsibility"], kept[2, 0, "a"]["responsibility"]] == pytest.approx([0.5 / 1.3] * 2)
    assert kept[1, 0, "b"]["responsibility"] == pytest.approx(0.04)


def member(cluster: str, own: str, share: float, best: bool) -> dict[str, Any]:
    shown = {"name": own.upper(), "type": "t", "description": f"about {own}"}
    return {"cluster_id": cluster, "entity_id": own, "responsibility": share, "best": best} | shown


def test_equal_clusters_are_one_with_the_larger_share_and_best_where_either_was() -> None:
    rows = [
        member("y", "c", 1.0, True),
        member("x", "b", 0.5, True),
        member("x", "a", 0.25, True),
        member("x", "a", 0.75, False),
        member("x", "b", 0.25, False),
    ]
    clusters, members = grouped(pa.Table.from_pylist(rows, MEMBER_ROWS), 4)
    assert [tuple(row.values()) for row in clusters.to_pylist()] == [
        ("x", 4, "a", 0.75, True),
        ("x", 4, "b", 0.5, True),
        ("y", 4, "c", 1.0, True),
    ]
    assert members.to_pylist() == [
        {
            "cluster_id": "x",
            "member_ids": ["a", "b"],
            "names": ["A", "B"],
            "types": ["t", "t"],
            "descriptions": ["about a", "about b"],
        },
        {"cluster_id": "y", "member_ids": ["c"], "names": ["C"], "types": ["t"], "descriptions": ["about c"]},
    ]
