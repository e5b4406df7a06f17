"""`hirag-dist remove`: what it selects, shows, removes and forgets."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.update_commands import CommandBench, indexed_bench
from tests.removal_builds import KEPT, REMOVED


@pytest.fixture
def bench(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> CommandBench:
    return indexed_bench(tmp_path, capfd, KEPT | REMOVED)


def test_a_dry_run_shows_the_selection_and_changes_nothing(bench: CommandBench) -> None:
    before = bench.snapshot().manifest.snapshot_id
    code, said = bench.run("remove", "--source", "pat*", "--dry-run")
    assert code == 0
    assert said == f"1 document of 3 would be removed: {bench.ids()['patient.txt']} patient.txt patient"
    report = bench.json("remove", bench.ids()["loom.txt"], "--source", "pat*", "--dry-run")
    assert sorted(row["uri"] for row in report["documents"]) == ["loom.txt", "patient.txt"]
    assert bench.snapshot().manifest.snapshot_id == before


def test_ids_from_a_file(bench: CommandBench) -> None:
    file = bench.folder / "ids.txt"
    file.write_text(f"\n{bench.ids()['patient.txt']}\n\n")
    code, said = bench.run("remove", "--input-file", str(file))
    assert code == 0
    assert said.startswith("1 document of 3 to remove: ")
    assert "Update 1 since the index was built from nothing: 1 document removed." in said
    assert bench.uris() == ["engine.txt", "loom.txt"]


def test_forget_after_remove_and_at_once(bench: CommandBench) -> None:
    gone = bench.ids()["patient.txt"]
    bench.json("remove", gone)
    code, said = bench.run("remove", gone, "--forget")
    assert code == 0
    assert "1 document forgotten, except in 1 old snapshot within the grace period" in said
    report = bench.json("remove", "--forget", "--now")
    assert report["forgotten"]["complete"]
    again = bench.ids()["loom.txt"]
    report = bench.json("remove", "--source", "loom.txt", "--forget", "--now")
    assert report["update"]["documents"]["removed"] == 1
    assert report["forgotten"]["documents"] == [again]
    code, said = bench.run("remove", "--verify", again)
    assert (code, f"that was searched has the id {again}." in said) == (6, True)  # no snapshot knows its text any more


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "name the documents"),
        (("nothing", "--forget"), "has nothing: nothing is known of what to forget"),
        (("--source", "*"), "no document with text would be left"),
        (("--now", "x"), "give --forget"),
    ],
)
def test_wrong_selections_are_usage_errors(bench: CommandBench, arguments: tuple[str, ...], message: str) -> None:
    code, said = bench.run("remove", *arguments)
    assert code == 2
    assert message in said
