"""A snapshot, exported as GraphRAG's tables and imported again: layer 0 comes home."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hirag_dist import schemas
from hirag_dist.core.text.ids import content_id, entity_id
from hirag_dist.core.text.tokens import counter
from hirag_dist.interop.exports import graphrag_tables
from hirag_dist.interop.importers import ImportedGraph, read_working_folder
from tests.labelled_builds import build
from tests.table_rows import filled_row, filled_table
from tests.toy_builds import Bench

TOLD = [  # of Bob nothing is said
    ("Ray/technology: Ray is a tool.\nArrow/technology: A format.\nArrow + Ray: Ray reads it. 7", ["x", "y"]),
    ("RAY/person: He lives in 鲁迅's house.\nRay + Bob: They met. 5", []),
    ("\n".join(f"Friend {name}/person: A friend.\nFriend {name} + Ray: He uses it. 8" for name in "abcdefghij"), ["x"]),
]
COUNT = counter("o200k_base")


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> dict[str, pa.Table]:
    """Ray, Arrow, Bob and ten friends, with a layer of summaries above them."""
    found = build(Bench(tmp_path_factory.mktemp("toy")), TOLD, stop="paper", min_change_rate=1e-4)
    assert found.table("layers").num_rows > 1
    return {name: found.table(name) for name in found.manifest.counts}


def there_and_back(tables: dict[str, pa.Table], folder: Path, communities: bool = False) -> ImportedGraph:
    for name, table in graphrag_tables(tables).items():
        pq.write_table(table, folder / f"{name}.parquet")
    graph = read_working_folder(str(folder), COUNT, communities=communities)
    assert graph.left_out == (), "layers that are built again are no loss"
    return graph


def sorted_lists(table: pa.Table) -> list[dict[str, Any]]:
    rows = table.to_pylist()
    return [row | {"chunk_ids": sorted(row["chunk_ids"])} for row in rows]


def test_layer_0_and_claims_come_home(snapshot: dict[str, pa.Table], tmp_path: Path) -> None:
    chunk = snapshot["chunks"]["chunk_id"][0].as_py()
    claim = {
        "claim_id": content_id("claim", chunk, "ray", "", "speed", "true", "", "2020-01-01", "It is fast."),
        "subject": "Ray",
        "subject_id": entity_id(0, "ray"),
        "type": "speed",
        "status": "true",
        "end_date": "2020-01-01",
        "description": "It is fast.",
        "source_text": "Ray uses Arrow.",
        "chunk_id": chunk,
    }
    claims = filled_table(schemas.CLAIMS, [claim])
    graph = there_and_back(snapshot | {"claims": claims}, tmp_path)
    assert graph.kind == "graphrag"
    assert graph.documents.equals(snapshot["documents"])
    assert graph.chunks.equals(snapshot["chunks"])
    assert False in graph.entities["described"].to_pylist()
    for name, kind in (("entities", None), ("relations", "extracted")):
        before = [row for row in sorted_lists(snapshot[name]) if row["layer"] == 0 and row.get("kind") == kind]
        assert sorted_lists(getattr(graph, name)) == before
    assert graph.claims.equals(claims)


def test_communities_come_home_without_their_summaries(snapshot: dict[str, pa.Table], tmp_path: Path) -> None:
    layers = zip(*(snapshot["entities"][name].to_pylist() for name in ("entity_id", "layer")), strict=True)
    members = dict(layers)
    own = content_id("community", "0", *sorted(members))
    community = {"community_id": own, "is_leaf": True, "n_entities": len(members), "entity_ids": sorted(members)}
    finding = {"summary": "One.", "explanation": "Why.", "entity_ids": [], "relation_ids": []}
    told = {"title": "Tools", "summary": "S.", "rating": 3.0, "findings": [finding], "origin": "model"}
    report = filled_row(schemas.REPORTS, community_id=own, **told)
    tables = snapshot | {
        "communities": filled_table(schemas.COMMUNITIES, [community]),
        "reports": pa.Table.from_pylist([report], schemas.REPORTS),
    }
    graph = there_and_back(tables, tmp_path, communities=True)
    (found,) = graph.communities.to_pylist()
    assert found["entity_ids"] == sorted(each for each, layer in members.items() if layer == 0)
    (kept,) = graph.reports.to_pylist()
    assert kept == report | {"community_id": found["community_id"], "origin": "imported"}
