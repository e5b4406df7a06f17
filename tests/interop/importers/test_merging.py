"""Entities and relations, merged by name."""

from __future__ import annotations

import math
from typing import Any

import pytest

from hirag_dist.core.text.ids import chunk_id, content_id, document_id, entity_id
from hirag_dist.interop.importers.merging import ChunkPlacement, MergedGraph, merge, place
from hirag_dist.interop.importers.model import SourceChunk, SourceDocument, SourceEntity, SourceGraph, SourceRelation

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


def test_parallel_relations_are_summed_whatever_their_direction() -> None:
    rows = [relation("a", "b", 2.0, "first"), relation("B", "A", 5.0, "second"), relation("a", "b", None, "first")]
    tables, left_out = merged([entity("a"), entity("b")], rows)
    (row,) = tables.relations.to_pylist()
    assert (row["weight"], row["description"], row["chunk_ids"]) == (8.0, "second first", ["C1"])
    assert (tables.n_merged_relations, tables.n_added, left_out) == (2, 0, [])


@pytest.mark.parametrize(("weight", "used"), [(-17.0, 0.1), (math.inf, 1.0), (1e300, 1e300)])
def test_weights_are_finite_and_above_zero(weight: float, used: float) -> None:
    tables, left_out = merged([], [relation("a", "b", weight)])
    assert tables.relations["weight"].to_pylist() == [used]
    assert [what for what, _ in left_out] == (["weight of relation 'a' – 'b'"] if weight != used else [])


def placed(documents: list[SourceDocument], chunks: list[SourceChunk]) -> tuple[ChunkPlacement, list[tuple[str, str]]]:
    source = SourceGraph("graphrag", documents, chunks, [], [])
    return place(source, len), source.left_out


def spans(places: ChunkPlacement) -> list[Any]:
    return [(row["start"], row["end"], row["text"]) for row in places.chunks.to_pylist()]


def chunk(key: str, text: str | None, home: str = "d", **more: Any) -> SourceChunk:
    return SourceChunk(key, (home,), text, **more)


def test_a_text_that_occurs_twice_is_placed_after_the_chunk_before() -> None:
    text = "yes no yes no yes"
    places, left_out = placed(
        [SourceDocument("d", text)], [chunk(str(at), word) for at, word in enumerate(text.split())]
    )
    assert spans(places) == [(0, 3, "yes"), (4, 6, "no"), (7, 10, "yes"), (11, 13, "no"), (14, 17, "yes")]
    assert left_out == []
    assert places.chunk_ids["4"] == chunk_id(document_id(text), 14, 17, "yes")


def test_a_chunk_cut_within_a_character_is_placed_without_the_replacement_character() -> None:
    places, left_out = placed([SourceDocument("d", "鲁迅 wrote")], [chunk("a", "\ufffd迅 wro\ufffd")])
    assert spans(places) == [(1, 6, "迅 wro")]
    assert left_out == []


def test_chunks_that_are_not_found_stay_apart_and_span_the_document() -> None:
    places, left_out = placed([SourceDocument("d", "one two")], [chunk("a", "three"), chunk("b", "four")])
    assert sorted(spans(places)) == [(0, 7, "four"), (0, 7, "three")]
    assert len(set(places.chunk_ids.values())) == 2
    reason = "its text is not found in document d: the whole document stands for its place"
    assert left_out == [("place of chunk a", reason), ("place of chunk b", reason)]


def test_copies_of_a_text_are_one_document() -> None:
    documents = [SourceDocument("d", "one", labels=("x", "y")), SourceDocument("e", "one", labels=("y", "x"))]
    places, left_out = placed(documents, [chunk("a", "one"), chunk("b", "one", "e")])
    assert places.documents["labels"].to_pylist() == [["x", "y"]]
    assert places.chunk_ids["a"] == places.chunk_ids["b"]
    assert left_out == [
        ("document e", "its text is that of document d"),
        ("chunk b", "it is the same text of d as another chunk"),
    ]


def test_copies_with_other_labels_are_kept_apart() -> None:
    documents = [SourceDocument("d", "one", title="D", labels=("x",)), SourceDocument("e", "one", title="E")]
    places, left_out = placed(documents, [chunk("a", "one"), chunk("b", "one", "e")])
    assert {row["title"]: row["labels"] for row in places.documents.to_pylist()} == {"D": ["x"], "E": []}
    assert places.chunk_ids["a"] != places.chunk_ids["b"]
    assert left_out == []


SECRET = SourceDocument("s", "the secret", labels=("board",))
PUBLIC = SourceDocument("d", "a memo")


@pytest.mark.parametrize(
    ("homes", "text", "why"),
    [
        (("gone",), "another secret", "it is not in the folder (gone)"),
        ((), "another secret", "it is not in the folder (not named)"),
        (("d", "s"), "a memo the secret", "they carry different labels (d, s)"),
        (("d", "gone"), "a memo and more", "it is not in the folder (d, gone)"),
        (("d", "s"), None, "they carry different labels (d, s)"),
    ],
)
def test_where_documents_carry_labels_nobody_sees_a_chunk_whose_labels_are_not_known(
    homes: tuple[str, ...], text: str | None, why: str
) -> None:
    places, left_out = placed([PUBLIC, SECRET], [SourceChunk("a", homes, text)])
    assert places.documents.num_rows == 2
    (home,) = places.chunks["document_id"].to_pylist()
    assert home not in places.documents["document_id"].to_pylist()
    assert ("document of chunk a", f"{why}: the chunk is in reach of no caller with labels") in left_out


def test_documents_that_are_named_alike_do_not_lend_each_other_their_labels() -> None:
    documents = [SourceDocument("d", "the secret", labels=("board",)), SourceDocument("d", "a memo")]
    places, _ = placed(documents, [chunk("a", "secret"), chunk("b", "memo"), chunk("c", "neither")])
    labels = dict(zip(places.documents["document_id"].to_pylist(), places.documents["labels"].to_pylist(), strict=True))
    homes = {row["text"]: labels.get(row["document_id"]) for row in places.chunks.to_pylist()}
    assert homes == {"secret": ["board"], "memo": [], "neither": None}


def test_a_chunk_has_the_labels_of_a_document_that_holds_its_text_or_of_all_where_they_are_the_same() -> None:
    also = SourceDocument("t", "its sequel", labels=("board",))
    chunks = [SourceChunk("a", ("s", "d", "gone"), "memo"), SourceChunk("b", ("s", "t"), "secret its")]
    places, _ = placed([PUBLIC, SECRET, also], chunks)
    labels = dict(zip(places.documents["document_id"].to_pylist(), places.documents["labels"].to_pylist(), strict=True))
    homes = {row["text"]: labels[row["document_id"]] for row in places.chunks.to_pylist()}
    assert homes == {"memo": [], "secret its": ["board"]}


def test_lines_that_graphrag_puts_before_chunks_are_no_part_of_the_document() -> None:
    text = "Note: the tide is high. The tide is low."
    chunks = [
        chunk("a", "title: tides.txt.\ncreation_date: 2024-03-06 09:00:00 +0000.\nNote: the tide is high."),
        chunk("b", "title: tides.txt\nThe tide is low."),
    ]
    places, left_out = placed([SourceDocument("d", text)], chunks)
    assert spans(places) == [(0, 23, "Note: the tide is high."), (24, 40, "The tide is low.")]
    assert left_out == []
