"""A snapshot, exported as GraphRAG's tables and imported again: layer 0 comes home."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hirag_dist import schemas
from hirag_dist.core.entities.merging import inter_layer_relation, merge_entities, merge_relations
from hirag_dist.core.entities.summaries import names_of, relate_equal_names
from hirag_dist.core.text.ids import chunk_id, content_id, document_id, entity_id
from hirag_dist.interop.exports import graphrag_tables
from hirag_dist.interop.importers import ImportedGraph, read_working_folder

TEXT = "Ray uses Arrow. Ray uses Arrow. Bob met Ray in 鲁迅's house."


@pytest.fixture
def snapshot() -> dict[str, pa.Table]:
    """Ray, Arrow and Bob in three chunks, one of which repeats another; Bob was never described. Above: `Ray` again."""
    document = document_id(TEXT, ["x", "y"])
    row = {"document_id": document, "uri": "a/ray.txt", "record": 3, "title": "Ray", "source_ids": ["r/1", "R"]}
    row |= {"labels": ["x", "y"]}
    documents = pa.Table.from_pylist([row | {"n_chars": len(TEXT), "text": TEXT}], schemas.DOCUMENTS)
    spans = [(0, 15), (16, 31), (32, len(TEXT))]
    chunks = [
        {
            "chunk_id": chunk_id(document, start, end, TEXT[start:end]),
            "document_id": document,
            "position": at,
            "start": start,
            "end": end,
        }
        | {"n_tokens": len(TEXT[start:end].split()), "text": TEXT[start:end]}
        for at, (start, end) in enumerate(spans)
    ]
    own = [chunk["chunk_id"] for chunk in chunks]
    said = [
        ("ray", own[0], "Ray", "technology", "Ray is a tool.", True),
        ("ray", own[1], "Ray", "technology", "Ray runs tasks.", True),
        ("ray", own[2], "RAY", "person", "", True),
        ("arrow", own[0], "Arrow", "technology", "A format.", True),
        ("bob", own[2], "Bob", "unknown", "", False),
    ]
    names = ("name_key", "chunk_id", "name", "type", "description", "described")
    mentions = [dict(zip(names, row, strict=True)) | {"position": at} for at, row in enumerate(said)]
    entities = merge_entities(pa.Table.from_pylist(mentions, schemas.MENTIONS))
    related = [("arrow", "ray", own[0], 7.0), ("arrow", "ray", own[1], 8.0), ("bob", "ray", own[2], 5.5)]
    rows = [
        {"source_key": low, "target_key": high, "chunk_id": where, "position": at, "strength": strength}
        | {"description": f"{low} and {high}, {at}"}
        for at, (low, high, where, strength) in enumerate(related)
    ]
    relations = merge_relations(pa.Table.from_pylist(rows, schemas.RELATION_MENTIONS))
    summary = {"entity_id": entity_id(1, "ray"), "layer": 1, "name": "Ray", "type": "concept", "described": True}
    above = pa.Table.from_pylist(
        [summary | {"description": "All.", "n_mentions": 3, "chunk_ids": []}], schemas.ENTITIES
    )
    member = inter_layer_relation("summary", entity_id(0, "arrow"), entity_id(1, "ray"), 0, "Is part of it.", 1.0)
    up = pa.Table.from_pylist([member], schemas.RELATIONS)
    everything = pa.concat_tables([entities, above])
    return {
        "documents": documents,
        "chunks": pa.Table.from_pylist(chunks, schemas.CHUNKS),
        "entities": everything,
        "relations": pa.concat_tables([relations, up, relate_equal_names(names_of(everything))]),
        "communities": schemas.COMMUNITIES.empty_table(),
        "reports": schemas.REPORTS.empty_table(),
    }


def there_and_back(tables: dict[str, pa.Table], folder: Path) -> ImportedGraph:
    for name, table in graphrag_tables(tables).items():
        pq.write_table(table, folder / f"{name}.parquet")
    return read_working_folder(str(folder), lambda text: len(text.split()))


def sorted_lists(table: pa.Table) -> list[dict[str, Any]]:
    rows = table.to_pylist()
    return [row | {"chunk_ids": sorted(row["chunk_ids"])} for row in rows]


def test_layer_0_comes_home(snapshot: dict[str, pa.Table], tmp_path: Path) -> None:
    graph = there_and_back(snapshot, tmp_path)
    assert graph.kind == "graphrag"
    assert graph.documents.equals(snapshot["documents"])
    assert graph.chunks.equals(snapshot["chunks"])
    for name, kind in (("entities", None), ("relations", "extracted")):
        before = [row for row in sorted_lists(snapshot[name]) if row["layer"] == 0 and row.get("kind") == kind]
        assert sorted_lists(getattr(graph, name)) == before


def test_layers_that_are_built_again_are_no_loss(snapshot: dict[str, pa.Table], tmp_path: Path) -> None:
    graph = there_and_back(snapshot, tmp_path)
    assert graph.left_out == ()
    assert [graph.documents.num_rows, graph.chunks.num_rows] == [1, 3]
    assert [graph.entities.num_rows, graph.relations.num_rows] == [3, 2]


def test_claims_come_home(snapshot: dict[str, pa.Table], tmp_path: Path) -> None:
    chunk = snapshot["chunks"]["chunk_id"][0].as_py()
    rows = [
        {
            "claim_id": content_id("claim", chunk, "ray", "", "speed", "true", "", "2020-01-01", "It is fast."),
            "subject": "Ray",
            "object": "",
            "subject_id": entity_id(0, "ray"),
            "object_id": None,
            "type": "speed",
            "status": "true",
            "start_date": "",
            "end_date": "2020-01-01",
            "description": "It is fast.",
            "source_text": "Ray uses Arrow.",
            "chunk_id": chunk,
        }
    ]
    claims = pa.Table.from_pylist(rows, schemas.CLAIMS)
    graph = there_and_back(snapshot | {"claims": claims}, tmp_path)
    assert graph.claims.equals(claims)


def test_communities_come_home_without_their_summaries(snapshot: dict[str, pa.Table], tmp_path: Path) -> None:
    layers = zip(*(snapshot["entities"][name].to_pylist() for name in ("entity_id", "layer")), strict=True)
    members = dict(layers)
    own = content_id("community", "0", *sorted(members))
    community = {"community_id": own, "level": 0, "parent_id": None, "is_leaf": True, "n_relations": 5}
    community |= {"n_entities": len(members), "entity_ids": sorted(members)}
    report = {"community_id": own, "level": 0, "title": "Tools", "summary": "S.", "rating": 3.0}
    finding = {"summary": "One.", "explanation": "Why.", "entity_ids": [], "relation_ids": []}
    report |= {"rating_explanation": "", "findings": [finding], "origin": "model", "n_dropped_references": 0}
    tables = snapshot | {
        "communities": pa.Table.from_pylist([community], schemas.COMMUNITIES),
        "reports": pa.Table.from_pylist([report], schemas.REPORTS),
    }
    for name, table in graphrag_tables(tables).items():
        pq.write_table(table, tmp_path / f"{name}.parquet")
    graph = read_working_folder(str(tmp_path), len, communities=True)
    (found,) = graph.communities.to_pylist()
    assert found["entity_ids"] == sorted(each for each, layer in members.items() if layer == 0)
    (kept,) = graph.reports.to_pylist()
    assert kept == report | {"community_id": found["community_id"], "origin": "imported"}
    assert graph.left_out == ()
