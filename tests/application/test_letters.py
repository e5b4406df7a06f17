"""Dead letters by reason, and the places of their chunks."""

from __future__ import annotations

from pathlib import Path

import pytest

from hirag_dist.application.index_result import letter_places
from hirag_dist.errors import StageFailed
from hirag_dist.execution.events import StageFinished
from tests.toy_builds import Bench


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
