"""Output of `status` about stages, updates and documents."""

from __future__ import annotations

import json
import re
from itertools import count
from pathlib import Path

import pytest

from hirag_dist.cli._command_line import run
from hirag_dist.composition.build_records import BuildArguments, BuildRecord
from hirag_dist.config.model import Config
from hirag_dist.execution.events import CallsProgress, StageFinished, StageStarted, UsageRecorded
from hirag_dist.llm.limits.protocol import CallTotals
from hirag_dist.llm.usage import UsageMeter
from hirag_dist.schemas import REPORT_INPUTS, SUMMARIES
from hirag_dist.storage.layout import MANIFEST
from hirag_dist.storage.snapshot.reader import current_id, read_current
from hirag_dist.storage.snapshot.writer import make_current
from hirag_dist.storage.store import Store
from hirag_dist.types import ChatRequest
from tests.altered_snapshots import altered
from tests.cli.update_commands import CommandBench, indexed_bench
from tests.scripted_endpoint import run_command
from tests.toy_builds import Bench, between, task_of


@pytest.fixture
def bench(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> CommandBench:
    return indexed_bench(tmp_path, capfd)


def run_in(bench: CommandBench, *arguments: str) -> tuple[int, str]:
    """Run a command that takes no configuration."""
    code = run([*arguments, "--index", bench.index])
    said = bench.capfd.readouterr()
    return code, " ".join((said.out + said.err).split())


def test_documents_are_listed_and_removed(bench: CommandBench) -> None:
    uri, own = next(iter(sorted(bench.ids().items())))
    code, said = run_in(bench, "status", "--documents")
    assert code == 0
    assert said.startswith(f"{len(bench.ids())} documents")
    assert own in said
    code, said = run_in(bench, "status", "--documents", "--source", uri)
    assert (code, said.split(" id path", 1)[0]) == (0, "1 document")
    assert bench.run("remove", own)[0] == 0
    assert uri not in bench.uris()


def test_the_update_that_made_the_current_snapshot_and_its_debt(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fresh = Bench(tmp_path).build(["moon dew sea"], max_layers=0)
    note = {
        "number": 2,
        "base": "before",
        "documents": {"added": 1, "changed": 0, "removed": 0},
        "debt": {"summaries": {"units": 0, "tokens": 0}, "reports": {"units": 3, "tokens": 1200}},
    }
    state = {"summaries": SUMMARIES.empty_table(), "report_inputs": REPORT_INPUTS.empty_table()}
    updated = altered(fresh, state, {"update": note})
    make_current(fresh.store, updated.manifest.snapshot_id, read_current(fresh.store))
    assert run(["status", "--index", str(tmp_path / "index")]) == 0
    said = capsys.readouterr().out
    assert "Update 2 since the index was built from nothing: 1 document added. Debt: 3 reports are due" in said
    assert run(["inspect", "--index", str(tmp_path / "index")]) == 0
    assert "Debt: 3 reports are due, about 1.2k tokens" in capsys.readouterr().out


def test_letters_are_grouped_by_reason_with_document_place_and_reply(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def script(request: ChatRequest) -> str | None:
        text = between(request, "text") if task_of(request) == "extract-graph" else ""
        return "" if "sun" in text else "Sure, here it is" if "moon" in text or "dew" in text else None

    Bench(tmp_path).build(["sun light", "moon light", "dew light", "sea water"], script, max_layers=0)
    index = str(tmp_path / "index")
    assert run(["status", "--letters", "--index", index]) == 0
    lines = capfd.readouterr().out.splitlines()
    start = lines.index("Dead letters: 3 open, 0 dropped")
    first, *places = lines[start + 1 : start + 4]
    assert first.startswith("2 × the reply holds no record in the requested form (extract 2). To change: set llm.")
    assert {line.partition(", chunk 1, characters 0 to ")[0] for line in places} == {
        f"  extract: {number}.txt" for number in (1, 2)
    }
    assert all(line.endswith('2 tries: "Sure, here it is"') for line in places)
    assert lines[start + 4].startswith("1 × the reply is empty (extract 1). To change: set another llm.endpoints.")
    assert run(["status", "--index", index]) == 0
    assert "1.txt" not in capfd.readouterr().out
    assert run(["status", "--json", "--index", index]) == 0
    report = json.loads(capfd.readouterr().out)
    assert [(group["count"], group["stages"]) for group in report["letters_by_reason"]] == [
        (2, {"extract": 2}),
        (1, {"extract": 1}),
    ]
    letter = next(letter for letter in report["dead_letters"] if letter["reply"])
    assert {"request", "reply", "place"} <= set(letter)
    assert (letter["place"]["position"], letter["place"]["start"]) == (0, 0)


def test_a_record_that_cannot_be_read_has_one_number_and_a_corrected_file_helps(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Record 2 of the CSV file, whose header is not counted, has no text."""
    (tmp_path / "rows.csv").write_text(
        "id,text\n1,James Watt met Matthew Boulton in Soho.\n2,\n3,Soho lies near Birmingham.\n"
    )
    config = tmp_path / "hirag.yaml"
    config.write_text("execution: {executor: inline}")
    index, given = str(tmp_path / "index"), [str(tmp_path / "rows.csv"), "--config", str(config)]
    assert run(["plan", *given]) == 0
    assert "rows.csv, record 2:" in " ".join(capfd.readouterr().out.split())
    assert run(["index", *given, "--index", index]) == 3
    said = " ".join(capfd.readouterr().out.split())
    assert "(read 1). To change: correct the file, or the option that the reason names, and run the same" in said
    assert f"`hirag-dist retry --drop --index {index}` accepts the loss." in said
    assert "asks again" not in said
    assert run(["status", "--letters", "--documents", "--index", index]) == 0
    listed = capfd.readouterr().out
    assert "rows.csv, record 1 " in listed
    assert "rows.csv, record 3 " in listed
    assert run(["status", "--letters", "--index", index]) == 0
    assert "  read: rows.csv, record 2, 1 try" in capfd.readouterr().out


def test_a_build_says_how_many_dead_letters_it_does_not_list(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    (corpus / "watt.txt").write_text("James Watt met Matthew Boulton in Soho.")
    for name in ("a.json", "b.jsonl", "c.doc", "d.xls", "e.ppt", "f.gz", "g.csv", "h.md"):
        (corpus / name).write_bytes(b"{broken" if name != "h.md" else bytes(range(256)) * 8)
    config, index = tmp_path / "hirag.yaml", str(tmp_path / "index")
    config.write_text("execution: {executor: inline}")
    assert run(["index", str(corpus), "--config", str(config), "--index", index]) == 3
    said = capfd.readouterr().out
    n_letters = int(re.findall(r"Incomplete: (\d+) dead letters", said)[0])
    shown = [int(count) for count in re.findall(r"^  (\d+) × ", said, re.MULTILINE)]
    n_more, n_reasons = map(int, re.findall(r"  and (\d+) more, for (\d+) other reasons?; `hirag-dist status", said)[0])
    assert len(shown) == 5
    assert sum(shown) + n_more == n_letters
    assert run(["status", "--index", index]) == 0
    assert len(re.findall(r"^\d+ × ", capfd.readouterr().out, re.MULTILINE)) == len(shown) + n_reasons


def test_the_first_record_of_a_file_has_its_number_and_a_whole_file_has_none(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "rows.jsonl").write_text('{broken\n{"text": "James Watt met Matthew Boulton in Soho."}\n')
    (tmp_path / "list.json").write_text("{broken")
    config = tmp_path / "hirag.yaml"
    config.write_text("execution: {executor: inline}")
    index = str(tmp_path / "index")
    given = [*(str(tmp_path / name) for name in ("rows.jsonl", "list.json")), "--config", str(config)]
    assert run(["plan", *given]) == 0
    said = " ".join(capfd.readouterr().out.split())
    assert "rows.jsonl, record 1: line 1 is not valid JSON" in said
    assert "list.json: not valid JSON" in said
    assert run(["index", *given, "--index", index]) == 3
    capfd.readouterr()
    assert run(["status", "--letters", "--index", index]) == 0
    said = capfd.readouterr().out
    assert "  read: rows.jsonl, record 1, 1 try" in said
    assert "  read: list.json, 1 try" in said


def test_a_snapshot_is_chosen_for_documents_or_a_bill(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["status", "--index", str(tmp_path), "--snapshot", "other"]) == 2
    assert "give --documents or --cost with it" in capsys.readouterr().err
    assert run(["status", "--index", str(tmp_path), "--source", "*.txt"]) == 2
    assert "--source selects documents: give --documents with it" in capsys.readouterr().err


def test_the_bill_of_a_first_build_that_was_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    config, meter = Config(), UsageMeter()
    meter.use("extract", "m", "big").calls += 7
    record = BuildRecord(Store(str(tmp_path)), "index", BuildArguments.index(["corpus"], config), config, {}, {})
    record(UsageRecorded("extract", meter))
    record.close("interrupted")
    command = ["status", "--cost", "--index", str(tmp_path)]
    assert run(command) == 0
    assert capfd.readouterr().out.startswith("Bill so far of the unfinished run: ")
    code, report = run_command(command, monkeypatch, capfd)
    assert (code, report["snapshot"], [row["calls"] for row in report["usage"]]) == (0, None, [7])


def test_the_bill_of_a_run_and_that_of_the_index_have_headings_of_their_own(bench: CommandBench) -> None:
    snapshot = current_id(Store(bench.index))
    assert f"Bill of the run that made snapshot {snapshot}: " in run_in(bench, "status")[1]
    assert run_in(bench, "status", "--cost")[1].startswith("Bill since the index was built from nothing: ")


def test_a_killed_build_shows_its_replies_and_the_last_one_that_finished(
    bench: CommandBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = count(step=10.0)  # seconds: each event is written
    given = BuildArguments.index(["corpus"], Config())
    record = BuildRecord(Store(bench.index), "index", given, Config(), {}, {}, clock=lambda: next(clock))
    record(StageStarted("extract", 1, 0, 60, 0, "work/extract/key"))
    record(CallsProgress("extract", CallTotals(answered=12, tokens=340)))
    _, said = run_in(bench, "status")
    assert "ended without a report" in said
    assert "extract 0/60" in said
    assert "not finished" in said
    assert "extract: 12 replies arrived in that run, 340 tokens" in said
    assert "Last finished build: index" in said
    _, report = run_command(["status", "--index", bench.index], monkeypatch, bench.capfd)
    assert [report[name]["state"] for name in ("build", "last_finished")] == ["killed", "done"]


def test_a_stage_with_a_first_pass_by_key_is_one_line(bench: CommandBench) -> None:
    record = BuildRecord(Store(bench.index), "index", BuildArguments.index(["corpus"], Config()), Config(), {}, {})
    record(StageFinished("unique documents: by key", False, 2100, 0, 1.5, folder="work/unique/shuffle"))
    record(StageStarted("unique documents", 2, 1, 2100, 1000, "work/unique"))
    record.close("interrupted")
    assert run_in(bench, "status")[1].count("unique documents") == 1
    record(StageFinished("unique documents", False, 2100, 0, 2.25, folder="work/unique"))
    record.close("done")
    said = run_in(bench, "status")[1]
    assert said.count("unique documents") == 1
    assert "unique documents 2,100 0 – – – 3.75 s" in said


def test_snapshots_are_listed_newest_first_and_a_damaged_current_one_says_how_to_go_back(
    bench: CommandBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(bench.index)
    ids = [current_id(store)]
    for name in ("new.txt", "newer.txt"):
        bench.write(name, f"James Watt wrote {name} in Soho.")
        assert bench.run("index", bench.corpus)[0] == 0
        ids.append(current_id(store))
    times = [f"2030-01-0{day}T00:00:00+00:00" for day in (2, 3, 1)]
    for snapshot, at in zip(ids, times, strict=True):
        path = f"snapshots/{snapshot}/{MANIFEST}"
        store.write_json(path, store.read_json(path) | {"created_at": at})
    _, report = run_command(["status", "--index", bench.index], monkeypatch, bench.capfd)
    assert [row["snapshot"] for row in report["snapshots"]] == [ids[1], ids[0], ids[2]]
    store.delete(f"snapshots/{ids[2]}/{MANIFEST}")
    code, said = run_in(bench, "status")
    assert code == 3
    assert f"Snapshot {ids[2]} cannot be read, and {ids[1]} is used in its place." in said
    assert f"write its id into {store.uri}/current" in said
