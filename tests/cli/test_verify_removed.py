"""`hirag-dist remove --verify`, and how `status` and `prune` treat an unfinished forgetting."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
import yaml

from hirag_dist.application.forget import run_forget
from hirag_dist.cli._command_line import run
from hirag_dist.config.model import Config
from hirag_dist.storage.layout import FORGET, HISTORY
from tests.removal_builds import KEPT, REMOVED, RemovalBench

SETTINGS = {"execution": {"executor": "inline"}, "clustering": {"target_size": 4}}


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RemovalBench]:
    """Built with the built-in model, so that no reply is stored."""
    made = RemovalBench(tmp_path_factory.mktemp("index"), Config.model_validate(SETTINGS))
    made.build(KEPT | REMOVED)
    made.build(KEPT)
    return made


def command(bench: RemovalBench, capfd: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    config = bench.folder / "hirag.yaml"
    config.write_text(yaml.safe_dump(SETTINGS))
    options = ["--index", bench.store.root] + (["--config", str(config)] if arguments[0] != "status" else [])
    code = run([*arguments, *options])
    return code, capfd.readouterr().out


def test_what_is_left_is_a_table_and_an_exit_code_of_its_own(
    bench: RemovalBench, capfd: pytest.CaptureFixture[str]
) -> None:
    code, said = command(bench, capfd, "remove", "--verify", "patient.txt")
    assert code == 6
    assert "documents.uri" in said
    table, more, _ = said.partition(" more; --json lists all.")
    assert more
    assert len(re.findall(r"  \d+  \S", table)) == 20, "rows, by their counts"
    assert f"`hirag-dist remove ID… --forget --index {bench.store.uri}`" in said
    assert f"`hirag-dist prune --index {bench.store.uri}`" in said
    code, said = command(bench, capfd, "remove", "--verify", "patient.txt", "--snapshot-only")
    assert (code, said) == (0, "Nothing in the current snapshot derives from 1 document.\n")


def test_an_id_that_no_snapshot_knows_is_searched_for_and_proves_no_more(
    bench: RemovalBench, capfd: pytest.CaptureFixture[str]
) -> None:
    code, said = command(bench, capfd, "remove", "--verify", "nothing")
    assert code == 6
    assert "Not searched: the texts, names and vectors of nothing: no snapshot" in said
    assert "give it with --input FILE" in said
    assert f"Nothing in {bench.store.uri} that was searched has the id nothing.\n" in said
    bench.store.write_json("work/left.json", {"document": "nothing"})
    code, said = command(bench, capfd, "remove", "--verify", "nothing")
    bench.store.delete("work/left.json")
    assert code == 6
    assert "work/left.json" in said
    assert "that was searched has the id" not in said


def test_status_shows_an_unfinished_forgetting_and_prune_continues_it(
    bench: RemovalBench, capfd: pytest.CaptureFixture[str]
) -> None:
    done = run_forget(bench.store.uri, bench.config, ["patient.txt"])
    assert len(done.waiting) == 1
    assert (
        f"`hirag-dist remove --forget --index {bench.store.uri}`"
        in command(bench, capfd, "remove", "--verify", "patient.txt")[1]
    )
    code, said = command(bench, capfd, "status")
    assert code == 0
    assert "1 removed document is still to be forgotten" in said
    assert "1 old snapshot with them to be removed by `prune`" in " ".join(said.split())
    assert "still to be forgotten" in command(bench, capfd, "prune")[1]
    history = bench.store.read_json(HISTORY)
    history["history"] = [[own, since - 90_000] for own, since in history["history"]]
    bench.store.write_json(HISTORY, history)
    assert "1 removed document: forgotten." in command(bench, capfd, "prune")[1]
    assert not bench.store.exists(FORGET)
    (bench.folder / "patient.txt").write_text(REMOVED["patient.txt"])
    given = ("--input", str(bench.folder / "patient.txt"))
    assert command(bench, capfd, "remove", "--verify", *given) == (
        0,
        f"Nothing in {bench.store.uri} derives from 1 document.\n",
    )
