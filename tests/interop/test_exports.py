"""Exports: GraphML that networkx and igraph read back, and GraphRAG's tables, with every link right."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import igraph
import networkx as nx
import pyarrow as pa
import pytest
from lxml import etree

from hirag_dist.interop.exports import graphrag_tables, write_graphml
from hirag_dist.schemas import CLAIMS

Tables = dict[str, pa.Table]


def written(tables: Tables) -> bytes:
    stream = io.BytesIO()
    write_graphml(tables, stream)
    return stream.getvalue()


def test_networkx_reads_the_tiny_index_back(tiny: Tables) -> None:
    graph = nx.parse_graphml(written(tiny).decode())
    assert not graph.is_directed()
    assert dict(graph.nodes["0:a"]) == {
        "name": "a",
        "label": "a",
        "type": "person",
        "layer": 0,
        "description": "About a.",
        "described": True,
        "n_mentions": 1,
        "community": "left",
        "community_level": 1,
    }
    assert graph.number_of_nodes() == 6
    assert sorted((*sorted(ends), kind) for *ends, kind in graph.edges(data="kind")) == [
        ("0:a", "0:b", "extracted"),
        ("0:a", "0:b", "extracted"),
        ("0:a", "0:c", "extracted"),
        ("0:a", "1:S", "summary"),
        ("0:b", "0:c", "extracted"),
        ("0:b", "1:S", "summary"),
        ("0:c", "0:d", "extracted"),
    ]


def test_names_that_break_xml_are_kept_but_for_control_characters(
    make_tables: Callable[[Mapping[str, str]], Tables], nasty: dict[str, str], tmp_path: Path
) -> None:
    tables = make_tables(nasty)
    raw = written(tables)
    etree.fromstring(raw)
    graph = nx.parse_graphml(raw.decode())
    expected = nasty | {"S": "control [31m"}
    assert {name: graph.nodes[f"{int(name == 'S')}:{name}"]["name"] for name in expected} == expected
    path = tmp_path / "graph.graphml"
    path.write_bytes(raw)
    assert sorted(igraph.Graph.Read_GraphML(str(path)).vs["name"]) == sorted(expected.values())


# Names and types as in the Parquet files that GraphRAG 3 wrote for its own example ("Operation: Dulce").
STRINGS, INTS = "list<string>", "list<int64>"
THEIRS = {
    "documents": {"title": "string", "text": "string", "text_unit_ids": STRINGS, "creation_date": "string"},
    "text_units": {"text": "string", "n_tokens": "int64", "document_id": "string"}
    | dict.fromkeys(["entity_ids", "relationship_ids", "covariate_ids"], STRINGS),
    "entities": dict.fromkeys(["title", "type", "description"], "string")
    | {"text_unit_ids": STRINGS, "frequency": "int64", "degree": "int64"},
    "relationships": dict.fromkeys(["source", "target", "description"], "string")
    | {"weight": "double", "combined_degree": "int64", "text_unit_ids": STRINGS},
    "communities": {"community": "int64", "level": "int64", "parent": "int64", "children": INTS, "title": "string"}
    | dict.fromkeys(["entity_ids", "relationship_ids", "text_unit_ids"], STRINGS)
    | {"period": "string", "size": "int64"},
    "community_reports": {"community": "int64", "level": "int64", "parent": "int64", "children": INTS}
    | dict.fromkeys(["title", "summary", "full_content", "rating_explanation", "full_content_json", "period"], "string")
    | {"rank": "double", "findings": "list<struct<explanation: string, summary: string>>", "size": "int64"},
}


def by_id(table: pa.Table) -> dict[str, dict[str, Any]]:
    return {row["id"]: row for row in table.to_pylist()}


def kind_of(kind: pa.DataType) -> str:
    return str(kind).replace("element: ", "").replace("item: ", "")


@pytest.mark.parametrize("which", ["tiny", "empty"])
def test_columns_and_types_are_theirs(which: str, request: pytest.FixtureRequest) -> None:
    found = graphrag_tables(request.getfixturevalue(which))
    assert set(found) == set(THEIRS)
    for name, columns in THEIRS.items():
        expected = {"id": "string", "human_readable_id": "int64"} | columns
        assert {column: kind_of(found[name].schema.field(column).type) for column in expected} == expected
        for column in found[name].columns:
            column.validate(full=True)


def test_entities_and_relations_of_the_tiny_index(tiny: Tables) -> None:
    found = graphrag_tables(tiny, period="2025-01-01")
    entity = by_id(found["entities"])["0:a"]
    assert (entity["title"], entity["text_unit_ids"], entity["frequency"], entity["degree"]) == ("a", ["c0"], 1, 3)
    assert (entity["layer"], by_id(found["entities"])["1:S"]["layer"]) == (0, 1)
    relations = by_id(found["relationships"])
    assert len(relations) == 7  # the relation without a target is left out
    relation = relations["summary:0:a:1:S"]
    assert (relation["source"], relation["target"], relation["kind"], relation["weight"]) == ("a", "S", "summary", 1.0)
    assert (relation["combined_degree"], relation["text_unit_ids"]) == (5, [])
    unit = by_id(found["text_units"])["c0"]
    assert unit["entity_ids"] == ["0:a", "0:b", "0:c", "0:d", "0:e"]
    assert len(unit["relationship_ids"]) == 5
    assert (unit["document_id"], unit["document_ids"], unit["covariate_ids"]) == ("d0", ["d0"], [])
    document = by_id(found["documents"])["d0"]
    assert (document["title"], document["text_unit_ids"], document["creation_date"]) == ("D", ["c0"], "2025-01-01")


def test_communities_and_reports_of_the_tiny_index(tiny: Tables) -> None:
    found = graphrag_tables(tiny)
    communities = by_id(found["communities"])
    big, left, lone = communities["big"], communities["left"], communities["lone"]
    assert (big["community"], big["parent"], big["children"], big["size"]) == (0, -1, [2, 3], 5)
    assert (left["community"], left["parent"], left["children"], left["level"]) == (2, 0, [], 1)
    assert (len(big["relationship_ids"]), len(left["relationship_ids"]), lone["relationship_ids"]) == (7, 4, [])
    assert left["text_unit_ids"] == ["c0"]
    report = by_id(found["community_reports"])["left"]
    assert (report["community"], report["title"], report["rank"], report["size"]) == (2, "The two", 7.5, 3)
    assert report["full_content"] == "# The two\n\nThree friends.\n\n## They meet\n\nOften."
    content = json.loads(report["full_content_json"])
    assert content["findings"] == [{"summary": "They meet", "explanation": "Often."}]
    assert content["rating"] == 7.5


def test_claims_are_covariates_and_are_told_of_their_subject(tiny: Tables) -> None:
    told = {"type": "debt", "status": "suspected", "start_date": "1843-12-24", "end_date": "", "source_text": "Owes."}
    about = {"subject": "a", "object": "b", "subject_id": "0:a", "object_id": "0:b", "chunk_id": "c0"}
    nobody = {"subject": "Nobody", "object": "", "subject_id": None, "object_id": None, "chunk_id": ""}
    rows = [
        about | told | {"claim_id": "k1", "description": "a owes b."},
        nobody | told | {"claim_id": "k2", "description": "Who?"},
        about | told | {"claim_id": "k3", "description": "a never paid."},
    ]
    tables = tiny | {"claims": pa.Table.from_pylist(rows, CLAIMS)}
    graph = nx.parse_graphml(written(tables).decode())
    said = [f"a → b, debt (suspected, from 1843-12-24): {what}" for what in ("a owes b.", "a never paid.")]
    assert graph.nodes["0:a"]["claims"] == "\n".join(said)
    assert not any("claims" in data for own, data in graph.nodes(data=True) if own != "0:a")
    assert "covariates" not in graphrag_tables(tiny)
    found = graphrag_tables(tables)
    texts = ["covariate_type", "type", "description", "subject_id", "object_id", "status", "start_date", "end_date"]
    for name in ("id", *texts, "source_text", "text_unit_id"):
        assert found["covariates"].schema.field(name).type == pa.string()
    by = by_id(found["covariates"])
    assert [by["k1"][name] for name in texts] == [
        *("claim", "debt", "a owes b.", "a", "b", "SUSPECTED", "1843-12-24", "NONE")
    ]
    assert (by["k2"]["subject_id"], by["k2"]["object_id"], by["k2"]["human_readable_id"]) == ("Nobody", "NONE", 1)
    assert by_id(found["text_units"])["c0"]["covariate_ids"] == ["k1", "k3"]
