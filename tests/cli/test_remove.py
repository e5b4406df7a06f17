"""`remove`, `remove --verify` and `prune`: what they select, show, remove and forget."""

from __future__ import annotations

import json
import re
import time
import uuid
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from pymilvus import MilvusClient
from typer.testing import CliRunner

from hirag_dist.application.forget import run_forget
from hirag_dist.cli._command_line import add_command, run
from hirag_dist.config.model import Config, VectorsConfig
from hirag_dist.errors import IndexBusy
from hirag_dist.retrieval.vector_index.milvus import collection_name, open_milvus_lite
from hirag_dist.retrieval.vector_index.milvus.collection import resolved
from hirag_dist.storage.layout import BUILD, FORGET, HISTORY
from hirag_dist.storage.lock import BuildLock
from hirag_dist.storage.snapshot.reader import open_snapshot
from hirag_dist.storage.store import Store
from tests.cli.update_commands import SETTINGS, CommandBench, indexed_bench
from tests.removal_builds import KEPT, REMOVED, RemovalBench
from tests.storage import snapshots

app = typer.Typer()
add_command(app, "prune")


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)  # where no hirag.yaml is


@pytest.fixture
def ids(store: Store) -> list[str]:
    """Two snapshots; the second one took over long ago."""
    made = []
    for _ in range(2):
        made.append(snapshots.publish(store, snapshots.tiny_tables(uuid.uuid4().hex)).snapshot_id)
        store.write_json(
            HISTORY, {"history": [[own_id, 1_700_000_000 + at] for at, own_id in enumerate(made, start=1)]}
        )
    return made


def pruned(store: Store, *options: str) -> dict[str, Any]:
    result = CliRunner().invoke(app, ["--index", store.root, "--json", "--keep", "0", *options])
    if result.exception is not None:
        raise result.exception
    return dict(json.loads(result.stdout))


def test_snapshots_and_their_collections_in_lite_go(store: Store, ids: list[str]) -> None:
    for own_id in ids:
        open_milvus_lite(open_snapshot(store, own_id), VectorsConfig()).close()
    said = pruned(store, "--dry-run")
    assert said["dry_run"]
    assert [one["snapshot"] for one in said["removed"]] == [ids[0]]
    assert said["removed"][0]["retired_at"] == "2023-11-14T22:13:22+00:00"
    assert said["collections"] == [collection_name(ids[0])]
    assert store.names("snapshots") == sorted(ids)
    assert pruned(store) == said | {"dry_run": False}
    assert store.names("snapshots") == [ids[1]]
    held = MilvusClient(str(Path(store.root) / "milvus" / "milvus.db"))
    assert held.list_collections() == [resolved(held, collection_name(ids[1]))]
    held.close()
    assert pruned(store)["removed"] == pruned(store)["collections"] == []


def test_snapshots_that_stay_say_why(store: Store, ids: list[str]) -> None:
    ids.append(snapshots.publish(store, snapshots.tiny_tables(uuid.uuid4().hex)).snapshot_id)
    times = [(own_id, 1_700_000_000 + at) for at, own_id in enumerate(ids)]
    store.write_json(HISTORY, {"history": times})

    def said(*options: str) -> str:
        return CliRunner().invoke(app, ["--index", store.root, "--dry-run", *options]).stdout

    assert "2 snapshots stay: 1 is current, 1 by --keep 1." in said()
    store.write_json(HISTORY, {"history": [*times[:-1], (ids[-1], time.time())]})
    assert "3 snapshots stay: 1 is current, 1 by --keep 1, 1 replaced less than 9000d ago" in said(
        "--older-than", "9000d"
    )
    store.write_json(BUILD, {"state": "done", "started_at": "", "snapshot": ids[1]})
    assert "2 snapshots stay: 1 is current, 1 is that of the last build." in said("--keep", "0")


def test_not_while_a_build_runs(store: Store, ids: list[str]) -> None:
    with BuildLock(store):
        held = store.read_json("run.lock")
        store.write_json("run.lock", held | {"host": "another"})
        with pytest.raises(IndexBusy):
            pruned(store)
    assert store.names("snapshots") == sorted(ids)


ROWS = {"rows.jsonl": '{"text": "James Watt met Matthew Boulton."}\n{"text": "Soho lies near Birmingham."}'}


