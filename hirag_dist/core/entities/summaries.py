"""Summary entities of the next layer from summarised clusters, and a relation from each member (paper §4.1, Eq. 9–10).

Each cluster gives mentions of summary entities and links from its members to them; equal names are one entity, and the
links of a member to the same entity are one relation. Mentions meet by name, links by member: neither needs the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from hirag_dist.core.entities.merging import SEPARATOR, inter_layer_relation, join_descriptions
from hirag_dist.core.prompts.reply_parsing import SummaryReply
from hirag_dist.core.text.ids import entity_id, name_keys
from hirag_dist.core.text.normalize import name_key, one_line
from hirag_dist.schemas import ENTITIES, RELATIONS

SUMMARY_MENTIONS = pa.schema(
    [
        pa.field("name_key", pa.string(), nullable=False),
        pa.field("cluster_id", pa.string(), nullable=False),
        pa.field("position", pa.int32(), nullable=False),  # order within the cluster's reply
        pa.field("name", pa.string(), nullable=False),
        pa.field("type", pa.string(), nullable=False),
        pa.field("description", pa.string(), nullable=False),
        pa.field("covers", pa.bool_(), nullable=False),  # a member, by the model's own word
    ]
)
SUMMARY_LINKS = pa.schema(
    [
        pa.field("member_id", pa.string(), nullable=False),
        pa.field("name_key", pa.string()),  # of the summary entity; null where the member's cluster has none
        pa.field("cluster_id", pa.string(), nullable=False),
        pa.field("position", pa.int32(), nullable=False),
        pa.field("description", pa.string(), nullable=False),
        pa.field("strength", pa.float64(), nullable=False),
    ]
)
NAMES = pa.schema(
    [
        pa.field("name_key", pa.string(), nullable=False),
        pa.field("layer", pa.int32(), nullable=False),
        pa.field("entity_id", pa.string(), nullable=False),
    ]
)


@dataclass(frozen=True, slots=True)
class SummarisedCluster:
    """A cluster and its summary: member ids in the order of their numbers in the prompt, and the reply.

    Attributes:
        member_texts: name and description.
        summary: None where it is a dead letter.
    """

    cluster_id: str
    member_ids: tuple[str, ...]
    member_texts: tuple[str, ...]
    summary: SummaryReply | None


def link_members(clusters: Sequence[SummarisedCluster]) -> tuple[pa.Table, pa.Table, int]:
    """Return SUMMARY_MENTIONS, SUMMARY_LINKS, and how many members were attached.

    A member that the model left out is attached to the best summary of its cluster. One of a cluster without a
    summary has a link to nothing.
    """
    mentions: list[dict[str, Any]] = []
    links: list[dict[str, Any]] = []
    n_attached = 0
    for cluster in clusters:
        if cluster.summary is None:
            links.extend(_link(cluster, at, None, at, "", 0.0) for at in range(len(cluster.member_ids)))
            continue
        keys = [name_key(record.name) for record in cluster.summary.entities]
        covers = cluster.summary.covers
        covering, covered = {cover.entity for cover in covers}, {cover.member for cover in covers}
        mentions.extend(
            {
                "name_key": keys[position],
                "cluster_id": cluster.cluster_id,
                "position": position,
                "name": record.name,
                "type": record.type,
                "description": record.description,
                "covers": position in covering,
            }
            for position, record in enumerate(cluster.summary.entities)
        )
        found = [(cover.member, keys[cover.entity], cover.description, cover.strength) for cover in covers]
        left_out = [member for member in range(len(cluster.member_ids)) if member not in covered]
        found += [
            (member, _best_summary(cluster, cluster.summary, member, keys), "Grouped with its cluster.", 1.0)
            for member in left_out
        ]
        n_attached += len(left_out)
        links.extend(_link(cluster, link[0], link[1], position, *link[2:]) for position, link in enumerate(found))
    return pa.Table.from_pylist(mentions, SUMMARY_MENTIONS), pa.Table.from_pylist(links, SUMMARY_LINKS), n_attached


def merge_summary_mentions(mentions: pa.Table, layer: int, max_description_chars: int) -> tuple[pa.Table, int]:
    """Return ENTITIES of a layer, sorted by id, and how many of them the model gave no relation to any member.

    Args:
        mentions: SUMMARY_MENTIONS, in any order, all that there are of the names in them.
        layer: of the summary entities, ≥ 1.
        max_description_chars: distinct descriptions are joined up to here.
    """
    merged: dict[str, dict[str, Any]] = {}
    texts: dict[str, list[str]] = {}
    covering: set[str] = set()
    for row in mentions.sort_by([("cluster_id", "ascending"), ("position", "ascending")]).to_pylist():
        key = row["name_key"]
        merged.setdefault(key, {"name": row["name"], "type": row["type"]})
        texts.setdefault(key, []).append(row["description"])
        if row["covers"]:
            covering.add(key)
    entities = [
        shown
        | {
            "entity_id": entity_id(layer, key),
            "layer": layer,
            "description": join_descriptions(texts[key], max_description_chars),
            "described": True,
            "n_mentions": len(texts[key]),
            "chunk_ids": [],
        }
        for key, shown in merged.items()
    ]
    return pa.Table.from_pylist(entities, ENTITIES).sort_by("entity_id"), len(merged) - len(covering)


def merge_summary_links(links: pa.Table, layer: int) -> tuple[pa.Table, int]:
    """Return RELATIONS of kind `summary`, member → summary entity, sorted by id, and how many members have none.

    Args:
        links: SUMMARY_LINKS, in any order, all that there are of the members in them.
        layer: of the summary entities, ≥ 1.
    """
    members = links["member_id"].unique()
    real = links.filter(pc.is_valid(links["name_key"])).sort_by(
        [("cluster_id", "ascending"), ("position", "ascending")]
    )
    edges: dict[tuple[str, str], tuple[float, str]] = {}
    columns = (real[name].to_pylist() for name in ("member_id", "name_key", "strength", "description"))
    for member, key, strength, description in zip(*columns, strict=True):
        weight, first = edges.get((member, key), (0.0, ""))
        edges[member, key] = weight + strength, first or description
    relations = [
        inter_layer_relation("summary", member, entity_id(layer, key), layer - 1, description, weight)
        for (member, key), (weight, description) in edges.items()
    ]
    n_unattached = len(members) - len(real["member_id"].unique())
    return pa.Table.from_pylist(relations, RELATIONS).sort_by("relation_id"), n_unattached


def names_of(entities: pa.Table) -> pa.Table:
    """Return NAMES of ENTITIES, or of their columns `entity_id`, `layer` and `name`."""
    return pa.table([name_keys(entities["name"]), entities["layer"], entities["entity_id"]], schema=NAMES)


def relate_equal_names(names: pa.Table) -> pa.Table:
    """Return RELATIONS of weight 1 between an entity and those of the same name in the next layer below that has it.

    Args:
        names: NAMES of all layers, in any order, all that there are of the names in them.
    """
    counted = names.group_by("name_key").aggregate([("layer", "count_distinct")])
    several = counted.filter(pc.greater(counted["layer_count_distinct"], 1))["name_key"]
    shared = names.filter(pc.is_in(names["name_key"], value_set=several.combine_chunks()))
    by_layer: dict[str, dict[int, list[str]]] = {}
    for row in shared.sort_by([("layer", "ascending"), ("entity_id", "ascending")]).to_pylist():
        by_layer.setdefault(row["name_key"], {}).setdefault(row["layer"], []).append(row["entity_id"])
    relations = []
    for layers in by_layer.values():
        for below, above in zip(layers, list(layers)[1:], strict=False):
            relations += [
                inter_layer_relation("same_name", lower, upper, below, "The same name, a layer higher.", 1.0)
                for upper in layers[above]
                for lower in layers[below]
            ]
    return pa.Table.from_pylist(relations, RELATIONS).sort_by("relation_id")


def _link(
    cluster: SummarisedCluster, member: int, key: str | None, position: int, description: str, strength: float
) -> dict[str, Any]:
    return {
        "member_id": cluster.member_ids[member],
        "name_key": key,
        "cluster_id": cluster.cluster_id,
        "position": position,
        "description": description,
        "strength": strength,
    }


def _best_summary(cluster: SummarisedCluster, summary: SummaryReply, member: int, keys: Sequence[str]) -> str:
    """Return the key of the summary that shares most words with a member; ties: the one covering most members."""
    words = set(name_key(cluster.member_texts[member]).split())
    load = [0] * len(keys)
    for cover in summary.covers:
        load[cover.entity] += 1

    def closeness(place: int) -> tuple[int, int, int]:
        record = summary.entities[place]
        shared = words & set(name_key(f"{record.name} {record.description}").split())
        return len(shared), load[place], -place

    return keys[max(range(len(keys)), key=closeness)]


def split_descriptions(text: str) -> list[str]:
    """Return the distinct descriptions that merging put into one field."""
    return [one_line(part) for part in text.split(SEPARATOR) if part.strip()]
