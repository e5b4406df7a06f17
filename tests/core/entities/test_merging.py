"""Mentions become entities and relations by their normalised names."""

import random
from collections import Counter
from collections.abc import Iterable
from itertools import chain, groupby
from operator import itemgetter
from typing import Any

import pyarrow as pa
import pytest

from hirag_dist.core.entities.merging import (
    DescriptionBound,
    bound_descriptions,
    join_descriptions,
    mentions_of,
    merge_entities,
    merge_relations,
)
from hirag_dist.core.prompts.reply_parsing import EntityRecord, ExtractionReply, RelationRecord
from hirag_dist.core.text.ids import entity_id, relation_id
from hirag_dist.core.text.normalize import name_key
from hirag_dist.schemas import ENTITIES, MENTIONS, RELATION_MENTIONS, RELATIONS

CHUNKS = {
    "c1": ExtractionReply(
        (EntityRecord("Scrooge", "person", "A miser."), EntityRecord("London", "location", "A city.")),
        (RelationRecord("Scrooge", "London", "Lives there.", 4.0), RelationRecord("SCROOGE", "Marley", "", 9.0)),
    ),
    "c2": ExtractionReply(
        (EntityRecord("“scrooge”", "character", "Hates Christmas."), EntityRecord("Scrooge", "person", "A miser.")),
        (RelationRecord("London", "Scrooge", "His home.", 2.0), RelationRecord("Scrooge", "scrooge", "Himself.", 1.0)),
    ),
}


def test_equal_names_become_one_entity() -> None:
    mentions, links = zip(*(mentions_of(reply, chunk) for chunk, reply in CHUNKS.items()), strict=True)
    found = merge_entities(pa.Table.from_pylist(list(chain.from_iterable(mentions)), MENTIONS)).to_pylist()
    entities = {row["name"]: row for row in found}
    assert set(entities) == {"Scrooge", "London", "Marley"}
    scrooge = entities["Scrooge"]
    assert (scrooge["entity_id"], scrooge["type"]) == (entity_id(0, name_key("SCROOGE")), "person")
    assert scrooge["description"].split("\n") == ["A miser.", "Hates Christmas."]
    assert (scrooge["n_mentions"], scrooge["chunk_ids"]) == (3, ["c1", "c2"])
    relations = merge_relations(pa.Table.from_pylist(list(chain.from_iterable(links)), RELATION_MENTIONS)).to_pylist()
    (home,) = (row for row in relations if row["weight"] == 6.0)  # of both directions
    assert (home["description"], home["chunk_ids"], len(relations)) == ("Lives there. His home.", ["c1", "c2"], 2)
    assert {home["source_id"], home["target_id"]} == {scrooge["entity_id"], entities["London"]["entity_id"]}
    assert not [row for row in relations if row["source_id"] == row["target_id"]], "of a name with itself"


Rows = list[dict[str, Any]]


def most_common(values: Iterable[str]) -> str:
    return Counter(values).most_common(1)[0][0]  # the first one among equals


def slow_entities(mentions: Rows) -> pa.Table:
    """`merge_entities` row by row."""
    found = []
    ordered = sorted(mentions, key=itemgetter("name_key", "chunk_id", "position"))
    for key, group in groupby(ordered, itemgetter("name_key")):
        rows = list(group)
        said = [row for row in rows if row["described"]]
        found.append(
            {
                "entity_id": entity_id(0, key),
                "layer": 0,
                "name": most_common(row["name"] for row in said or rows),
                "type": most_common(row["type"] for row in said) if said else "unknown",
                "description": "\n".join(dict.fromkeys(row["description"] for row in said if row["description"])),
                "described": bool(said),
                "n_mentions": len(rows),
                "chunk_ids": sorted({row["chunk_id"] for row in rows}),
            }
        )
    return pa.Table.from_pylist(sorted(found, key=lambda row: row["entity_id"]), ENTITIES)


def slow_relations(mentions: Rows, max_chars: int) -> pa.Table:
    """`merge_relations` row by row."""
    found = []
    ordered = sorted(mentions, key=itemgetter("source_key", "target_key", "chunk_id", "position"))
    for keys, group in groupby(ordered, itemgetter("source_key", "target_key")):
        rows = list(group)
        low, high = sorted(entity_id(0, key) for key in keys)
        weight = 0.0
        for row in rows:
            weight += row["strength"]
        strongest = sorted(rows, key=lambda row: -row["strength"])
        found.append(
            {
                "relation_id": relation_id("extracted", low, high),
                "source_id": low,
                "target_id": high,
                "kind": "extracted",
                "layer": 0,
                "description": join_descriptions([row["description"] for row in strongest], max_chars),
                "weight": weight,
                "chunk_ids": sorted({row["chunk_id"] for row in rows}),
            }
        )
    return pa.Table.from_pylist(sorted(found, key=lambda row: row["relation_id"]), RELATIONS)


