"""Repetition of the last build where that was an update, against an endpoint that refuses chosen texts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hirag_dist.application.build import run_refresh, run_remove
from hirag_dist.application.index_result import letter_places
from hirag_dist.application.retry import LetterSelection, run_drop
from hirag_dist.errors import StageFailed
from hirag_dist.execution.events import StageFinished
from hirag_dist.indexing.changed_documents import DocumentSelection
from hirag_dist.storage.snapshot.reader import Snapshot, open_snapshot
from tests.refusing_index import RefusingIndex
from tests.toy_builds import Bench


@pytest.fixture
def index(tmp_path: Path) -> Iterator[RefusingIndex]:
    found = RefusingIndex(tmp_path)
    yield found
    found.endpoint.close()


def extracted(snapshot: Snapshot) -> str:
    return " ".join(snapshot.table("entities", ["name"])["name"].to_pylist()).upper()


def test_the_letters_of_an_update_are_asked_again_from_its_base(index: RefusingIndex) -> None:
    index.begin("engine.txt", "loom.txt")
    index.refused = "Brunel"
    added = index.add("bridge.txt")
    assert added.dead_letters == 1
    (letter,) = index.letters()
    assert (letter["stage"], "Brunel" in letter["request"]) == ("extract", True)
    index.refused = ""
    healed = index.retry()
    assert (healed.complete, healed.update.base) == (True, added.update.base)
    assert "BRUNEL" in extracted(open_snapshot(index.store))
    assert index.letters() == []
    assert index.names() == {"engine.txt", "loom.txt", "bridge.txt"}


def test_letters_stay_after_runs_that_changed_nothing(index: RefusingIndex) -> None:
    index.refused, uri = "Brunel", index.uri
    index.build("engine.txt", "bridge.txt")
    index.add("loom.txt")
    for again in (lambda: index.build("engine.txt", "bridge.txt", "loom.txt"), lambda: run_refresh(uri, index.config)):
        again()
        assert [letter["stage"] for letter in index.letters()] == ["extract"]
    index.refused = ""
    assert index.retry().complete
    assert index.letters() == []
    assert index.names() == {"engine.txt", "loom.txt", "bridge.txt"}


def test_a_retry_loses_no_document_of_later_updates(index: RefusingIndex) -> None:
    """The snapshot that a run left as it was came from an earlier base."""
    index.begin("engine.txt", "loom.txt")
    index.add("bridge.txt")
    run_remove(DocumentSelection(sources=("*loom.txt",)), index.uri, index.config)
    before = open_snapshot(index.store).manifest.snapshot_id
    again = index.retry()
    assert (again.snapshot_id, again.up_to_date, again.complete) == (before, True, True)
    assert index.names() == {"engine.txt", "bridge.txt"}
    assert index.asked == []


def test_dropped_letters_of_an_update_are_not_asked_again(index: RefusingIndex) -> None:
    index.begin("engine.txt", "loom.txt")
    index.refused = "Brunel"
    index.add("bridge.txt")
    dropped = run_drop(index.uri, LetterSelection(why="not needed"))
    assert dropped.manifest.complete
    assert open_snapshot(index.store).manifest.snapshot_id == dropped.manifest.snapshot_id
    index.refused = ""
    index.asked.clear()
    added = index.add("train.txt")
    assert (added.complete, added.dropped) == (True, 1)
    assert not [text for text in index.asked if "Brunel" in text and "<text>" in text]
    assert [letter["dropped"]["why"] for letter in index.letters()] == ["not needed"]


def test_a_retry_of_a_removal_repeats_it_on_its_base(index: RefusingIndex) -> None:
    index.begin("engine.txt", "loom.txt")
    index.refused = "Babbage"
    removed = run_remove(DocumentSelection(sources=("*loom.txt",)), index.uri, index.config)
    index.refused = ""
    healed = index.retry()
    assert healed.update.base == removed.update.base
    assert healed.complete
    assert index.names() == {"engine.txt"}


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
