"""Mentions become entities and relations by their normalised names."""

import random
from typing import Any

import pyarrow as pa
import pytest

from hirag_dist.core.ids import entity_id
from hirag_dist.core.merging import join_descriptions, mentions_of, merge_entities, merge_relations, same_name_relations
from hirag_dist.core.replies import EntityRecord, Extraction, RelationRecord
from hirag_dist.core.text import name_key
from hirag_dist.schemas import ENTITIES, MENTIONS, RELATION_MENTIONS

CHUNKS = {
    "c1": Extraction(
        (EntityRecord("Scrooge", "person", "A miser."), EntityRecord("London", "location", "A city.")),
        (
            RelationRecord("Scrooge", "London", "Lives there.", 4.0),
            RelationRecord("SCROOGE", "Marley", "Partners.", 9.0),
        ),
    ),
    "c2": Extraction(
        (
            EntityRecord("“scrooge”", "character", "Hates Christmas."),
            EntityRecord("Scrooge", "person", "A miser."),
        ),
        (RelationRecord("London", "Scrooge", "His home.", 2.0),),
    ),
}


def tables(chunks: dict[str, Extraction], split: bool = False, seed: int | None = None) -> tuple[pa.Table, pa.Table]:
    mentions: list[Any] = []
    relations: list[Any] = []
    for chunk, extraction in chunks.items():
        rows, links = mentions_of(extraction, chunk, split)
        mentions += rows
        relations += links
    if seed is not None:
        random.Random(seed).shuffle(mentions)
        random.Random(seed).shuffle(relations)
    return pa.Table.from_pylist(mentions, MENTIONS), pa.Table.from_pylist(relations, RELATION_MENTIONS)


def by_name(table: pa.Table) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in table.to_pylist()}


def test_equal_names_become_one_entity() -> None:
    entities = by_name(merge_entities(tables(CHUNKS)[0]))
    assert set(entities) == {"Scrooge", "London", "Marley"}
    scrooge = entities["Scrooge"]
    assert scrooge["type"] == "person"
    assert scrooge["description"].split("\n") == ["A miser.", "Hates Christmas."]
    assert scrooge["n_mentions"] == 3
    assert scrooge["chunk_ids"] == ["c1", "c2"]
    assert scrooge["entity_id"] == entity_id(0, name_key("SCROOGE"))


def test_an_endpoint_never_described_is_an_entity_of_unknown_type() -> None:
    marley = by_name(merge_entities(tables(CHUNKS)[0]))["Marley"]
    assert (marley["type"], marley["described"], marley["description"]) == ("unknown", False, "")


def test_relations_have_no_direction_and_add_up() -> None:
    relations = merge_relations(tables(CHUNKS)[1]).to_pylist()
    assert len(relations) == 2
    home = next(row for row in relations if row["weight"] == 6.0)
    assert home["description"] == "Lives there. His home."
    assert home["chunk_ids"] == ["c1", "c2"]
    assert {home["source_id"], home["target_id"]} == {entity_id(0, "scrooge"), entity_id(0, "london")}


@pytest.mark.parametrize("seed", range(5))
def test_the_order_of_mentions_does_not_matter(seed: int) -> None:
    mentions, relations = tables(CHUNKS)
    shuffled, shuffled_relations = tables(CHUNKS, seed=seed)
    assert merge_entities(shuffled).equals(merge_entities(mentions))
    assert merge_relations(shuffled_relations).equals(merge_relations(relations))


def test_homonyms_can_be_kept_apart_by_type() -> None:
    chunks = {
        "c1": Extraction(
            (EntityRecord("Mercury", "planet", "Hot."),), (RelationRecord("Mercury", "Sun", "Orbits.", 1.0),)
        ),
        "c2": Extraction((EntityRecord("Mercury", "metal", "Liquid."),), ()),
    }
    merged = merge_entities(tables(chunks, split=True)[0])
    assert sorted(row["type"] for row in merged.to_pylist() if row["name"] == "Mercury") == ["metal", "planet"]
    relation = merge_relations(tables(chunks, split=True)[1]).to_pylist()[0]
    planet = next(row["entity_id"] for row in merged.to_pylist() if row["type"] == "planet")
    assert planet in (relation["source_id"], relation["target_id"])


def test_a_relation_of_a_name_with_itself_is_no_relation() -> None:
    extraction = Extraction((), (RelationRecord("Scrooge", "scrooge", "Himself.", 1.0),))
    assert mentions_of(extraction, "c1")[1] == []


def test_joined_descriptions_keep_to_their_limit() -> None:
    assert len(join_descriptions(["word " * 100, "more " * 50], 120)) <= 120


def test_equal_names_of_two_layers_are_joined() -> None:
    def layer(number: int, *names: str) -> pa.Table:
        rows = [
            {
                "entity_id": entity_id(number, name_key(name)),
                "layer": number,
                "name": name,
                "type": "concept",
                "description": "",
                "described": True,
                "n_mentions": 1,
                "chunk_ids": [],
            }
            for name in names
        ]
        return pa.Table.from_pylist(rows, ENTITIES)

    lower = pa.concat_tables([layer(0, "Light", "Colour"), layer(1, "light")])
    joined = same_name_relations(lower, layer(2, "LIGHT", "Optics")).to_pylist()
    assert [(row["source_id"], row["target_id"], row["kind"], row["weight"]) for row in joined] == [
        (entity_id(1, "light"), entity_id(2, "light"), "same_name", 1.0)
    ]


def test_more_mentions_than_are_looked_at_at_a_time() -> None:
    """A name whose mentions lie on both sides of such a boundary is still one entity, and a pair one relation."""
    counts = {"aaa": 19_990, "bbb": 100, "ccc": 19_950, "ddd": 1, "eee": 25_000}
    mentions = [
        {
            "name_key": name,
            "chunk_id": f"c{at:05d}",
            "position": 0,
            "name": name,
            "type": "concept",
            "description": f"{name} {at % 3}.",
            "described": True,
        }
        for name, count in counts.items()
        for at in range(count)
    ]
    random.Random(0).shuffle(mentions)
    merged = by_name(merge_entities(pa.Table.from_pylist(mentions, MENTIONS)))
    assert {name: row["n_mentions"] for name, row in merged.items()} == counts
    assert all(len(row["chunk_ids"]) == counts[name] for name, row in merged.items())
    assert merged["bbb"]["description"] == "bbb 0.\nbbb 1.\nbbb 2."
    links = [
        {
            "source_key": "aaa",
            "target_key": name,
            "chunk_id": f"c{at:05d}",
            "position": 0,
            "description": "One.",
            "strength": 1.0,
        }
        for name, count in counts.items()
        for at in range(count)
    ]
    weights = merge_relations(pa.Table.from_pylist(links, RELATION_MENTIONS))["weight"].to_pylist()
    assert sorted(weights) == sorted(map(float, counts.values()))
