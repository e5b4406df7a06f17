"""Summary entities put into communities that were there before them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from hirag_dist import schemas
from hirag_dist.core.ids import content_id
from hirag_dist.core.kept_communities import renamed_reports, with_summaries


def community(own: str, level: int, members: str, parent: str | None = None) -> dict[str, Any]:
    return {
        "community_id": own,
        "level": level,
        "parent_id": parent,
        "is_leaf": parent is not None,
        "n_entities": len(members),
        "n_relations": 0,
        "entity_ids": list(members),
    }


def tables(layers: dict[str, int], summaries: list[str], related: list[str]) -> tuple[pa.Table, pa.Table]:
    """Entities by layer; "ax" in `summaries`: a is a member of x; "ab" in `related`: a relation of layer 0."""
    entities = pa.table({"entity_id": list(layers), "layer": pa.array(list(layers.values()), pa.int32())})
    pairs = [(*pair, "summary") for pair in summaries] + [(*pair, "extracted") for pair in related]
    return entities, pa.table(dict(zip(("source_id", "target_id", "kind"), zip(*pairs, strict=True), strict=True)))


def test_a_summary_entity_is_where_most_of_its_members_are() -> None:
    """x stands over a, b and c; y over d and e, one of them outside; z over x alone, and so where x is."""
    communities = pa.Table.from_pylist(
        [community("top", 0, "abcd"), community("low", 1, "ab", "top")], schemas.COMMUNITIES
    )
    layers = {name: 0 for name in "abcde"} | {"x": 1, "y": 1, "z": 2}
    entities, relations = tables(layers, ["ax", "bx", "cx", "dy", "ey", "xz"], ["ab", "ba", "cd", "de", "aa"])
    found, ids = with_summaries(communities, entities, relations)
    rows = {row["level"]: row for row in found.to_pylist()}
    assert rows[0]["entity_ids"] == list("abcdxz")
    assert rows[1]["entity_ids"] == list("abxz")
    assert rows[1]["parent_id"] == rows[0]["community_id"] == content_id("community", "0", *"abcdxz")
    assert (rows[0]["n_entities"], rows[1]["n_entities"]) == (6, 4)
    # a–b once though it is stated twice, c–d, and members with their summaries; a–a is no pair
    assert (rows[0]["n_relations"], rows[1]["n_relations"]) == (6, 4)
    assert ids == {"top": rows[0]["community_id"], "low": rows[1]["community_id"]}


def test_without_layers_above_the_communities_are_as_they_were() -> None:
    own = content_id("community", "0", "a", "b")
    communities = pa.Table.from_pylist([community(own, 0, "ab")], schemas.COMMUNITIES)
    found, ids = with_summaries(communities, *tables({"a": 0, "b": 0, "c": 0}, [], ["bc"]))
    assert found.equals(communities)
    assert ids == {own: own}


def test_reports_follow_their_communities() -> None:
    report = {"community_id": "old", "level": 0, "title": "T", "summary": "S", "rating": 1.0, "rating_explanation": ""}
    rest = {"findings": [], "origin": "imported", "n_dropped_references": 0}
    reports = pa.Table.from_pylist([report | rest], schemas.REPORTS)
    found = renamed_reports(reports, {"old": "new"})
    assert found.to_pylist() == [report | rest | {"community_id": "new"}]
    assert found.schema == schemas.REPORTS
