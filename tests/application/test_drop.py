"""Losses accepted by decision: published with the snapshot, whatever an earlier command was killed at."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from hirag_dist.application.retry import DropResult, LetterSelection, drop_letters
from hirag_dist.composition.build_records import BuildArguments, BuildRecord, last_build
from hirag_dist.config.model import Config
from hirag_dist.errors import InputError, RequestRejected
from hirag_dist.execution.stage_results import load_drops
from hirag_dist.storage.layout import DROPS
from hirag_dist.storage.lock import BuildLock
from hirag_dist.storage.snapshot.reader import current_id, open_snapshot
from hirag_dist.storage.snapshot.writer import make_current
from hirag_dist.storage.store import Store
from hirag_dist.types import ChatRequest
from tests.mortal_store import Killed, MortalStore
from tests.toy_builds import Bench, between, rows, task_of

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
    found = noted(bench, TEXTS)
    assert len(found) == 2
    return found


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
    last = last_build(bench.store)
    assert last
    assert last["snapshot"] == dropped.current
    rest = drop(bench.store)
    assert served(bench.store) == (rest.current, True, set(units))
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
            assert made.manifest
            assert (made.n_open, made.current) == (0, made.manifest.snapshot_id)
        assert served(store) == (current_id(Store(str(whole))), True, set(units))
        last = last_build(store)
        assert last
        assert last["snapshot"] == current_id(store)
    assert changed[0] == DROPS
    assert changed[-3:] == ["current", "snapshot_history.json", "build.json"]
    assert any(path.endswith("manifest.json") for path in changed)


def test_another_snapshot_that_is_served_stays(bench: Bench) -> None:
    other = bench.build(["sun light"], max_layers=0).manifest.snapshot_id
    (unit,) = noted(bench, TEXTS[1:])
    make_current(bench.store, other)
    dropped = drop(bench.store, unit)
    assert dropped.manifest
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
