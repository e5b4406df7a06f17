"""Working folders of each kind, read; and what is said of folders that cannot be."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hirag_dist import schemas
from hirag_dist.core.text.ids import document_id, entity_id, relation_id
from hirag_dist.errors import InputError
from hirag_dist.interop.importers import ImportedGraph, read_working_folder
from tests.interop.importers.conftest import CHUNKS, FIRST, SECOND, TEXT, kv_stores

DOCUMENT = document_id(TEXT)
GRAPH = "graph_chunk_entity_relation.graphml"


def words(text: str) -> int:
    return len(text.split())


def read(folder: Path) -> ImportedGraph:
    graph = read_working_folder(str(folder), words)
    assert graph.documents.schema == schemas.DOCUMENTS
    assert graph.chunks.schema == schemas.CHUNKS
    assert graph.entities.schema == schemas.ENTITIES
    assert graph.relations.schema == schemas.RELATIONS
    for table, own in ((graph.documents, "document_id"), (graph.entities, "entity_id")):
        assert table[own].to_pylist() == sorted(set(table[own].to_pylist()))
    return graph


def entities(graph: ImportedGraph) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in graph.entities.to_pylist()}


def relations(graph: ImportedGraph) -> dict[tuple[str, ...], dict[str, Any]]:
    names = {row["entity_id"]: row["name"] for row in graph.entities.to_pylist()}
    ends = (tuple(sorted((names[row["source_id"]], names[row["target_id"]]))) for row in graph.relations.to_pylist())
    return dict(zip(ends, graph.relations.to_pylist(), strict=True))


def assert_places(graph: ImportedGraph) -> None:
    """One document and its two chunks at their places."""
    assert graph.documents["document_id"].to_pylist() == [DOCUMENT]
    rows = graph.chunks.to_pylist()
    assert [row["chunk_id"] for row in rows] == CHUNKS
    assert [(row["position"], row["start"], row["end"], row["n_tokens"]) for row in rows] == [
        (0, 0, 42, 8),
        (1, 29, 66, 7),
    ]
    assert [row["text"] for row in rows] == [FIRST, SECOND]


def test_a_nano_graphrag_folder_loses_its_quotes(nano: Path) -> None:
    graph = read(nano)
    assert graph.kind == "nano-graphrag"
    assert_places(graph)
    assert graph.documents["uri"].to_pylist() == ["doc-1"]
    assert (graph.entities.num_rows, graph.relations.num_rows, graph.n_merged, graph.n_added) == (4, 2, 0, 0)
    assert graph.left_out == ()
    found = entities(graph)
    assert found["ALICE"] == {
        "entity_id": entity_id(0, "alice"),
        "layer": 0,
        "name": "ALICE",
        "type": "person",
        "description": "Alice is a girl.\nAlice is curious.",
        "described": True,
        "n_mentions": 2,
        "chunk_ids": CHUNKS,
    }
    assert found["WONDERLAND"]["description"] == "A land & more."
    met = relations(graph)["ALICE", "BOB"]
    ends = sorted([entity_id(0, "alice"), entity_id(0, "bob")])
    assert met["relation_id"] == relation_id("extracted", *ends)
    assert [met["source_id"], met["target_id"]] == ends
    assert (met["kind"], met["layer"], met["weight"], met["description"]) == ("extracted", 0, 9.0, "They met.")


def test_hirags_summary_entities_come_without_chunks_in_layer_0(hirag: Path) -> None:
    graph = read(hirag)
    assert graph.kind == "hirag"
    assert graph.left_out == ()
    found = entities(graph)
    assert found["ADVENTURE"]["chunk_ids"] == []
    assert (found["ADVENTURE"]["layer"], found["ADVENTURE"]["n_mentions"]) == (0, 1)
    assert found["ALICE"]["chunk_ids"] == CHUNKS[:1]


@pytest.mark.parametrize("held", [{"labels": ["board"]}, {"metadata": {"acl": "board"}}])
def test_the_labels_of_lightrags_documents_are_taken(lightrag: Path, held: dict[str, Any]) -> None:
    kv_stores(lightrag, **held)
    assert read(lightrag).documents["labels"].to_pylist() == [["board"]]


def test_lightrags_names_that_differ_in_case_are_one_entity(lightrag: Path) -> None:
    graph = read(lightrag)
    assert graph.kind == "lightrag"
    assert_places(graph)
    assert (graph.documents["uri"][0].as_py(), graph.documents["title"][0].as_py()) == ("alice.txt", "alice.txt")
    assert (graph.n_merged, graph.n_merged_relations) == (1, 1)
    found = entities(graph)
    assert set(found) == {"Alice", "Bob"}
    assert (found["Alice"]["n_mentions"], found["Alice"]["type"]) == (2, "person")
    assert found["Alice"]["description"] == "A girl.\nA cat."
    both = relations(graph)["Alice", "Bob"]
    assert (both["weight"], both["description"]) == (11.0, "They met. She purrs.")
    assert found["Bob"]["chunk_ids"] == both["chunk_ids"] == CHUNKS, "all chunks, which a store of their own names"


@pytest.mark.parametrize(("old", "kind"), [(False, "graphrag"), (True, "graphrag-0.x")])
@pytest.mark.parametrize("below", ["", "output/20240801-101010/artifacts"])
def test_graphrags_tables_are_found_and_read(graphrag: Callable[..., Path], old: bool, kind: str, below: str) -> None:
    graph = read(graphrag(old, below))
    assert graph.kind == kind
    assert_places(graph)
    assert graph.documents["title"].to_pylist() == ["alice.txt"]
    found = entities(graph)
    assert found["ALICE"]["description"] == "A girl. Very curious."
    assert (found["MARCH HARE"]["type"], found["MARCH HARE"]["described"]) == ("unknown", False)
    assert (graph.n_added, graph.n_merged_relations) == (1, 1)
    assert (found["THE HATTER"]["described"], found["THE HATTER"]["chunk_ids"]) == (False, CHUNKS[1:])
    both = relations(graph)["ALICE", "BOB"]
    assert (both["weight"], both["description"], both["chunk_ids"]) == (12.0, "They met. Friends.", CHUNKS)


def test_graphrags_documents_have_labels_in_a_column_or_in_their_metadata(graphrag: Callable[..., Path]) -> None:
    folder = graphrag()
    row = {"id": "d", "title": "alice.txt", "text": TEXT}
    for more in (
        {"labels": ["board", "x"]},
        {"acl": '["board", "x"]'},
        {"labels": [""], "metadata": {"acl": ["board", "x"]}},
        {"metadata": '{"label": ["board", "x"]}'},
    ):
        pq.write_table(pa.Table.from_pylist([row | more]), folder / "documents.parquet")
        assert read(folder).documents["labels"].to_pylist() == [["board", "x"]]


@pytest.mark.parametrize("name", ["kv_store_text_chunks.json", GRAPH])
@pytest.mark.parametrize("damage", [None, b"", b'{"doc-1": {"content": "Al'], ids=["missing", "empty", "cut"])
def test_a_missing_or_damaged_file_is_named_on_one_line(nano: Path, name: str, damage: bytes | None) -> None:
    (nano / name).unlink()
    said = f"looks like a folder of nano-graphrag, .* but {name} is missing"
    if damage is not None:
        (nano / name).write_bytes(damage)
        said = f"{name} cannot be read: "
    with pytest.raises(InputError, match=said) as caught:
        read(nano)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("declared", ['<!ENTITY a "aaaaaaaaaa">', '<!ENTITY a SYSTEM "file:///etc/passwd">'])
def test_a_graph_with_a_dtd_is_refused(nano: Path, declared: str) -> None:
    path = nano / GRAPH
    body = path.read_text(encoding="utf-8").split("?>", 1)[1].replace("A land", "&a;")
    path.write_text(f"<?xml version='1.0'?><!DOCTYPE graphml [{declared}]>{body}", encoding="utf-8")
    with pytest.raises(InputError, match="document type definition"):
        read(nano)


def test_folders_of_no_known_kind_and_without_an_entity_are_refused(
    graphrag: Callable[..., Path], tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=r"no working folder of a known kind; looked for graphrag: documents\.parquet"):
        read(tmp_path)
    root = graphrag()
    for name in ("entities", "relationships"):
        path = root / f"{name}.parquet"
        pq.write_table(pq.read_table(path).slice(0, 0), path)
    with pytest.raises(InputError, match="holds no entity"):
        read(root)
