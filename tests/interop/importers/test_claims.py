"""Claims of working folders: what they are about, where they are claimed, and what becomes of broken ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from hirag_dist import schemas
from hirag_dist.core.text.ids import chunk_id, document_id, entity_id
from hirag_dist.interop.importers import read_working_folder
from tests.interop.importers.conftest import TEXT, write_parquet

CHUNKS = [chunk_id(document_id(TEXT), 0, 42, TEXT[0:42]), chunk_id(document_id(TEXT), 29, 66, TEXT[29:66])]


@pytest.mark.parametrize("old", [False, True])
def test_graphrags_covariates_are_claims_about_entities_and_chunks(graphrag: Callable[..., Path], old: bool) -> None:
    folder = graphrag(old=old)
    path = folder / ("create_final_covariates.parquet" if old else "covariates.parquet")
    rows = pq.read_table(path).to_pylist()
    nothing = dict.fromkeys(rows[0], None) | {"id": "c3", "subject_id": "", "text_unit_id": "t1"}
    write_parquet(path, [*rows, nothing])  # as the model's empty records are in real tables
    graph = read_working_folder(str(folder), len)
    assert graph.claims.schema == schemas.CLAIMS
    assert graph.source_counts["claims"] == 3
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