@pytest.fixture
def bench(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> CommandBench:
    return indexed_bench(tmp_path, capfd, KEPT | REMOVED | ROWS)


def test_a_dry_run_shows_the_selection_and_changes_nothing(bench: CommandBench) -> None:
    before = bench.snapshot().manifest.snapshot_id
    code, said = bench.run("remove", "--source", "pat*", "--dry-run")
    assert code == 0
    assert said == f"1 document of 5 would be removed: {bench.ids()['patient.txt']} patient.txt patient"
    report = bench.json("remove", bench.ids()["loom.txt"], "--source", "pat*", "--dry-run")
    assert sorted(row["uri"] for row in report["documents"]) == ["loom.txt", "patient.txt"]
    said = bench.run("remove", "--source", "rows*", "--dry-run")[1]
    assert said.startswith("2 documents of 5 would be removed: ")
    assert re.findall("rows.jsonl, record .", said) == ["rows.jsonl, record 1", "rows.jsonl, record 2"]
    assert bench.snapshot().manifest.snapshot_id == before


def test_ids_from_a_file(bench: CommandBench) -> None:
    file = bench.folder / "ids.txt"
    file.write_text(f"\n{bench.ids()['patient.txt']}\n\n")
    code, said = bench.run("remove", "--input-file", str(file))
    assert code == 0
    assert said.startswith("1 document of 5 to remove: ")
    assert "Update 1 since the index was built from nothing: 1 document removed." in said
    assert bench.uris() == ["engine.txt", "loom.txt", "rows.jsonl", "rows.jsonl"]


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


def test_a_search_for_a_document_that_is_still_there_says_so(bench: CommandBench) -> None:
    own, gone = (bench.ids()[name] for name in ("loom.txt", "patient.txt"))
    removes = f"`hirag-dist remove ID… --index {bench.index}` publishes a snapshot without the documents."
    code, said = bench.run("remove", own, "--verify")
    assert code == 6
    assert said == f"Not removed yet: {own}. Next: {removes}"
    bench.write("loom.txt", f"{KEPT['loom.txt']} A former text is not asked about.")
    Path(bench.corpus, "patient.txt").unlink()
    bench.run("index", bench.corpus)
    own = bench.ids()["loom.txt"]
    assert bench.run("remove", own, "--verify") == (6, f"Not removed yet: {own}. Next: {removes}")
    code, said = bench.run("remove", "--verify", own, gone)
    assert code == 6
    assert "documents.uri" in said, "of the document that is gone"
    assert said.endswith(f"Not removed yet: {own}. Next: {removes}")
    text = str(bench.folder / "corpus" / "loom.txt")
    code, said = bench.run("remove", "--verify", gone, "--snapshot-only", "--input", text)
    assert code == 6
    assert said.startswith(f"Nothing in the current snapshot derives from 1 document. Not removed yet: {own}.")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "name the documents"),
        (("nothing", "--forget"), "has nothing: nothing is known of what to forget"),
        ((*"hgfedcba", "--forget"), "has a, b, c, d, e and 3 more: nothing is known of what to forget"),
        (("--source", "*"), "no document with text would be left"),
        (("--now", "x"), "give --forget"),
        (("--verify", "--source", "*"), "name their ids"),
    ],
)
def test_wrong_selections_are_usage_errors(bench: CommandBench, arguments: tuple[str, ...], message: str) -> None:
    code, said = bench.run("remove", *arguments)
    assert code == 2
    assert message in said


@pytest.fixture(scope="module")
def removed(tmp_path_factory: pytest.TempPathFactory) -> RemovalBench:
    """An index from which a document was removed, built with the built-in model, so that no reply is stored."""
    made = RemovalBench(tmp_path_factory.mktemp("index"), Config.model_validate(SETTINGS))
    made.build(KEPT | REMOVED)
    made.build(KEPT)
    (made.folder / "hirag.yaml").write_text(yaml.safe_dump(SETTINGS))
    return made


@pytest.fixture
def forgetting(removed: RemovalBench, capfd: pytest.CaptureFixture[str]) -> CommandBench:
    return CommandBench(removed.folder, capfd)


def test_what_is_left_is_a_table_and_an_exit_code_of_its_own(forgetting: CommandBench) -> None:
    config = str(forgetting.folder / "hirag.yaml")
    assert run(["remove", "--verify", "patient.txt", "--index", forgetting.index, "--config", config]) == 6
    said = forgetting.capfd.readouterr().out
    assert "documents.uri" in said
    table, more, _ = said.partition(" more; --json lists all.")
    assert more
    assert len(re.findall(r"  \d+  \S", table)) == 20, "rows, by their counts"
    assert f"`hirag-dist remove ID… --forget --index {forgetting.index}`" in said
    assert f"`hirag-dist prune --index {forgetting.index}`" in said
    code, said = forgetting.run("remove", "--verify", "patient.txt", "--snapshot-only")
    assert (code, said) == (0, "Nothing in the current snapshot derives from 1 document.")


def test_an_id_that_no_snapshot_knows_is_searched_for_and_proves_no_more(forgetting: CommandBench) -> None:
    code, said = forgetting.run("remove", "--verify", "nothing")
    assert code == 6
    assert "Not searched: the texts, names and vectors of nothing: no snapshot" in said
    assert "give it with --input FILE" in said
    assert said.endswith(f"Nothing in {forgetting.index} that was searched has the id nothing.")
    store = Store(forgetting.index)
    store.write_json("work/left.json", {"document": "nothing"})
    code, said = forgetting.run("remove", "--verify", "nothing")
    store.delete("work/left.json")
    assert code == 6
    assert "work/left.json" in said
    assert "that was searched has the id" not in said


def test_status_shows_an_unfinished_forgetting_and_prune_continues_it(
    removed: RemovalBench, forgetting: CommandBench
) -> None:
    store = removed.store
    done = run_forget(store.uri, removed.config, ["patient.txt"])
    assert len(done.waiting) == 1
    said = forgetting.run("remove", "--verify", "patient.txt")[1]
    assert f"`hirag-dist remove --forget --index {forgetting.index}`" in said
    code, said = forgetting.run("status")
    assert code == 0
    assert "1 removed document is still to be forgotten" in said
    assert "1 old snapshot with them to be removed by `prune`" in said
    assert "still to be forgotten" in forgetting.run("prune")[1]
    history = store.read_json(HISTORY)
    history["history"] = [[own, since - 90_000] for own, since in history["history"]]
    store.write_json(HISTORY, history)
    assert "1 removed document: forgotten." in forgetting.run("prune")[1]
    assert not store.exists(FORGET)
    given = Path(forgetting.write("patient.txt", REMOVED["patient.txt"], "given"), "patient.txt")
    code, said = forgetting.run("remove", "--verify", "--input", str(given))
    assert (code, said) == (0, f"Nothing in {forgetting.index} derives from 1 document.")
