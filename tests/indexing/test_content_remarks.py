"""Remarks about the content of a published snapshot, in a build and an update."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from hirag_dist.core.prompts.templates import DONE
from hirag_dist.core.text.ids import entity_id
from hirag_dist.indexing.content_remarks import NOTE, content_counts, content_notes, remark_lines
from hirag_dist.types import ChatRequest
from tests.toy_builds import Bench, between, task_of


def test_zero_vectors_and_copies_are_counted() -> None:
    documents = pa.table({"source_ids": pa.array([["a"], ["b", "c", "d"], ["e"]])})
    some = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, 0.0]], np.float32)
    note = content_notes(documents, {"y", "x"}, (some, some[:0], some[1:]))
    assert note == {"copies": 2, "cut_ids": ["x", "y"], "zero_vectors": 3}


def test_remarks_are_made_of_what_there_is_alone() -> None:
    assert remark_lines({"copies": 0, "cut_descriptions": 0, "zero_vectors": 0}) == []
    lines = remark_lines({"copies": 1, "cut_descriptions": 1, "zero_vectors": 2})
    assert [line.split(" has ")[0].split(" are ")[0] for line in lines] == [
        "1 document",
        "1 entity or relation",
        "2 vectors",
    ]


def hub(request: ChatRequest) -> str | None:
    """Extract one entity with a description of 60,000 characters; others as the toy model does."""
    if task_of(request) == "extract-graph" and "hub" in between(request, "text"):
        numbers = " ".join(str(number * 7919) for number in range(9000))
        return f"entity<|>hub<|>concept<|>{between(request, 'text')} {numbers}\n{DONE}"
    return None


@pytest.mark.integration  # three builds of long texts
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
