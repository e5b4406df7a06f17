"""Remarks about the content of a published snapshot, in a build and an update."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pyarrow as pa
import pytest

from hirag_dist.core.prompts.templates import DONE
from hirag_dist.core.text.ids import entity_id
from hirag_dist.core.vectors import SlottedVectors
from hirag_dist.indexing.content_remarks import NOTE, content_counts, content_notes, is_sparse
from hirag_dist.schemas import CHUNKS, DOCUMENTS, ENTITIES
from hirag_dist.storage.snapshot.manifest import Manifest
from hirag_dist.types import ChatRequest
from tests.toy_builds import LAYER_0_ALONE, Bench, between, task_of


def test_zero_vectors_copies_and_documents_without_entities_are_counted() -> None:
    ids = ["d0", "d1", "d2", "d3", "d4"]
    names = [["a"], ["b", "c", "d"], ["e"], ["f"], ["g"]]
    uris, records = ["a.txt", "b.txt", "r.jsonl", "r.jsonl", "c.txt"], [0, 0, 0, 1, 0]
    documents = pa.table({"document_id": ids, "uri": uris, "record": records, "source_ids": names})
    chunks = pa.table({"chunk_id": ["c0", "c1", "c1b", "c2", "c3"], "document_id": ["d0", "d1", "d1", "d2", "d3"]})
    entities = pa.table({"chunk_ids": pa.array([["c1b"], []], pa.list_(pa.string()))})
    some = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, 0.0]], np.float32)
    slotted = SlottedVectors(some, some[:1], np.array([4, 1, 3], np.int32))  # row 0 of the first part is unused
    note = content_notes(documents, chunks, entities, {"y", "x"}, (some, some[:0], some[1:], slotted))
    assert note == {
        "copies": 2,
        "cut_ids": ["x", "y"],
        "zero_vectors": 5,
        "without_entities": 4,
        "first_without_entities": ["a.txt", "r.jsonl, record 1", "r.jsonl, record 2"],
    }


@pytest.mark.parametrize(("noted", "n_zero"), [({}, 2), ({"zero_vectors": 1}, 2), ({"zero_vectors": 0}, 1)])
def test_vectors_taken_from_a_base_without_zero_vectors_are_not_read(noted: dict[str, int], n_zero: int) -> None:
    base = Mock(Manifest, notes={NOTE: noted})
    zeros = SlottedVectors(np.zeros((1, 2), np.float32), np.zeros((1, 2), np.float32), np.array([0, 1], np.int32))
    tables = (schema.empty_table() for schema in (DOCUMENTS, CHUNKS, ENTITIES))
    assert content_notes(*tables, (), [zeros], base)["zero_vectors"] == n_zero


def test_an_index_is_sparse_if_half_of_its_documents_have_no_entity(tmp_path: Path) -> None:
    texts = ["sun moon", "sea water", "dew light", "sky wind"]

    def script(request: ChatRequest) -> str | None:
        return DONE if task_of(request) == "extract-graph" and between(request, "text") in texts[:2] else None

    manifest = Bench(tmp_path).build(texts, script, **LAYER_0_ALONE).manifest
    assert (content_counts(manifest)["without_entities"], is_sparse(manifest)) == (2, True)
    assert manifest.complete  # no reply was refused
    assert not is_sparse(manifest.model_copy(update={"counts": {**manifest.counts, "documents": 5}}))


def hub(request: ChatRequest) -> str | None:
    """Extract one entity with 220 descriptions from each text about the hub; others as the toy model does."""
    if task_of(request) == "extract-graph" and "hub" in between(request, "text"):
        text = between(request, "text")
        return "\n".join([*(f"entity<|>hub<|>concept<|>{text} is spoke {spoke}." for spoke in range(220)), DONE])
    return None


@pytest.mark.integration  # three builds
def test_cut_descriptions_are_counted_and_an_update_keeps_the_count(tmp_path: Path) -> None:
    bench = Bench(tmp_path, base_id="")
    texts = [f"hub {number}" for number in range(5)]
    built = bench.build([*texts, "sun moon"], hub, max_layers=0, update={"max_ratio": 1000})
    assert built.manifest.notes[NOTE]["cut_ids"] == [entity_id(0, "hub")]
    more = bench.build([*texts, "sun moon", "sea water"], hub, max_layers=0, update={"max_ratio": 1000})
    assert bench.result.update is not None
    assert content_counts(more.manifest)["cut_descriptions"] == 1
    fewer = bench.build([*texts[:2], "sun moon", "sea water"], hub, max_layers=0, update={"max_ratio": 1000})
    assert content_counts(fewer.manifest)["cut_descriptions"] == 0
