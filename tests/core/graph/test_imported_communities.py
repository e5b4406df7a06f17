"""Summary entities put into communities that were there before them."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

from hirag_dist import schemas
from hirag_dist.core.graph.communities import renamed_reports, with_summaries
from hirag_dist.core.text.ids import content_id
from tests.table_rows import filled_row


def community(own: str, level: int, members: str, parent: str | None = None) -> dict[str, Any]:
    given = {"parent_id": parent, "is_leaf": parent is not None, "n_entities": len(members)}
    return filled_row(schemas.COMMUNITIES, community_id=own, level=level, entity_ids=list(members), **given)


def tables(layers: dict[str, int], summaries: list[str], related: list[str]) -> tuple[pa.Table, pa.Table]:
    """Entities by layer; "ax" in `summaries`: a is a member of x; "ab" in `related`: a relation of layer 0."""
    entities = pa.table({"entity_id": list(layers), "layer": pa.array(list(layers.values()), pa.int32())})
    pairs = [(*pair, "summary") for pair in summaries] + [(*pair, "extracted") for pair in related]
    return entities, pa.table(dict(zip(("source_id", "target_id", "kind"), zip(*pairs, strict=True), strict=True)))


def test_without_layers_above_the_communities_are_as_they_were() -> None:
    own = content_id("community", "0", "a", "b")
    communities = pa.Table.from_pylist([community(own, 0, "ab")], schemas.COMMUNITIES)
    found, ids = with_summaries(communities, *tables({"a": 0, "b": 0, "c": 0}, [], ["bc"]))
    assert found.equals(communities)
    assert ids == {own: own}


def slowly(communities: pa.Table, entities: pa.Table, relations: pa.Table) -> list[dict[str, Any]]:
    """The same by dictionaries of ids."""
    homes: dict[str, list[str]] = {}
    for row in communities.to_pylist():
        for entity in row["entity_ids"]:
            homes.setdefault(entity, []).append(row["community_id"])
    below: dict[str, list[str]] = {}
    for row in relations.to_pylist():
        if row["kind"] == "summary":
            below.setdefault(row["target_id"], []).append(row["source_id"])
    for row in sorted(entities.to_pylist(), key=lambda row: row["layer"]):
        if row["layer"]:
            members = below.get(row["entity_id"], [])
            votes = Counter(own for member in members for own in homes.get(member, ()))
            homes[row["entity_id"]] = [own for own, count in votes.items() if 2 * count > len(members)]
    pairs = {frozenset((row["source_id"], row["target_id"])) for row in relations.to_pylist()}
    made, ids = [], dict[str, str]()
    for row in communities.to_pylist():
        inside = {entity for entity, own in homes.items() if row["community_id"] in own}
        ids[row["community_id"]] = content_id("community", str(row["level"]), *sorted(inside))
        joined = sum(len(pair) == 2 and pair <= inside for pair in pairs)
        made.append(row | {"n_entities": len(inside), "n_relations": joined, "entity_ids": sorted(inside)})
    renamed = [row | {"community_id": ids[row["community_id"]], "parent_id": ids.get(row["parent_id"])} for row in made]
    return sorted(renamed, key=lambda row: (row["level"], row["community_id"]))


@pytest.mark.parametrize("seed", range(6))
def test_the_same_as_slowly(seed: int) -> None:
    """40 entities, of which the tables lack some that communities and relations name, under two layers of summaries."""
    choose = random.Random(seed)
    names = [f"e{choose.randrange(10**6):06}-{at}" for at in range(40)]
    layers = dict.fromkeys(names[:38], 0) | {f"s{at}": 1 for at in range(8)} | {f"t{at}": 2 for at in range(3)}
    rows = []
    for level, n_communities in ((0, 2), (1, 5)):
        home = {name: choose.randrange(n_communities + 1) for name in names}  # the last: in none
        for at in range(n_communities):
            parent = f"0-{choose.randrange(2)}" if level else None
            own = community(f"{level}-{at}", level, "", parent)
            rows.append(own | {"entity_ids": [name for name in names if home[name] == at]})
    every = [*names, *list(layers)[38:]]
    related = [(choose.choice(every), choose.choice(every), "extracted") for _ in range(150)]
    summaries = [(name, f"s{at // 6}", "summary") for at, name in enumerate(names)] + [(names[0], "s3", "summary")]
    summaries += [(f"s{at}", f"t{at // 4}", "summary") for at in range(8)]
    entities = pa.table({"entity_id": list(layers), "layer": pa.array(list(layers.values()), pa.int32())})
    columns = dict(zip(("source_id", "target_id", "kind"), zip(*related, *summaries, strict=True), strict=True))
    communities = pa.Table.from_pylist(rows, schemas.COMMUNITIES)
    found, _ = with_summaries(communities, entities, pa.table(columns))
    assert found.to_pylist() == slowly(communities, entities, pa.table(columns))
    assert found.schema == schemas.COMMUNITIES


def test_reports_follow_their_communities() -> None:
    report = {"community_id": "old", "level": 0, "title": "T", "summary": "S", "rating": 1.0, "rating_explanation": ""}
    rest = {"findings": [], "origin": "imported", "n_dropped_references": 0}
    reports = pa.Table.from_pylist([report | rest], schemas.REPORTS)
    found = renamed_reports(reports, {"old": "new"})
    assert found.to_pylist() == [report | rest | {"community_id": "new"}]
    assert found.schema == schemas.REPORTS
