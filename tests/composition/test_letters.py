"""Dead letters by reason, and the places of their chunks."""

from __future__ import annotations

from pathlib import Path

import pytest

from hirag_dist.composition.letters import letter_groups, letter_places
from hirag_dist.errors import StageFailed
from hirag_dist.execution.events import StageFinished
from tests.toy_builds import Bench

USAGE = [
    {"stage": "extract", "endpoint": "good", "rejected": 1, "failed": 0},
    {"stage": "extract", "endpoint": "bad", "rejected": 2, "failed": 1},
    {"stage": "summarise layer 0", "endpoint": "good", "rejected": 1, "failed": 0},
]


def test_a_group_names_its_stages_and_the_endpoint_that_was_refused_most() -> None:
    cut = "the reply was cut off at the token limit"
    groups = letter_groups(["summarise.1", "extract", "extract", "read"], [cut, cut, cut, "no such file"], USAGE)
    first, second = groups
    assert (first.count, first.stages) == (3, {"summarise.1": 1, "extract": 2})
    assert "llm.endpoints.bad.max_reply_tokens" in first.remedy
    assert (second.reason, second.remedy) == ("no such file", "")  # no model was asked


def test_places_of_chunks_are_found_in_the_work_folder_of_a_build_that_failed(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    with pytest.raises(StageFailed):
        bench.run(["sun light", "sea water"], lambda request: "", max_reject_ratio=0.2)
    stages = [{"folder": event.folder} for event in bench.events if isinstance(event, StageFinished)]
    whole = Bench(tmp_path / "whole")
    whole.folder.mkdir()
    chunks = whole.build(["sun light", "sea water"], max_layers=0).table("chunks").to_pylist()
    wanted = [chunk["chunk_id"] for chunk in chunks]
    places = letter_places(bench.store, {"stages": stages}, None, [*wanted, "a community"])
    assert set(places) == set(wanted)
    for chunk in chunks:
        place = places[chunk["chunk_id"]]
        assert (place["start"], place["end"], place["position"]) == (0, len(chunk["text"]), 0)
        number = ["sun light", "sea water"].index(chunk["text"])
        assert place["uri"] == f"{number}.txt"
