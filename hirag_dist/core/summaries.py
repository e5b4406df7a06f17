"""Summarised clusters to the next layer: summary entities, and a relation from each member (paper §4.1, Eq. 9–10)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from hirag_dist.core.ids import entity_id
from hirag_dist.core.merging import SEPARATOR, inter_layer_relation, join_descriptions
from hirag_dist.core.replies import Summary
from hirag_dist.core.text import name_key, one_line
from hirag_dist.schemas import ENTITIES, RELATIONS


@dataclass(frozen=True, slots=True)
class SummarisedCluster:
    """A cluster with what the model made of it: member ids in the order they were numbered, and its reply."""

    cluster_id: str
    member_ids: tuple[str, ...]
    member_texts: tuple[str, ...]  # name and description
    summary: Summary


@dataclass(frozen=True, slots=True)
class NextLayer:
    """A layer of summary entities.

    Attributes:
        entities: ENTITIES of the layer.
        relations: RELATIONS of kind `summary`, member → summary entity.
        n_attached: members that the model left out, attached to the best summary of their cluster.
        n_uncovering: summary entities that got no relation to any member from the model.
    """

    entities: pa.Table
    relations: pa.Table
    n_attached: int
    n_uncovering: int


def next_layer(clusters: Sequence[SummarisedCluster], layer: int, max_description_chars: int) -> NextLayer:
    """Merge the summaries of all clusters into one layer: equal names are one entity.

    Args:
        clusters: in any order; the result does not depend on it.
        layer: of the summary entities, ≥ 1.
    """
    names: dict[str, tuple[str, str]] = {}
    texts: dict[str, list[str]] = {}
    edges: dict[tuple[str, str], tuple[float, str]] = {}
    covering: set[str] = set()
    n_attached = 0
    for cluster in sorted(clusters, key=lambda item: item.cluster_id):
        keys = []
        for record in cluster.summary.entities:
            key = name_key(record.name)
            keys.append(key)
            names.setdefault(key, (record.name, record.type))
            texts.setdefault(key, []).append(record.description)
        covered = set()
        for cover in cluster.summary.covers:
            covered.add(cover.member)
            covering.add(keys[cover.entity])
            _strengthen(
                edges, (cluster.member_ids[cover.member], keys[cover.entity]), cover.strength, cover.description
            )
        for member in range(len(cluster.member_ids)):
            if member not in covered:
                n_attached += 1
                best = _best_summary(cluster, member, keys)
                _strengthen(edges, (cluster.member_ids[member], best), 1.0, "Grouped with its cluster.")
    entities = [
        {
            "entity_id": entity_id(layer, key),
            "layer": layer,
            "name": name,
            "type": kind,
            "description": join_descriptions(texts[key], max_description_chars),
            "described": True,
            "n_mentions": len(texts[key]),
            "chunk_ids": [],
        }
        for key, (name, kind) in names.items()
    ]
    relations = [
        inter_layer_relation("summary", member, entity_id(layer, key), layer - 1, description, weight)
        for (member, key), (weight, description) in edges.items()
    ]
    return NextLayer(
        pa.Table.from_pylist(entities, ENTITIES).sort_by("entity_id"),
        pa.Table.from_pylist(relations, RELATIONS).sort_by("relation_id"),
        n_attached,
        len(names) - len(covering),
    )


def _strengthen(
    edges: dict[tuple[str, str], tuple[float, str]], pair: tuple[str, str], strength: float, description: str
) -> None:
    weight, said = edges.get(pair, (0.0, ""))
    edges[pair] = (weight + strength, said or description)


def _best_summary(cluster: SummarisedCluster, member: int, keys: Sequence[str]) -> str:
    """Return the key of the summary that shares most words with a member; ties: the one covering most members."""
    words = set(name_key(cluster.member_texts[member]).split())
    load = [0] * len(keys)
    for cover in cluster.summary.covers:
        load[cover.entity] += 1

    def closeness(place: int) -> tuple[int, int, int]:
        record = cluster.summary.entities[place]
        shared = words & set(name_key(f"{record.name} {record.description}").split())
        return len(shared), load[place], -place

    return keys[max(range(len(keys)), key=closeness)]


def split_descriptions(text: str) -> list[str]:
    """Return the distinct descriptions that merging put into one field."""
    return [one_line(part) for part in text.split(SEPARATOR) if part.strip()]
