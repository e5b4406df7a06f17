"""Output of `status` about stages, updates and documents, and of `inspect --drift`."""

from __future__ import annotations

import re
from itertools import count
from pathlib import Path

import pyarrow.compute as pc
import pytest

from hirag_dist.cli._command_line import run
from hirag_dist.cli.status import letter_line
from hirag_dist.composition.build_records import BuildArguments, BuildRecord
from hirag_dist.config.model import Config
from hirag_dist.execution.events import CallsProgress, StageStarted, UsageRecorded
from hirag_dist.llm.limits.protocol import CallTotals
from hirag_dist.llm.usage import UsageMeter
from hirag_dist.schemas import REPORT_INPUTS, SUMMARIES
from hirag_dist.storage.layout import MANIFEST
from hirag_dist.storage.snapshot.reader import current_id, read_current
from hirag_dist.storage.snapshot.writer import make_current
from hirag_dist.storage.store import Store
from hirag_dist.types import ChatRequest
from tests.altered_snapshots import altered
from tests.cli.update_commands import CommandBench, command_bench, indexed_bench
from tests.storage import snapshots
from tests.toy_builds import LONG, Bench, between, task_of


@pytest.fixture
def bench(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> CommandBench:
    return indexed_bench(tmp_path, capfd)


def test_documents_are_listed_and_removed(bench: CommandBench) -> None:
    uri, own = next(iter(sorted(bench.ids().items())))
    code, said = bench.run("status", "--documents")
    assert code == 0
    assert said.startswith(f"{len(bench.ids())} documents")
    assert own in said
    code, said = bench.run("status", "--documents", "--source", uri)
    assert (code, said.split(" id path", 1)[0]) == (0, "1 document")
    assert bench.run("remove", own)[0] == 0
    assert uri not in bench.uris()


def test_status_and_index_have_one_name_for_a_count(bench: CommandBench) -> None:
    built = bench.json("index", bench.corpus)
    report = bench.json("status")
    names = ("snapshot", "content", "debt", "dead_letters", "letters_by_reason", "missing_reports", "usage")
    assert {name: report[name] for name in names} == {name: built[name] for name in names}
    assert report["build"]["this_run"] == built["this_run"]
    assert "config" not in report["build"]


def test_the_update_that_made_the_current_snapshot_and_its_debt(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
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
    bench = CommandBench(tmp_path, capfd)
    said = bench.run("status")[1]
    assert "Update 2 since the index was built from nothing: 1 document added. Debt: 3 reports are due" in said
    assert "Debt: 3 reports are due, about 1.2k tokens" in bench.run("inspect")[1]


def test_letters_are_grouped_by_reason_with_document_place_and_reply(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def script(request: ChatRequest) -> str | None:
        text = between(request, "text") if task_of(request) == "extract-graph" else ""
        return "" if "sun" in text else "Sure, here it is" if "moon" in text or "dew" in text else None

    Bench(tmp_path).build(["sun light", "moon light", "dew light", "sea water"], script, max_layers=0)
    assert run(["status", "--letters", "--index", str(tmp_path / "index")]) == 0
    lines = capfd.readouterr().out.splitlines()
    start = lines.index("Dead letters: 3 open, 0 dropped")
    first, *places = lines[start + 1 : start + 4]
    assert first.startswith("2 × the reply holds no record in the requested form (extract 2). To change: set llm.")
    assert {line.partition(", chunk 1, characters 0 to ")[0] for line in places} == {
        f"  extract: {number}.txt" for number in (1, 2)
    }
    assert all(line.endswith('2 tries: "Sure, here it is"') for line in places)
    assert lines[start + 4].startswith("1 × the reply is empty (extract 1). To change: set another llm.endpoints.")
    bench = CommandBench(tmp_path, capfd)
    assert "1.txt" not in bench.run("status")[1]
    report = bench.json("status")
    assert [(group["count"], group["stages"]) for group in report["letters_by_reason"]] == [
        (2, {"extract": 2}),
        (1, {"extract": 1}),
    ]
    letter = next(letter for letter in report["letters"] if letter["reply"])
    assert {"request", "reply", "place"} <= set(letter)
    assert (letter["place"]["position"], letter["place"]["start"]) == (0, 0)


def test_a_record_that_cannot_be_read_has_one_number_and_a_whole_file_has_none(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Record 2 of the CSV file, whose header is not counted, has no text."""
    bench = command_bench(tmp_path, capfd, {})
    bench.write("rows.csv", "id,text\n1,James Watt met Matthew Boulton in Soho.\n2,\n3,Soho lies near Birmingham.\n")
    bench.write("rows.jsonl", '{broken\n{"text": "James Watt met Matthew Boulton in Soho."}\n')
    bench.write("list.json", "{broken")
    assert run(["plan", bench.corpus, "--config", str(tmp_path / "hirag.yaml")]) == 0
    planned = " ".join(capfd.readouterr().out.split())
    assert "rows.csv, record 2:" in planned
    assert "rows.jsonl, record 1: line 1 is not valid JSON" in planned
    assert "list.json: not valid JSON" in planned
    code, said = bench.run("index", bench.corpus)
    assert code == 3
    assert "To change: correct the file, or the option that the reason names, and run the same" in said
    assert f"`hirag-dist retry --drop --index {bench.index}` accepts the loss." in said
    assert "asks again" not in said
    code, listed = bench.run("status", "--letters", "--documents")
    assert code == 0
    for name in ("rows.csv, record 1 ", "rows.csv, record 3 "):
        assert name in listed
    letters = bench.run("status", "--letters")[1]
    for name in ("rows.csv, record 2", "rows.jsonl, record 1", "list.json"):
        assert f" read: {name}, 1 try" in letters


@pytest.mark.parametrize(
    ("uri", "record", "named"), [("t.csv", 1, "t.csv, record 2"), ("a.txt", 0, "a.txt"), ("", 0, "d1")]
)
def test_a_letter_names_its_document_with_the_record(uri: str, record: int, named: str) -> None:
    span = {"position": 0, "start": 0, "end": 9}
    place = {"uri": uri, "record": record, "title": "Pumps", "document_id": "d1", **span}
    line = letter_line({"stage": "extract", "unit_id": "c1", "place": place, "attempts": 1, "reply": ""})
    assert line == f"extract: {named} (Pumps), chunk 1, characters 0 to 9, c1, 1 try"


def test_a_build_says_how_many_dead_letters_it_does_not_list(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    names = ("a.json", "b.jsonl", "c.doc", "d.xls", "e.ppt", "f.gz", "g.csv")
    bench = command_bench(tmp_path, capfd, {"watt.txt": "James Watt met Matthew Boulton in Soho."})
    for name in names:
        bench.write(name, "{broken")
    bench.write("h.md", "\0" * 2048)
    said = bench.run("index", bench.corpus)[1]
    n_letters = int(re.findall(r"Incomplete: (\d+) dead letters", said)[0])
    shown = [int(count) for count in re.findall(r" (\d+) × ", said)]
    n_more, n_reasons = map(int, re.findall(r" and (\d+) more, for (\d+) other reasons?; `hirag-dist status", said)[0])
    assert len(shown) == 5
    assert sum(shown) + n_more == n_letters
    assert len(re.findall(r" \d+ × ", bench.run("status")[1])) == len(shown) + n_reasons


def test_a_snapshot_is_chosen_for_documents_or_a_bill(bench: CommandBench) -> None:
    code, said = bench.run("status", "--snapshot", "other")
    assert (code, "give --documents or --cost with it" in said) == (2, True)
    code, said = bench.run("status", "--source", "*.txt")
    assert (code, "--source selects documents: give --documents with it" in said) == (2, True)


def test_the_bill_of_a_first_build_that_was_interrupted(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    bench = CommandBench(tmp_path, capfd)
    config, meter = Config(), UsageMeter()
    meter.use("extract", "m", "big").calls += 7
    record = BuildRecord(Store(bench.index), "index", BuildArguments.of("index", config, ["corpus"]), config, {}, {})
    record(UsageRecorded("extract", meter))
    record.close("interrupted")
    code, said = bench.run("status", "--cost")
    assert code == 0
    assert said.startswith("Bill so far of the unfinished run: ")
    report = bench.json("status", "--cost")
    assert (report["snapshot"], [row["calls"] for row in report["usage"]]) == (None, [7])


def test_a_killed_build_shows_its_replies_and_the_last_one_that_finished(bench: CommandBench) -> None:
    clock = count(step=10.0)  # seconds: each event is written
    given = BuildArguments.of("index", Config(), ["corpus"])
    record = BuildRecord(Store(bench.index), "index", given, Config(), {}, {}, clock=lambda: next(clock))
    record(StageStarted("extract", 1, 0, 60, 0, "work/extract/key"))
    record(CallsProgress("extract", CallTotals(answered=12, tokens=340)))
    said = bench.run("status")[1]
    assert "ended without a report" in said
    assert "extract 0/60" in said
    assert "not finished" in said
    assert "extract: 12 replies arrived in that run, 340 tokens" in said
    assert "Last finished build: index" in said
    report = bench.json("status")
    assert [report[name]["state"] for name in ("build", "last_finished")] == ["killed", "done"]


def test_snapshots_are_listed_newest_first_and_a_damaged_current_one_says_how_to_go_back(bench: CommandBench) -> None:
    store = Store(bench.index)
    ids = [current_id(store)]
    for note in ("", " More."):
        ids.append(snapshots.publish(store, snapshots.tiny_tables(note)).snapshot_id)
    times = [f"2030-01-0{day}T00:00:00+00:00" for day in (2, 3, 1)]
    for snapshot, at in zip(ids, times, strict=True):
        path = f"snapshots/{snapshot}/{MANIFEST}"
        store.write_json(path, store.read_json(path) | {"created_at": at})
    report = bench.json("status")
    assert [row["snapshot"] for row in report["snapshots"]] == [ids[1], ids[0], ids[2]]
    assert (report["update"], report["debt"]) == (None, {})  # a snapshot without state for updates
    for damaged in (ids[0], ids[2]):  # the first is of the last build, which is still a finished one
        store.delete(f"snapshots/{damaged}/{MANIFEST}")
    code, said = bench.run("status")
    assert code == 3
    assert "unfinished" not in said
    assert f"Snapshot {ids[2]} cannot be read, and {ids[1]} is used in its place." in said
    assert f"write its id into {store.uri}/current" in said


def test_drift_of_a_fresh_index_passes_and_a_failing_gate_is_code_6_with_check_only(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    fresh, bench = Bench(tmp_path).build([LONG]), CommandBench(tmp_path, capfd)
    code, said = bench.run("inspect", "--drift", "--check")
    assert code == 0
    assert "compactness ratio" in said
    assert "fails" not in said
    assert "level 0" in said
    clusters = fresh.table("clusters").filter(pc.greater(fresh.table("clusters")["layer"], 0))
    chosen = ("inspect", "--drift", "--snapshot", altered(fresh, {"clusters": clusters}).manifest.snapshot_id)
    code, said = bench.run(*chosen)
    assert code == 0
    assert "fails" in said
    assert "index INPUT --rebuild" in said
    assert bench.run(*chosen, "--check")[0] == 6
