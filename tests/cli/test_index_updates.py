"""`index`, `add` and `refresh` on an index that exists."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from hirag_dist.cli._command_line import run
from hirag_dist.composition.build_records import last_build
from hirag_dist.indexing.budget import known_bill
from hirag_dist.storage.store import Store
from hirag_dist.storage.store_errors import store_error
from hirag_dist.testing.simulator import SimulatorOptions
from tests.cli.update_commands import SETTINGS, CommandBench, command_bench, indexed_bench
from tests.removal_builds import REMOVED
from tests.simulator_thread import SimulatorThread

PATIENT = REMOVED["patient.txt"]


@pytest.fixture
def bench(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> CommandBench:
    return indexed_bench(tmp_path, capfd)


def extracted(usage: list[dict[str, Any]]) -> int:
    return sum(row["calls"] for row in usage if row["stage"] == "extract")


NO_MORE = ("--set", "update.max_ratio=0")  # nothing is spent beyond the extraction


def test_the_bill_of_an_update(bench: CommandBench) -> None:
    before, _ = known_bill(bench.snapshot())
    bench.write("patient.txt", PATIENT)
    code, said = bench.run("index", bench.corpus, *NO_MORE)
    assert code == 0
    assert "Update 1 since the index was built from nothing: 1 document added." in said
    assert "times the extraction of the documents that came, changed or went" in said
    assert " by rules." in said
    note, n_reports = bench.snapshot().manifest.notes["update"], bench.snapshot().manifest.counts["reports"]
    n_made = sum(note["reports"][name] for name in ("written", "kept", "lists"))
    assert n_made + note["debt"]["reports"]["units"] == n_reports
    assert "Debt: " in said
    after, is_whole = known_bill(bench.snapshot())
    assert is_whole
    assert [extracted(rows) for rows in (before, after)] == [2, 3], "a call a document, before and with the update"
    code = run(["status", "--cost", "--index", bench.index])
    assert " 3 " in next(line for line in bench.capfd.readouterr().out.splitlines() if "extract" in line)
    code, said = bench.run("index", bench.corpus, *NO_MORE)
    assert said.startswith("Nothing changed: the documents are those of snapshot ")
    assert "This run sent 0 calls, 0 tokens: $0.00, in " in said
    assert "`hirag-dist refresh` pays it." in said
    owed = bench.json("index", bench.corpus, *NO_MORE)["debt"]
    assert sum(part["units"] for part in owed.values()) > 0
    said = bench.run("refresh", "--max-tokens", "1")[1]
    assert "stays as it is: no due text fits into the budget of 1 token." in said
    assert "`hirag-dist refresh` pays it." in said


def test_the_documents_of_a_former_snapshot_are_served_by_it_again_also_where_the_current_one_is_damaged(
    bench: CommandBench, caplog: pytest.LogCaptureFixture
) -> None:
    first = bench.snapshot().manifest.snapshot_id
    patient = Path(bench.write("patient.txt", PATIENT), "patient.txt")
    bench.run("index", bench.corpus)
    second = bench.snapshot().manifest.snapshot_id
    (Path(bench.index) / "snapshots" / second / "chunks.parquet").unlink()
    code, said = bench.run("index", bench.corpus)
    assert (code, bench.snapshot().manifest.snapshot_id) == (0, second)
    assert f". Snapshot {second} was written again, and is whole." in said, "which is not nothing"
    caplog.clear()
    patient.unlink()
    said = bench.run("index", bench.corpus)[1]
    assert said.startswith(f"The documents are those of snapshot {first} again, which is served now;")
    (Path(bench.index) / "snapshots" / first / "chunks.parquet").write_bytes(b"")
    bench.write("patient.txt", PATIENT)
    code, said = bench.run("index", bench.corpus)
    assert code == 0
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert f"snapshots/{first}/chunks.parquet" in said
    assert f". Snapshot {second}, with the same documents, is served now." in said
    assert bench.snapshot().manifest.snapshot_id == second


def test_add_keeps_what_the_index_has_and_replaces_what_has_the_same_path(bench: CommandBench) -> None:
    more = bench.write("patient.txt", PATIENT, "more")
    bench.write("loom.txt", "Joseph Jacquard built a loom in Paris.", "more")
    report = bench.json("add", more)
    assert report["update"]["documents"] == {"added": 1, "changed": 1, "removed": 0}
    assert bench.uris() == ["engine.txt", "loom.txt", "patient.txt"]
    assert bench.json("add", more)["up_to_date"]


@pytest.fixture
def paid_bench(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Iterator[CommandBench]:
    """An index of a simulated endpoint with a price."""
    made = command_bench(tmp_path, capfd)
    with SimulatorThread(SimulatorOptions(listen="127.0.0.1:0")) as url:
        chat = {"base_url": url, "model": "m", "api_key": "k", "price": {"input": 1.0, "output": 1.0}}
        roles = dict.fromkeys(("extract", "summarise", "report"), "chat")
        settings = SETTINGS | {"llm": {"endpoints": {"chat": chat}, "roles": roles}}
        (tmp_path / "hirag.yaml").write_text(yaml.safe_dump(settings))
        made.json("index", made.corpus)
        yield made


def test_plan_says_how_long_an_update_takes_and_refresh_pays_its_debt_within_a_budget(paid_bench: CommandBench) -> None:
    bench = paid_bench
    bench.write("patient.txt", PATIENT)
    said = bench.run("plan", bench.corpus, "--tokens-per-s", "10")[1]
    assert re.search(r"tokens a second: the update takes \d+ seconds\.", said)
    assert re.search(r" total \d+ [\d,]+ [\d,]+ \$0\.00\d+ \d+ s Times are estimates", said)
    debt = bench.json("index", bench.corpus, *NO_MORE)["update"]["debt"]
    assert sum(part["units"] for part in debt.values()) > 0
    kept = bench.json("refresh", "--max-usd", "0.00001")["update"]
    assert kept["budget_tokens"] == 10
    assert (kept["summaries"]["written"], kept["reports"]["written"]) == (0, 0)
    assert sum(part["units"] for part in kept["debt"].values()) >= sum(part["units"] for part in debt.values())
    code, said = bench.run("refresh", "--max-tokens", "1000000")
    assert code == 0
    assert "no document changed" in said
    assert "Debt: none." in said


def test_an_input_that_is_not_there_is_refused_before_the_models_are_asked(bench: CommandBench) -> None:
    record = last_build(Store(bench.index))
    for command in ("index", "add"):
        for wrong in ("nowhere", "nowhere/*.txt"):
            code, said = bench.run(command, bench.corpus, wrong)
            assert (code, said) == (2, f"hirag-dist: {wrong} does not exist: check the path, or quote a glob")
        code, said = bench.run(command, "")
        assert (code, said) == (2, "hirag-dist: an INPUT is an empty text: name a file, folder, glob or URI")
    assert last_build(Store(bench.index)) == record, "without an attempt, which probes of the models would leave"


@pytest.mark.parametrize("command", ["add", "refresh", "remove"])
def test_without_an_index_no_folder_is_made(command: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    bench = command_bench(tmp_path, capfd)
    arguments = {"add": [bench.corpus], "refresh": [], "remove": ["x"]}[command]
    code, said = bench.run(command, *arguments)
    assert code == 1
    assert "holds no index" in said
    assert not Path(bench.index).exists()


OTHER = ("--set", "llm.endpoints.builtin-embedder.kind=hashing", "--set", "llm.endpoints.builtin-embedder.dim=64")


def test_another_embedder_is_taken_without_a_call_once_it_is_asked_for(bench: CommandBench) -> None:
    record, former = last_build(Store(bench.index)), bench.snapshot().manifest.embedder
    for command in ("index", "add", "plan"):
        code, said = bench.run(command, bench.corpus, *OTHER)
        assert code == 2
        assert "hirag-dist index --reembed" in said
        assert "--rebuild" in said
    assert last_build(Store(bench.index)) == record, "a refused run leaves the record of the last build"
    counts = bench.snapshot().manifest.counts
    n_texts = counts["chunks"] + counts["entities"]
    planned = bench.json("plan", "--reembed", *OTHER)
    assert planned["texts"] == n_texts
    assert planned["cost_usd"] == 0
    code, said = bench.run("index", "--reembed", *OTHER)
    assert code == 0
    assert f"{n_texts} texts to embed, about " in said
    assert "vectors of documents changed, their texts did not" in said
    assert "This run sent 0 calls" in said
    assert (bench.snapshot().manifest.embedder, bench.snapshot().manifest.dim) == ("hashing-64", 64)
    assert run(["status", "--index", bench.index]) == 0
    assert f"were made with those of {former}:" in bench.capfd.readouterr().out
    assert "Nothing to embed" in bench.run("plan", "--reembed", *OTHER)[1]
    assert bench.json("index", "--reembed", *OTHER)["up_to_date"]
    bench.write("patient.txt", PATIENT)
    assert bench.json("index", bench.corpus, *OTHER)["update"]["number"] == 2
    assert bench.run("query", "Who treated the patient?", *OTHER)[0] == 0


def test_new_vectors_take_no_input_and_other_commands_need_one(bench: CommandBench) -> None:
    for arguments, words in (
        (["index", bench.corpus, "--reembed"], "leave INPUT out"),
        (["index", "--reembed", "--rebuild"], "--rebuild cannot go with --reembed"),
        (["index", "--reembed", "--text-field", "x"], "--text-field cannot go with --reembed"),
        (["index"], "give INPUT"),
        (["plan"], "give INPUT"),
        (["plan", "--reembed", "--add"], "--add cannot go with --reembed"),
        (["plan", "--reembed", "--id-field", "x"], "--id-field cannot go with --reembed"),
    ):
        code, said = bench.run(*arguments)
        assert (code, words in said) == (2, True), said


def test_plan_of_an_update(bench: CommandBench) -> None:
    said = bench.run("plan", bench.corpus)[1]
    assert said.startswith("Nothing to pay: the documents of INPUT are those of snapshot ")
    assert "Other paths, titles, ids or values of metadata are published without a call." in said
    bench.write("patient.txt", PATIENT)
    code, said = bench.run("plan", bench.corpus)
    assert code == 0
    assert said.startswith("1 added, 0 changed, 0 removed; the index then has 3 documents. 1 chunk to extract")
    assert "Bound: " in said
    assert "takes" not in said
    assert re.search(r" total \d+ [\d,]+ [\d,]+ \$0\.00 – No time is estimated for built-in models\.", said)
    report = bench.json("plan", bench.corpus)
    assert report["changes"] == {"added": 1, "changed": 0, "removed": 0}
    assert bench.run("plan", bench.corpus, "--set", "chunk_tokens=500")[1].startswith("The index would be built")


def test_plan_reads_the_fields_that_index_reads(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    rows = '{"body": "Ada Lovelace wrote notes.", "grp": "staff", "head": "Notes", "key": "n1"}\n'
    bench = command_bench(tmp_path, capfd, {"rows.jsonl": rows})
    fields = ("--text-field", "body", "--label-field", "grp", "--title-field", "head", "--id-field", "key")
    bench.json("index", bench.corpus, *fields)
    changes = bench.json("plan", bench.corpus, *fields)["changes"]
    assert changes == {"added": 0, "changed": 0, "removed": 0}


def test_metadata_fields_that_are_declared_no_longer_are_named_and_so_are_new_ones(
    bench: CommandBench, caplog: pytest.LogCaptureFixture
) -> None:
    declared = ("--set", "metadata.fields.kind=string")
    said = bench.run("plan", bench.corpus, *declared)[1]
    assert said.startswith("The declared metadata fields are not those of the index: new: kind. No text changed: ")
    assert bench.json("index", bench.corpus, *declared)["update"]["other_changes"] == ["metadata"]
    assert not caplog.records
    assert "Nothing to pay: " in bench.run("plan", bench.corpus, *declared)[1]
    said = bench.run("plan", bench.corpus)[1]
    assert "not those of the index: gone: kind. Give a --config that declares those that should stay. No text" in said
    changed = bench.json("plan", bench.corpus, "--set", "metadata.fields.kind=number")["metadata_fields"]
    assert changed == {"changed": ["kind"]}
    for command in (("refresh",), ("add", bench.corpus)):
        bench.json("index", bench.corpus, *declared)
        caplog.clear()
        assert bench.run(*command)[0] == 0
        assert "the index has the metadata fields kind, which this configuration does not declare:" in caplog.text


def test_an_index_that_cannot_be_written_answers_and_is_not_built(
    bench: CommandBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Store, path: str, *rest: object, **more: object) -> None:
        raise store_error(PermissionError(errno.EACCES, ""), "write", f"{self.uri}/{path}")

    for name in ("write_bytes", "append", "write_table", "write_json", "replace", "delete"):
        monkeypatch.setattr(Store, name, refuse)
    code, said = bench.run("query", "Who designed the engine?")
    assert code == 0
    assert "Answer" in said
    code, said = bench.run("index", bench.corpus)
    assert (code, said) == (
        1,
        f"hirag-dist: {bench.index} cannot be an index folder: permission denied; choose another",
    )
