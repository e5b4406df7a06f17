"""The recorded indexes of other tools, in full: every one of their entities and relations is accounted for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from hirag_dist.core.text.normalize import name_key
from hirag_dist.interop.importers import ImportedGraph, read_working_folder
from tests.shared_data import SHARED_DATA, needs_shared

# documents, chunks, entities, relations, as their README files count them
RECORDED = {
    "graphrag_recorded/operation_dulce": ("graphrag", 1, 5, 39, 107),
    "graphrag_recorded/operation_dulce_2024": ("graphrag-0.x", 1, 50, 89, 373),
    "hirag_index_drug_leaflet_ru": ("jsonl", 1, 8, 96, 100),
    "nano_index_ark_whitepaper": ("jsonl", 1, 11, 127, 63),
    "nano_index_bitcoin": ("jsonl", 1, 5, 73, 38),
    "nano_index_christmas_carol": ("jsonl", 1, 42, 374, 186),
    "nano_index_web3": ("jsonl", 3, 46, 217, 125),
    "qfs_mix_recorded_graph": ("jsonl", 61, 86, 12164, 403),
}

# communities, reports, claims that are kept, claims that say nothing
REPORTED = {
    "graphrag_recorded/operation_dulce": (10, 10, 41, 0),
    "graphrag_recorded/operation_dulce_2024": (20, 20, 149, 7),
    "hirag_index_drug_leaflet_ru": (17, 17, 0, 0),
    "nano_index_ark_whitepaper": (8, 8, 0, 0),
    "nano_index_bitcoin": (3, 3, 0, 0),
    "nano_index_christmas_carol": (32, 32, 0, 0),
    "nano_index_web3": (14, 14, 0, 0),
}

pytestmark = needs_shared("graphrag_recorded")


def read(name: str) -> ImportedGraph:
    return read_working_folder(str(SHARED_DATA / name), lambda text: len(text) // 4)


def names_of(name: str, kind: str) -> tuple[list[str], list[tuple[str, str]]]:
    """Entity names and ends of relations, read the plain way."""
    folder = SHARED_DATA / name
    rows: list[list[dict[str, Any]]]
    if kind == "jsonl":
        files = ("entities.jsonl", "relations.jsonl")
        lines = [(folder / file).read_text(encoding="utf-8").split("\n") for file in files]
        rows = [[json.loads(line) for line in held if line] for held in lines]
    else:
        prefix = "" if kind == "graphrag" else "create_final_"
        rows = [pq.read_table(folder / f"{prefix}{file}.parquet").to_pylist() for file in ("entities", "relationships")]
    names = [row["title"] if kind == "graphrag" else row["name"] for row in rows[0]]
    return names, [(row["source"], row["target"]) for row in rows[1]]


@pytest.mark.parametrize("name", RECORDED)
def test_counts_are_those_of_the_readme(name: str) -> None:
    kind, *counts = RECORDED[name]
    graph = read(name)
    assert graph.kind == kind
    assert list(graph.source_counts.values())[:4] == counts


@pytest.mark.parametrize("name", RECORDED)
def test_every_name_and_pair_is_there_once(name: str) -> None:
    graph = read(name)
    names, ends = names_of(name, graph.kind)
    keys = {name_key(own) for own in names} | {name_key(own) for pair in ends for own in pair}
    pairs = {tuple(sorted(map(name_key, pair))) for pair in ends}
    assert graph.entities.num_rows == len(keys)
    assert graph.relations.num_rows == len({pair for pair in pairs if pair[0] != pair[1]})
    assert graph.entities.num_rows == len(names) - graph.n_merged + graph.n_added
    with_itself = sum(name_key(low) == name_key(high) for low, high in ends)
    assert graph.relations.num_rows == len(ends) - graph.n_merged_relations - with_itself


@pytest.mark.parametrize("name", RECORDED)
def test_every_link_resolves_and_every_chunk_is_a_slice(name: str) -> None:
    graph = read(name)
    texts = dict(zip(*(graph.documents[column].to_pylist() for column in ("document_id", "text")), strict=True))
    n_chars = dict(zip(*(graph.documents[column].to_pylist() for column in ("document_id", "n_chars")), strict=True))
    for row in graph.chunks.to_pylist():
        assert 0 <= row["start"] < row["end"] <= n_chars[row["document_id"]]
        assert texts[row["document_id"]][row["start"] : row["end"]] == row["text"]
    own, chunks = set(graph.entities["entity_id"].to_pylist()), set(graph.chunks["chunk_id"].to_pylist())
    for end in ("source_id", "target_id"):
        assert own.issuperset(graph.relations[end].to_pylist())
    for table in (graph.entities, graph.relations):
        assert all(chunks.issuperset(ids) for ids in table["chunk_ids"].to_pylist())
    assert min(graph.relations["weight"].to_pylist()) >= 0.1
    assert not [what for what, _ in graph.left_out if what.startswith("place of chunk")]


def test_the_endpoints_that_graphrag_never_described_are_the_two_of_its_readme() -> None:
    graph = read("graphrag_recorded/operation_dulce")
    undescribed = [row["name"] for row in graph.entities.to_pylist() if not row["described"]]
    assert sorted(undescribed) == ["CONCRETE HALLWAY", "ELEVATOR"]


def test_the_endpoints_that_nano_graphrag_never_described_are_those_of_its_readme() -> None:
    graph = read("nano_index_christmas_carol")
    assert graph.entities["described"].to_pylist().count(False) == 16


def test_hirags_summary_entities_have_no_chunk() -> None:
    graph = read("hirag_index_drug_leaflet_ru")
    without = [row["name"] for row in graph.entities.to_pylist() if not row["chunk_ids"]]
    assert sorted(without) == ["NUROFEN", "RECKITT BENCKISER"]


def test_a_corpus_that_is_put_beside_the_mix_graph_gives_its_chunks_their_texts(tmp_path: Path) -> None:
    for name in ("documents", "chunks", "entities", "relations"):
        (tmp_path / f"{name}.jsonl").symlink_to(SHARED_DATA / "qfs_mix_recorded_graph" / f"{name}.jsonl")
    (tmp_path / "corpus.jsonl").symlink_to(SHARED_DATA / "qfs_mix" / "corpus.jsonl")
    graph = read_working_folder(str(tmp_path), len)
    assert all(graph.chunks["text"].to_pylist())
    assert all(graph.documents["text"].to_pylist())
    assert not [what for what, _ in graph.left_out if what.startswith(("text", "place"))]


@pytest.mark.parametrize("name", REPORTED)
def test_communities_reports_and_claims_are_kept(name: str) -> None:
    n_communities, n_reports, n_claims, n_empty = REPORTED[name]
    graph = read_working_folder(str(SHARED_DATA / name), lambda text: len(text) // 4, communities=True)
    assert graph.communities is not None
    assert graph.reports is not None
    assert (graph.communities.num_rows, graph.reports.num_rows) == (n_communities, n_reports)
    assert graph.claims.num_rows == n_claims
    assert sum("it says nothing" in reason for _, reason in graph.left_out) == n_empty
    assert not [what for what, _ in graph.left_out if "community" in what]
    ids = set(graph.communities["community_id"].to_pylist())
    for row in graph.communities.to_pylist():
        assert (row["parent_id"] is None) == (row["level"] == 0)
        assert row["parent_id"] is None or row["parent_id"] in ids
    chunks, entities = (
        set(table[own].to_pylist()) for table, own in ((graph.chunks, "chunk_id"), (graph.entities, "entity_id"))
    )
    for row in graph.claims.to_pylist():
        assert row["chunk_id"] in chunks
        assert {row["subject_id"], row["object_id"]} <= entities | {None}


def test_a_sub_community_is_inside_the_one_above() -> None:
    for name in REPORTED:
        graph = read_working_folder(str(SHARED_DATA / name), len, communities=True)
        assert graph.communities is not None
        members = {row["community_id"]: set(row["entity_ids"]) for row in graph.communities.to_pylist()}
        for row in graph.communities.to_pylist():
            assert row["parent_id"] is None or members[row["community_id"]] <= members[row["parent_id"]]
