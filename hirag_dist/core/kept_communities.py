"""Communities that another tool found in layer 0, with the summary entities that were put above it since."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from hirag_dist.core.ids import content_id
from hirag_dist.schemas import COMMUNITIES, REPORTS

Homes = dict[str, list[str]]  # entity → its communities


def with_summaries(communities: pa.Table, entities: pa.Table, relations: pa.Table) -> tuple[pa.Table, dict[str, str]]:
    """Return the communities with summary entities as further members, and the new id of each by its old one.

    A summary entity is in each community that holds more than half of the entities right below it, and in none where
    its members are spread: Eq. 13 then finds a community by its summaries, and Eq. 14 draws key entities from all
    layers. Since sub-communities hold fewer, it stays nested. Entities that no community holds have none.

    Args:
        communities: COMMUNITIES of layer 0; an entity is in one of a level at most.
        entities: `entity_id` and `layer` of all layers.
        relations: `source_id`, `target_id`, `kind` of all layers; kind `summary` goes from a member to its summary.
    """
    homes = _homes(communities)
    _add_summaries(homes, entities, relations)
    members: dict[str, list[str]] = {own: [] for own in communities["community_id"].to_pylist()}
    for entity, own in homes.items():
        for community in own:
            members[community].append(entity)
    inside = _inside(homes, relations)
    rows = communities.to_pylist()
    ids = {
        row["community_id"]: content_id("community", str(row["level"]), *sorted(members[row["community_id"]]))
        for row in rows
    }
    new: list[dict[str, Any]] = [
        row
        | {
            "community_id": ids[row["community_id"]],
            "parent_id": ids.get(row["parent_id"]),
            "n_entities": len(members[row["community_id"]]),
            "n_relations": inside[row["community_id"]],
            "entity_ids": sorted(members[row["community_id"]]),
        }
        for row in rows
    ]
    new.sort(key=lambda row: (row["level"], row["community_id"]))
    return pa.Table.from_pylist(new, COMMUNITIES), ids


def renamed_reports(reports: pa.Table, ids: Mapping[str, str]) -> pa.Table:
    """Return REPORTS under the new ids of their communities."""
    own = [ids[each] for each in reports["community_id"].to_pylist()]
    return reports.set_column(0, REPORTS.field("community_id"), pa.array(own, pa.string())).cast(REPORTS)


def _homes(communities: pa.Table) -> Homes:
    homes: Homes = {}
    for row in communities.to_pylist():
        for entity in row["entity_ids"]:
            homes.setdefault(entity, []).append(row["community_id"])
    return homes


def _add_summaries(homes: Homes, entities: pa.Table, relations: pa.Table) -> None:
    """Give summary entities their communities, layer by layer."""
    summaries = relations.filter(pc.equal(relations["kind"], "summary"))
    below: dict[str, list[str]] = {}
    for member, summary in zip(*(summaries[end].to_pylist() for end in ("source_id", "target_id")), strict=True):
        below.setdefault(summary, []).append(member)
    above = entities.filter(pc.greater(entities["layer"], 0)).sort_by(
        [("layer", "ascending"), ("entity_id", "ascending")]
    )
    for entity in above["entity_id"].to_pylist():
        members = below.get(entity, [])
        votes = Counter(community for member in members for community in homes.get(member, ()))
        own = sorted(community for community, count in votes.items() if 2 * count > len(members))
        if own:
            homes[entity] = own


def _inside(homes: Homes, relations: pa.Table) -> Counter[str]:
    """Return how many pairs of members of each community are joined."""
    ends = zip(*(relations[end].to_pylist() for end in ("source_id", "target_id")), strict=True)
    counts: Counter[str] = Counter()
    for low, high in {(min(pair), max(pair)) for pair in ends if pair[0] != pair[1]}:
        counts.update(set(homes.get(low, ())).intersection(homes.get(high, ())))
    return counts
