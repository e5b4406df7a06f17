"""Dead letters: asked again, also where the last build was an update, or accepted by decision, whatever was killed."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from hirag_dist.application.build import run_refresh, run_remove
from hirag_dist.application.index_result import letter_places
from hirag_dist.application.retry import DropResult, LetterSelection, drop_letters, run_drop
from hirag_dist.cli._build import show
from hirag_dist.composition.build_records import BuildArguments, BuildRecord, last_build
from hirag_dist.config.model import Config
from hirag_dist.config.sections import MetadataConfig
from hirag_dist.errors import ConfigError, InputError, RequestRejected, StageFailed
from hirag_dist.execution.events import StageFinished
from hirag_dist.execution.stage_results import load_drops
from hirag_dist.indexing.budget import bill_rows, known_bill
from hirag_dist.indexing.changed_documents import DocumentSelection
from hirag_dist.storage.layout import BUILD, DROPS
from hirag_dist.storage.lock import BuildLock
from hirag_dist.storage.snapshot.reader import current_id, open_snapshot
from hirag_dist.storage.snapshot.writer import make_current
from hirag_dist.storage.store import Store
from hirag_dist.types import ChatRequest
from tests.mortal_store import Killed, MortalStore
from tests.refusing_index import RefusingIndex
from tests.toy_builds import Bench, between, rows, task_of


@pytest.fixture
def index(tmp_path: Path) -> Iterator[RefusingIndex]:
    found = RefusingIndex(tmp_path)
    yield found
    found.endpoint.close()


def test_the_letters_of_an_update_are_asked_again_from_its_base(index: RefusingIndex) -> None:
    """Also after another update, and after runs that changed nothing."""
    index.begin("engine.txt", "loom.txt")
    index.refused = "Brunel"
    first = index.add("bridge.txt")
    assert (first.dead_letters, index.add("train.txt").dead_letters) == (1, 1)
    every = ("engine.txt", "loom.txt", "bridge.txt", "train.txt")
    for again in (lambda: index.build(*every), lambda: run_refresh(index.uri, index.config)):
        again()
        (letter,) = index.letters()
        assert (letter["stage"], "Brunel" in letter["request"]) == ("extract", True)
    index.refused = ""
    healed = index.retry()
    assert (healed.complete, healed.update.base) == (True, first.snapshot_id)
    names = open_snapshot(index.store).table("entities", ["name"])["name"].to_pylist()
    assert "BRUNEL" in " ".join(names).upper()
    assert index.letters() == []
    assert index.names() == {*every}


def test_the_bill_of_an_index_counts_each_call_once(index: RefusingIndex) -> None:
    """Also those that an update reads again from the reply store, and those of a retry that changed nothing."""

    def billed() -> int:
        rows, is_whole = known_bill(open_snapshot(index.store))
        assert is_whole
        return sum(row["calls"] for row in rows)

    index.refused = "Brunel"
    index.build("engine.txt", "loom.txt", "bridge.txt")
    n_sent = len(index.asked)
    assert billed() == n_sent
    run_remove(DocumentSelection(sources=("*loom.txt",)), index.uri, index.config)
    index.add("loom.txt", "train.txt")
    n_sent = len(index.asked)
    assert billed() == n_sent
    for refused in ("Brunel", ""):
        index.refused = refused
        index.retry()
        n_sent += len(index.asked)
        assert index.asked
        assert billed() == n_sent
    assert sum(row["calls"] for row in bill_rows(open_snapshot(index.store))) == n_sent, "also in the snapshot alone"


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


def test_a_retry_that_forgets_the_metadata_fields_is_refused(tmp_path: Path) -> None:
    """A build record of a former version says nothing of them, and is retried."""
    index = RefusingIndex(tmp_path, keys={"metadata": {"fields": {"pages": "number"}}}, refused="Brunel")
    with closing(index.endpoint):
        index.begin("engine.txt", "bridge.txt")
        index.config = index.config.model_copy(update={"metadata": MetadataConfig()})
        with pytest.raises(ConfigError, match=r"metadata\.fields\.pages\.type: number → not there"):
            index.retry()
        assert len(index.letters()) == 1
        record = index.store.read_json(BUILD)
        del record["config"]["metadata"]
        index.store.write_json(BUILD, record)
        index.refused = ""
        assert index.retry().complete


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


def test_a_summary_does_not_say_that_no_reply_was_refused_where_one_was_dropped(
    index: RefusingIndex, capfd: pytest.CaptureFixture[str]
) -> None:
    index.refused = "Brunel"
    index.build("bridge.txt", "loom.txt")
    run_drop(index.uri, LetterSelection())
    show(index.build("bridge.txt", "loom.txt").to_dict())
    said = " ".join(capfd.readouterr().out.split())
    assert "1 of 2 documents has no entity" in said
    assert "vectors alone. If entities are missed, set another model in llm.roles.extract." in said


@pytest.mark.parametrize("updated", [False, True])
def test_a_dropped_report_is_no_debt(index: RefusingIndex, updated: bool) -> None:
    """Not in the snapshot that the drop publishes, and a refresh has nothing to do then."""
    if updated:
        index.begin("engine.txt", "loom.txt")
    index.refused = "E1. Newcastle"  # in the request of a report alone
    built = index.add("train.txt") if updated else index.build("train.txt", "engine.txt", "loom.txt")
    assert (built.dead_letters, built.debt["reports"]["units"]) == (1, 1)
    dropped = run_drop(index.uri, LetterSelection()).manifest
    assert (dropped.update.debt_tokens, dropped.update.debt["reports"].units) == (0, 0)
    index.asked.clear()
    again = run_refresh(index.uri, index.config)
    assert (again.snapshot_id, again.debt["reports"]["units"], index.asked) == (dropped.snapshot_id, 0, [])
    assert again.dropped == 1


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
    bench, texts = Bench(tmp_path), ["sun light", "sea water"]
    with pytest.raises(StageFailed):
        bench.run(texts, lambda request: "", max_reject_ratio=0.2)
    stages = [{"folder": event.folder} for event in bench.events if isinstance(event, StageFinished)]
    whole = Bench(tmp_path / "whole")
    chunks = whole.build(texts, max_layers=0).table("chunks").to_pylist()
    wanted = [chunk["chunk_id"] for chunk in chunks]
    places = letter_places(bench.store, {"stages": stages}, None, [*wanted, "a community"])
    assert set(places) == set(wanted)
    for chunk in chunks:
        uri = f"{texts.index(chunk['text'])}.txt"
        expected = {"uri": uri, "record": 0, "position": 0, "start": 0, "end": len(chunk["text"])}
        assert places[chunk["chunk_id"]].items() >= expected.items()


TEXTS = ["moon dew", "sun light", "moon light", "sea water"]


def moonless(request: ChatRequest) -> str | None:
    if task_of(request) == "extract-graph" and "moon" in between(request, "text"):
        raise RequestRejected("the content filter was triggered")
    return None


def noted(bench: Bench, texts: list[str]) -> list[str]:
    """Build, with a record; return the units of the dead letters."""
    found = bench.build(texts, moonless, max_layers=0)
    given = BuildArguments("index", ("corpus",), "", {})
    record = BuildRecord(bench.store, "index", given, Config(), {"dim": 32}, {})
    for event in bench.events:
        record(event)
    record.close("done", snapshot=found.manifest.snapshot_id)
    return [row["unit_id"] for row in rows(found, "rejects")]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.fixture
def units(bench: Bench) -> list[str]:
    """Two dead letters in the index."""
    return noted(bench, TEXTS)


def drop(store: Store, *units: str, stage: str | None = None) -> DropResult:
    with BuildLock(Store(store.root)) as lock:
        return drop_letters(store, lock, LetterSelection(stage, units, "enough"))


def served(store: Store) -> tuple[str | None, bool, set[str]]:
    """Return the current snapshot, whether it is complete, and the units that are dropped in it."""
    snapshot = open_snapshot(store)
    return current_id(store), snapshot.manifest.complete, {row["unit_id"] for row in rows(snapshot, "dropped")}


def test_the_snapshot_is_published_with_the_loss(bench: Bench, units: list[str]) -> None:
    before = current_id(bench.store)
    dropped = drop(bench.store, units[0])
    assert dropped.manifest
    assert ([letter["unit_id"] for letter in dropped.letters], dropped.n_open) == ([units[0]], 1)
    assert served(bench.store) == (dropped.manifest.snapshot_id, False, {units[0]})
    assert dropped.current == dropped.manifest.snapshot_id != before
    assert last_build(bench.store)["snapshot"] == dropped.current  # type: ignore[index]
    rest = drop(bench.store)
    assert served(bench.store) == (rest.current, True, set(units))
    assert bench.build(TEXTS, max_layers=0).manifest.snapshot_id == rest.current, "as a build publishes it"
    with pytest.raises(InputError, match="no dead letters to drop"):
        drop(bench.store)


@pytest.mark.parametrize("again", ["the same", "another"])
def test_killed_anywhere_the_next_drop_makes_it_good(
    bench: Bench, units: list[str], tmp_path: Path, again: str
) -> None:
    whole = tmp_path / "whole"
    shutil.copytree(bench.store.root, whole)
    chosen = units if again == "the same" else units[:1]
    undisturbed = MortalStore(str(whole), None)
    drop(undisturbed, *chosen)
    changed = undisturbed.changed
    if again == "another":
        drop(Store(str(whole)))
    for write, path in enumerate(changed, 1):
        if "snapshots/" in path and not path.endswith("manifest.json"):
            continue  # a part of what nobody opens before its manifest is there
        index = tmp_path / f"killed-{write}"
        shutil.copytree(bench.store.root, index)
        with pytest.raises(Killed):
            drop(MortalStore(str(index), write), *chosen)
        store = Store(str(index))
        if path == "build.json" and again == "the same":  # its last write
            with pytest.raises(InputError, match="no dead letters to drop"):
                drop(store, *chosen)
        else:
            made = drop(store, *(chosen if again == "the same" else ()))
            assert (made.n_open, made.current) == (0, current_id(Store(str(whole))))
        assert served(store) == (current_id(Store(str(whole))), True, set(units))
        assert last_build(store)["snapshot"] == current_id(store)  # type: ignore[index]
    assert changed[0] == DROPS
    assert changed[-3:] == ["current", "snapshot_history.json", "build.json"]
    assert any(path.endswith("manifest.json") for path in changed)


def test_another_snapshot_that_is_served_stays(bench: Bench) -> None:
    other = bench.build(["sun light"], max_layers=0).manifest.snapshot_id
    (unit,) = noted(bench, TEXTS[1:])
    make_current(bench.store, other)
    dropped = drop(bench.store, unit)
    assert dropped.manifest is not None
    assert dropped.manifest.complete
    assert dropped.current == current_id(bench.store) == other
    with pytest.raises(InputError, match="no dead letters to drop"):
        drop(bench.store)


def test_a_mistyped_unit_is_no_decision(bench: Bench, units: list[str]) -> None:
    with pytest.raises(InputError, match=r"no open dead letter is of unit nobody; there are 2, of: extract"):
        drop(bench.store, units[0], "nobody")
    with pytest.raises(InputError, match="stage 'sumarise'"):
        drop(bench.store, stage="sumarise")
    drop(bench.store, units[0])
    with pytest.raises(InputError, match=f"no open dead letter is of unit {units[0]}; there are 1"):
        drop(bench.store, units[0])
    assert set(load_drops(bench.store)) == {("extract", units[0])}
