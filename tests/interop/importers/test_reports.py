"""Communities and reports of working folders, taken over where that is asked for."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from hirag_dist import schemas
from hirag_dist.core.text.ids import content_id, entity_id
from hirag_dist.interop.importers import ImportedGraph, read_working_folder
from tests.interop.importers.conftest import CHUNKS, write_parquet

ALICE, BOB, HARE = (entity_id(0, name) for name in ("alice", "bob", "march hare"))


def kept(folder: Path) -> ImportedGraph:
    graph = read_working_folder(str(folder), len, communities=True)
    assert graph.communities.schema == schemas.COMMUNITIES
    assert graph.reports.schema == schemas.REPORTS
    return graph


@pytest.mark.parametrize("old", [False, True])
def test_graphrags_tree_comes_with_its_reports(graphrag: Callable[..., Path], old: bool) -> None:
    graph = kept(graphrag(old=old))
    root, child = graph.communities.to_pylist()
    assert (root["level"], root["parent_id"], root["is_leaf"]) == (0, None, False)
    assert root["entity_ids"] == sorted([ALICE, BOB, HARE])
    assert root["community_id"] == content_id("community", "0", *root["entity_ids"])
    assert (child["level"], child["parent_id"], child["is_leaf"]) == (1, root["community_id"], True)
    assert child["entity_ids"] == sorted([ALICE, BOB])
    assert graph.reports.to_pylist()[0] == {
        "community_id": root["community_id"],
        "level": 0,
        "title": "Tea 0",
        "summary": "A party.",
        "rating": 7.5,
        "rating_explanation": "Tea matters.",
        "findings": [{"summary": "They have tea.", "explanation": "Every day.", "entity_ids": [], "relation_ids": []}],
        "origin": "imported",
        "n_dropped_references": 0,
    }
    assert (graph.communities.num_rows, graph.reports.num_rows) == (2, 2)


def test_what_is_wrong_with_nano_graphrags_communities_is_told(nano: Path) -> None:
    graph = kept(nano)
    assert sorted(graph.communities["n_entities"].to_pylist()) == [1, 2]
    (report,) = graph.reports.to_pylist()
    assert (report["rating"], report["findings"][0]["summary"]) == (6.0, "Often.")
    assert dict(graph.left_out) == {
        "community 3": "it has no level",
        "1 member of community 1": 'no entities of layer 0: "THE DORMOUSE"',
        "report of community 2": "the folder holds none that says something",
    }


def test_names_that_become_one_entity_are_in_one_community_of_a_level(lightrag: Path) -> None:
    both = {"level": 0, "report_json": {"summary": "Two."}}
    stores = {"1": both | {"nodes": ["Alice", "Bob"]}, "2": both | {"nodes": ["alice"]}}
    (lightrag / "kv_store_community_reports.json").write_text(json.dumps(stores))
    graph = kept(lightrag)
    assert graph.communities["entity_ids"].to_pylist() == [sorted([ALICE, BOB])]
    assert dict(graph.left_out) == {
        "'alice' in community 2": "the entity is in community 1 of the same level already",
        "community 2": "none of its members is an entity",
        "report of community 2": "the import has no such community",
    }


@pytest.mark.parametrize("old", [False, True])
def test_graphrags_covariates_are_claims_about_entities_and_chunks(graphrag: Callable[..., Path], old: bool) -> None:
    folder = graphrag(old=old)
    path = folder / ("create_final_covariates.parquet" if old else "covariates.parquet")
    rows = pq.read_table(path).to_pylist()
    nothing = dict.fromkeys(rows[0], None) | {"id": "c3", "subject_id": "", "text_unit_id": "t1"}
    write_parquet(path, [*rows, nothing])  # as the model's empty records are in real tables
    graph = read_working_folder(str(folder), len)
    assert graph.claims.schema == schemas.CLAIMS
    found = {row["subject"]: row for row in graph.claims.to_pylist()}
    assert found["BOB"] | {"claim_id": ""} == {
        "claim_id": "",
        "subject": "BOB",
        "object": "ALICE",
        "subject_id": entity_id(0, "bob"),
        "object_id": entity_id(0, "alice"),
        "type": "THEFT",
        "status": "suspected",
        "start_date": "1865-11-01",
        "end_date": "",
        "description": "Bob may have taken the tarts.",
        "source_text": "They had tea.",
        "chunk_id": CHUNKS[1],
    }
    queen = found["THE QUEEN"]
    assert (queen["subject_id"], queen["object"], queen["object_id"]) == (None, "", None)
    assert entity_id(0, "the queen") not in graph.entities["entity_id"].to_pylist()
    assert ("claim c3", "it says nothing: its description is empty") in graph.left_out
    assert len(found) == 2


def test_a_claim_of_an_unknown_chunk_is_in_nobodys_reach_where_documents_carry_labels(
    graphrag: Callable[..., Path],
) -> None:
    root = graphrag()
    for name, column, values in (("documents", "labels", [["a"]]), ("covariates", "text_unit_id", ["t1", "gone"])):
        rows = pq.read_table(root / f"{name}.parquet").to_pylist()
        changed = [row | {column: value} for row, value in zip(rows, values, strict=True)]
        write_parquet(root / f"{name}.parquet", changed)
    graph = read_working_folder(str(root), len)
    chunks = set(graph.chunks["chunk_id"].to_pylist())
    unknown = [own for own in graph.claims["chunk_id"].to_pylist() if own not in chunks]
    assert len(unknown) == 1
    assert unknown[0]  # an id that no chunk has, so that it counts as hidden
    assert any(reason == "not in the folder: gone" for _, reason in graph.left_out)
