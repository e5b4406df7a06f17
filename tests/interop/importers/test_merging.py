"""Entities and relations, merged by name."""

from __future__ import annotations

import math

import pytest

from hirag_dist.core.text.ids import content_id, entity_id
from hirag_dist.interop.importers.merging import MergedGraph, merge
from hirag_dist.interop.importers.model import SourceDocument, SourceEntity, SourceGraph, SourceRelation

IDS = {"c1": "C1", "c2": "C2"}
UNKNOWN = content_id("unknown chunk", "gone")


def merged(entities: list[SourceEntity], relations: list[SourceRelation]) -> tuple[MergedGraph, list[tuple[str, str]]]:
    source = SourceGraph("graphrag", [], [], entities, relations)
    return merge(source, IDS), source.left_out


def entity(name: str, kind: str = "person", *texts: str, chunks: tuple[str, ...] = ("c1",)) -> SourceEntity:
    return SourceEntity(name, kind, texts, chunks)


def relation(source: str, target: str, weight: float | None = 2.0, text: str = "met") -> SourceRelation:
    return SourceRelation(source, target, (text,), weight, ("c1",))


def test_name_and_type_are_those_of_the_most_mentions() -> None:
    rows = [entity("RAY", "person", "A man."), entity("Ray", "tool", "A tool.", "A man.", chunks=("c2", "c1", "c2"))]
    tables, left_out = merged(rows, [])
    assert tables.entities.to_pylist() == [
        {
            "entity_id": entity_id(0, "ray"),
            "layer": 0,
            "name": "Ray",
            "type": "tool",
            "description": "A man.\nA tool.",
            "described": True,
            "n_mentions": 3,
            "chunk_ids": ["C1", "C2"],
        }
    ]
    assert (tables.n_merged, left_out) == (1, [])


def test_where_documents_carry_labels_it_shows_that_a_source_is_not_known() -> None:
    """Else what an unknown document says of the entity would be taken for what the known one says."""
    told = entity("Ray", "tool", "A tool.", "A secret tool.", chunks=("c1", "gone"))
    joined = SourceRelation("Ray", "Ann", ("met",), 2.0, ("gone",))
    for labels, wanted, added in (((), ["C1"], []), (("board",), ["C1", UNKNOWN], [UNKNOWN])):
        documents = [SourceDocument("d", "text", labels=labels)]
        source = SourceGraph("graphrag", documents, [], [told], [joined])
        tables = merge(source, IDS)
        found = {row["name"]: row["chunk_ids"] for row in tables.entities.to_pylist()}
        assert found == {"Ray": wanted, "Ann": added}
        assert tables.relations["chunk_ids"].to_pylist() == [added]
        assert ("chunk gone", "not in the folder; named as source 2 times") in source.left_out


def test_one_that_is_described_gives_name_and_type_to_one_that_is_not() -> None:
    rows = [entity("RAY", "", chunks=("c1", "c2")), entity("Ray", "", "A tool."), entity("ray", "tool")]
    tables, _ = merged(rows, [])
    (row,) = tables.entities.to_pylist()
    assert (row["name"], row["type"], row["described"], row["n_mentions"]) == ("Ray", "tool", True, 4)


def test_parallel_relations_are_summed_whatever_their_direction() -> None:
    rows = [relation("a", "b", 2.0, "first"), relation("B", "A", 5.0, "second"), relation("a", "b", None, "first")]
    tables, left_out = merged([entity("a"), entity("b")], rows)
    (row,) = tables.relations.to_pylist()
    assert (row["weight"], row["description"], row["chunk_ids"]) == (8.0, "second first", ["C1"])
    assert (tables.n_merged_relations, tables.n_added, left_out) == (2, 0, [])


@pytest.mark.parametrize(
    ("weight", "used"), [(-17.0, 0.1), (0.0, 0.1), (math.inf, 1.0), (math.nan, 1.0), (1e300, 1e300)]
)
def test_weights_are_finite_and_above_zero(weight: float, used: float) -> None:
    tables, left_out = merged([], [relation("a", "b", weight)])
    assert tables.relations["weight"].to_pylist() == [used]
    assert [what for what, _ in left_out] == (["weight of relation 'a' – 'b'"] if weight != used else [])


def test_chunks_that_are_not_there_are_accounted_for_once() -> None:
    tables, left_out = merged([entity("a", chunks=("c1", "gone")), entity("b", chunks=("gone",))], [])
    assert sorted(tables.entities["chunk_ids"].to_pylist()) == [[], ["C1"]]
    assert tables.entities["n_mentions"].to_pylist() == [1, 1]
    assert left_out == [("chunk gone", "not in the folder; named as source 2 times")]


def test_descriptions_of_a_relation_that_are_too_much_together_are_cut_and_named() -> None:
    rows = [relation("a", "b", float(at), f"{at} " + "x" * 900) for at in range(1, 5)]
    tables, left_out = merged([], rows)
    (text,) = tables.relations["description"].to_pylist()
    assert text.startswith("4 xxx")
    assert len(text) <= 2000
    assert left_out[0][1] == "1806 of 3611 characters: more than 2000 together"