def random_mentions(seed: int, n_rows: int = 400) -> tuple[Rows, Rows]:
    """Few names, few forms, few texts: many ties, and names that only relations mention."""
    draw = random.Random(seed)
    names = ["scrooge", "straße", "画家", "marley", "", "x" * 40, "ghost", "fred", "tim", "fan"]
    texts = ["", "A miser.", "Größe.", "画家です。", "Dead as a door-nail.", *(f"Text {n}." for n in range(20))]
    places = [(f"c{draw.randrange(40):02d}", position) for position in range(n_rows)]
    draw.shuffle(places)
    entities, relations = [], []
    for chunk, position in places:
        name = draw.choice(names[: draw.randint(1, len(names))])
        own = {
            "name_key": name,
            "name": draw.choice((name, name.upper(), name.title())),
            "type": draw.choice(("person", "place", "unknown")),
            "description": draw.choice(texts),
            "described": name != "fan" and draw.random() < 0.7,
        }
        entities.append(own | {"chunk_id": chunk, "position": position})
        low, high = sorted(draw.sample(names, 2))
        own = {"source_key": low, "target_key": high, "description": draw.choice(texts)}
        relations.append(own | {"strength": draw.choice((1.0, 0.1, 7.3, 9.0)), "chunk_id": chunk, "position": position})
    return entities, relations


def in_pieces(rows: Rows, schema: pa.Schema, n: int = 7) -> pa.Table:
    """A table of several chunks, as files give them."""
    return pa.concat_tables(pa.Table.from_pylist(rows[first : first + n], schema) for first in range(0, len(rows), n))


@pytest.mark.parametrize("seed", range(2))
def test_merged_as_the_slow_way_does(seed: int) -> None:
    entities, relations = random_mentions(seed)
    assert merge_entities(in_pieces(entities, MENTIONS)).equals(slow_entities(entities))
    for max_chars in (30, 1000):
        merged = merge_relations(in_pieces(relations, RELATION_MENTIONS), max_chars)
        assert merged.equals(slow_relations(relations, max_chars))


class TestBound:
    """Descriptions of one entity or relation, up to so many and so many characters."""

    def kept(self, rows: Rows, count: int = 100, chars: int = 10_000) -> tuple[list[str], list[str]]:
        """Return the descriptions that are merged, and the names that were cut."""
        mentions, cut = bound_descriptions(in_pieces(rows, MENTIONS), ("name_key",), DescriptionBound(count, chars))
        text = merge_entities(mentions)["description"][0].as_py()
        return text.split("\n"), cut["name_key"].to_pylist()

    def test_the_first_are_kept_by_number_and_by_characters(self) -> None:
        first = [f"Text {n:02d}." for n in range(15)]  # of eight characters
        own = {"name_key": "hub", "position": 0, "name": "Hub", "type": "concept", "described": True}
        rows = [own | {"chunk_id": f"c{at:03d}", "description": first[at // 2]} for at in range(30)]
        random.Random(0).shuffle(rows)
        assert self.kept(rows, count=15) == (first, [])  # repeats do not count
        assert self.kept(rows, count=4) == (first[:4], ["hub"])
        assert self.kept(rows, chars=40) == (first[:5], ["hub"])
        assert self.kept(rows, chars=39) == (first[:4], ["hub"])
        assert self.kept(rows, chars=1) == (first[:1], ["hub"])  # one stays always

    def test_the_strongest_of_a_relation_stay(self) -> None:
        rows = [
            {"source_key": "a", "target_key": "b", "chunk_id": f"c{at}", "position": 0}
            | {"description": f"Text {at}.", "strength": float(at % 3)}
            for at in range(9)
        ]
        other = {"source_key": "a", "target_key": "c", "description": "Apart.", "chunk_id": "c1", "position": 1}
        mentions = pa.Table.from_pylist([*rows, other | {"strength": 1.0}], RELATION_MENTIONS)
        bound, cut = bound_descriptions(mentions, ("source_key", "target_key"), DescriptionBound(4, 1000))
        assert [row["description"] for row in bound.to_pylist() if row["description"]] == [
            "Text 1.",  # of strength 1, the first
            "Text 2.",
            "Text 5.",
            "Text 8.",
            "Apart.",
        ]
        assert cut.to_pylist() == [{"source_key": "a", "target_key": "b"}]

    @pytest.mark.parametrize("seed", range(2))
    def test_in_two_steps_as_in_one(self, seed: int) -> None:
        """Bounded in runs with one to spare, and then together: the same descriptions, and the same names cut."""
        entities, relations = random_mentions(seed)
        for rows, schema, keys in (
            (entities, MENTIONS, ("name_key",)),
            (relations, RELATION_MENTIONS, ("source_key", "target_key")),
        ):
            for bound in (DescriptionBound(3, 1000), DescriptionBound(100, 25), DescriptionBound(1, 1000)):
                at_once, cut = bound_descriptions(in_pieces(rows, schema), keys, bound)
                assert cut.num_rows
                runs = [rows[first : first + 90] for first in range(0, len(rows), 90)]
                parts = [bound_descriptions(in_pieces(run, schema), keys, bound, spare=1)[0] for run in runs]
                two_steps, cut_too = bound_descriptions(pa.concat_tables(parts), keys, bound)
                assert cut_too.sort_by([(key, "ascending") for key in keys]).equals(
                    cut.sort_by([(key, "ascending") for key in keys])
                )
                if schema is MENTIONS:
                    assert merge_entities(two_steps).equals(merge_entities(at_once))
                else:
                    assert merge_relations(two_steps, 500).equals(merge_relations(at_once, 500))
