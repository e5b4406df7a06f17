"""Summaries of clusters become a layer: equal names are one, members left out are attached and counted."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest

from hirag_dist.core.entities.merging import inter_layer_relation, join_descriptions
from hirag_dist.core.entities.summaries import (
    SummarisedCluster,
    _best_summary,
    link_members,
    merge_summary_links,
    merge_summary_mentions,
    names_of,
    relate_equal_names,
)
from hirag_dist.core.groupby import by_partition
from hirag_dist.core.prompts.reply_parsing import EntityRecord, MemberLink, SummaryReply
from hirag_dist.core.text.ids import entity_id
from hirag_dist.core.text.normalize import name_key
from hirag_dist.schemas import ENTITIES, RELATIONS


class Layer(NamedTuple):
    """Summary entities of clusters."""

    entities: pa.Table
    relations: pa.Table
    n_attached: int
    n_uncovering: int
    n_unattached: int


def next_layer(clusters: list[SummarisedCluster], layer: int, chars: int, n_partitions: int = 1) -> Layer:
    """The three steps, mentions and links in partitions."""
    mentions, links, n_attached = link_members(clusters)
    entities = [merge_summary_mentions(part, layer, chars) for part in split(mentions, "name_key", n_partitions)]
    relations = [merge_summary_links(part, layer) for part in split(links, "member_id", n_partitions)]
    return Layer(
        pa.concat_tables([table for table, _ in entities]).sort_by("entity_id"),
        pa.concat_tables([table for table, _ in relations]).sort_by("relation_id"),
        n_attached,
        sum(count for _, count in entities),
        sum(count for _, count in relations),
    )


def split(table: pa.Table, column: str, n_partitions: int) -> list[pa.Table]:
    rows, bounds = by_partition(table, column, n_partitions)
    return [rows.slice(first, last - first) for first, last in pairwise(bounds)]


def obvious(clusters: list[SummarisedCluster], layer: int, chars: int) -> Layer:
    """All clusters in one pass over dictionaries."""
    names: dict[str, tuple[str, str]] = {}
    texts: dict[str, list[str]] = {}
    edges: dict[tuple[str, str], tuple[float, str]] = {}
    covering: set[str] = set()
    everyone: set[str] = set()
    attached = 0

    def add(member: str, key: str, strength: float, text: str) -> None:
        weight, said = edges.get((member, key), (0.0, ""))
        edges[member, key] = (weight + strength, said or text)

    for cluster in sorted(clusters, key=lambda item: item.cluster_id):
        everyone.update(cluster.member_ids)
        if cluster.summary is None:
            continue
        keys = [name_key(record.name) for record in cluster.summary.entities]
        for key, record in zip(keys, cluster.summary.entities, strict=True):
            names.setdefault(key, (record.name, record.type))
            texts.setdefault(key, []).append(record.description)
        covered = set()
        for cover in cluster.summary.covers:
            covered.add(cover.member)
            covering.add(keys[cover.entity])
            add(cluster.member_ids[cover.member], keys[cover.entity], cover.strength, cover.description)
        for at, member in enumerate(cluster.member_ids):
            if at not in covered:
                attached += 1
                add(member, _best_summary(cluster, cluster.summary, at, keys), 1.0, "Grouped with its cluster.")
    entities = [
        {
            "entity_id": entity_id(layer, key),
            "layer": layer,
            "name": name,
            "type": kind,
            "description": join_descriptions(texts[key], chars),
            "described": True,
            "n_mentions": len(texts[key]),
            "chunk_ids": [],
        }
        for key, (name, kind) in names.items()
    ]
    relations = [
        inter_layer_relation("summary", member, entity_id(layer, key), layer - 1, text, weight)
        for (member, key), (weight, text) in edges.items()
    ]
    return Layer(
        pa.Table.from_pylist(entities, ENTITIES).sort_by("entity_id"),
        pa.Table.from_pylist(relations, RELATIONS).sort_by("relation_id"),
        attached,
        len(names) - len(covering),
        len(everyone - {member for member, _ in edges}),
    )


def test_a_member_left_out_is_attached_to_the_closest_summary() -> None:
    entities = tuple(EntityRecord(name, "concept", f"About {name}.") for name in ("sound", "light"))
    covers = (MemberLink(0, 0, "covers", 5.0), MemberLink(1, 1, "covers", 3.0))
    texts = ("a choir", "a lamp", "a candle of much light")
    layer = next_layer([SummarisedCluster("a", ("a0", "a1", "a2"), texts, SummaryReply(entities, covers))], 1, 500)
    assert layer.n_attached == 1
    edges = {(row["source_id"], row["target_id"], row["weight"]) for row in layer.relations.to_pylist()}
    assert ("a2", entity_id(1, "light"), 1.0) in edges


def random_clusters(seed: int, n_clusters: int) -> list[SummarisedCluster]:
    """Few names in several spellings, members in several clusters, covers said twice, empty descriptions, letters."""
    rng = np.random.default_rng(seed)
    clusters = []
    for number in range(n_clusters):
        members = tuple(f"m{at}" for at in rng.choice(40, rng.integers(1, 9), replace=False))
        texts = tuple(f"word{rng.integers(6)} word{rng.integers(6)}" for _ in members)
        n_entities = int(rng.integers(1, 4))
        entities = tuple(
            EntityRecord(
                ["Word1", "WORD1", "word2", "Other", "other"][rng.integers(5)],
                ["a", "b"][rng.integers(2)],
                ["", "word3 here", f"said {rng.integers(9)}"][rng.integers(3)],
            )
            for _ in range(n_entities)
        )
        covers = tuple(
            MemberLink(int(rng.integers(len(members))), int(rng.integers(n_entities)), ["", "why"][rng.integers(2)], w)
            for w in rng.random(rng.integers(0, 12))
        )
        dead = rng.random() < 0.2
        clusters.append(
            SummarisedCluster(f"c{number:03d}", members, texts, None if dead else SummaryReply(entities, covers))
        )
    return [clusters[at] for at in rng.permutation(n_clusters)]


@pytest.mark.parametrize("n_partitions", [1, 3])
@pytest.mark.parametrize("seed", range(4))
def test_partitions_give_what_one_obvious_pass_gives(seed: int, n_partitions: int) -> None:
    clusters = random_clusters(seed, 1 + 4 * seed)
    assert next_layer(clusters, 3, 60, n_partitions) == obvious(clusters, 3, 60)


def entity(layer: int, name: str, kind: str = "") -> dict[str, Any]:
    return {"entity_id": entity_id(layer, name_key(name) + kind), "layer": layer, "name": name}


def named(*entities: dict[str, Any]) -> pa.Table:
    columns = pa.schema([ENTITIES.field(name) for name in ("entity_id", "layer", "name")])
    return names_of(pa.Table.from_pylist(list(entities), columns))


def related(names: pa.Table) -> set[tuple[str, str, int]]:
    rows = relate_equal_names(names).to_pylist()
    assert {(row["kind"], row["weight"]) for row in rows} <= {("same_name", 1.0)}
    return {(row["source_id"], row["target_id"], row["layer"]) for row in rows}


def test_equal_names_of_two_layers_are_related_and_stay_two() -> None:
    names = named(entity(0, "Light"), entity(0, "Sound"), entity(1, "LIGHT"), entity(1, "Optics"))
    assert related(names) == {(entity_id(0, "light"), entity_id(1, "light"), 0)}
    names = named(entity(3, "Light"), entity(0, "light"), entity(1, "Light"))
    zero, one, three = (entity_id(layer, "light") for layer in (0, 1, 3))
    assert related(names) == {(zero, one, 0), (one, three, 1)}, "with the next layer below that has it"
