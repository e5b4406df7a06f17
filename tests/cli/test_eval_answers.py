"""`eval qa` and `eval coverage` as commands, on an index of a few notes that the built-in model made."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hirag_dist.cli import main

NOTES = {
    "gallery": "The gallery of Dundee was founded in 1873 by Albert Lamb. It holds 412 paintings by Ethel Hay.",
    "painter": "Ethel Hay died in Perth on 4 May 1931. Her pupil Mary Grieve finished the mural of Perth.",
    "bridge": "The Tay Bridge was designed by Thomas Bouch. It fell in a storm in 1879 near Dundee.",
    "storm": "The storm of 1879 destroyed the Tay Bridge. Thomas Bouch lost his good name by it.",
}
QUESTIONS = [
    {"id": "q1", "question": "In what year was the gallery of Dundee founded?", "answer": "1873", "type": "year"},
    {"id": "q2", "question": "Who designed the Tay Bridge?", "answer": "Bouch", "aliases": ["Thomas Bouch"]},
    {"id": "q3", "question": "Which submarine crossed the Arctic Ocean?", "answer": "", "answerable": False},
]
Command = Callable[..., tuple[int, Any]]
HERE = ("--set", "vectors.backend=memory")


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index that is asked and never written to."""
    folder = tmp_path_factory.mktemp("notes")
    (folder / "notes").mkdir()
    for name, text in NOTES.items():
        (folder / "notes" / f"{name}.txt").write_text(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        arguments = ["hirag-dist", "index", "notes", "--index", "built", "--executor", "inline"]
        patch.setattr(sys, "argv", arguments)
        with pytest.raises(SystemExit) as end:
            main.main()
    assert not end.value.code
    return folder / "built"


@pytest.fixture
def evaluate(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> Command:
    """Runs `eval`; returns its exit code and the object on stdout."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "questions.jsonl").write_text("\n".join(map(json.dumps, QUESTIONS)))

    def evaluate(*arguments: object) -> tuple[int, Any]:
        monkeypatch.setattr(sys, "argv", ["hirag-dist", "eval", *map(str, arguments), "--json"])
        stdout = os.dup(1)
        try:
            with pytest.raises(SystemExit) as end:
                main.main()
        finally:
            os.dup2(stdout, 1)  # --json has taken it, for good
            os.close(stdout)
        return int(end.value.code or 0), json.loads(capfd.readouterr().out)

    return evaluate


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]


def test_answers_are_asked_and_scored_by_mode(evaluate: Command, index: Path, tmp_path: Path) -> None:
    asked = ("qa", "--index", index, "--questions", "questions.jsonl", "--modes", "hirag,naive", *HERE)
    code, report = evaluate(*asked, "--out", "out")
    assert code == 0
    systems = report["results"]["systems"]
    assert set(systems) == {"hirag", "naive"}
    for said in systems.values():
        assert said["scores"]["hotpotqa"]["exact"]["value"] == 1.0
        assert said["unanswerable"]["refused"]["value"] == 1.0
        assert said["cost"]["input_tokens"] > 0
    assert report["results"]["by_type"]["year"]["questions"] == 1
    scores = lines(tmp_path / "out" / "scores.jsonl")
    assert [(row["question_id"], row["system"]) for row in scores] == [
        (f"q{at}", mode) for at in (1, 2, 3) for mode in ("hirag", "naive")
    ]
    assert scores[0]["answer"] == "1873"
    assert "Exact match and F1" in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")

    code, again = evaluate(*asked, "--out", "out", "--metric", "musique,hirag")
    assert code == 0
    assert again["units"] == {"new": 0, "from_before": 6}, "another definition asks nobody"
    assert again["this_run"]["calls"] == 0
    assert set(again["results"]["systems"]["naive"]["scores"]) == {"musique", "hirag"}


def test_answers_by_map_reduce(evaluate: Command, index: Path, tmp_path: Path) -> None:
    asked = (
        "qa",
        "--index",
        index,
        "--questions",
        "questions.jsonl",
        "--modes",
        "text-map-reduce,graphrag-local",
        *HERE,
    )
    code, report = evaluate(*asked, "--out", "out")
    assert code == 0
    by_parts = report["results"]["systems"]["text-map-reduce"]
    assert by_parts["scores"]["hotpotqa"]["exact"]["value"] == 1.0
    assert by_parts["unanswerable"]["refused"]["value"] == 1.0
    assert by_parts["cost"]["calls"] > 1, "the parts are asked about too"
    assert report["results"]["systems"]["graphrag-local"]["scored"] == 2
    code, again = evaluate(*asked, "--out", "out")
    assert (code, again["units"]["new"]) == (0, 0)


def write_answers(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def test_recorded_answers_need_no_index(evaluate: Command, tmp_path: Path) -> None:
    answers = write_answers(
        tmp_path / "answers.jsonl",
        {"question_id": "q1", "system": "one", "answer": "1873"},
        {"question_id": "q2", "system": "one", "answer": "Thomas Bouch"},
        {"question_id": "q3", "system": "one", "answer": "I do not know."},
        {"question_id": "q1", "system": "two", "answer": 1873},
    )
    code, report = evaluate("qa", "--questions", "questions.jsonl", "--answers", answers, "--out", "out")
    assert code == 0
    one, two = report["results"]["systems"].values()
    assert (one["scored"], one["missing"], two["scored"], two["missing"]) == (2, 0, 2, 2)
    assert one["scores"]["hotpotqa"]["exact"]["value"] == 1.0, "aliases count"
    assert two["scores"]["hotpotqa"]["exact"]["value"] == 0.5
    assert report["units"] == {"new": 0, "from_before": 0}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--answers", "others.jsonl"), "the question file has no question 'other'"),
        (("--answers", "others.jsonl", "--index", "x"), "give one of the two"),
        (("--answers", "others.jsonl", "--metric", "bleu"), "--metric bleu"),
    ],
)
def test_wrong_options(evaluate: Command, tmp_path: Path, options: tuple[str, ...], said: str) -> None:
    write_answers(tmp_path / "others.jsonl", {"question_id": "other", "answer": "x"})
    code, report = evaluate("qa", "--questions", "questions.jsonl", "--out", "out", *options)
    assert code == 2
    assert said in report["error"]


def test_coverage_of_an_index(evaluate: Command, index: Path, tmp_path: Path) -> None:
    asked = ("coverage", "--index", index, "--questions", "questions.jsonl", "--modes", "hirag,local", *HERE)
    code, report = evaluate(*asked, "--out", "out")
    assert code == 0
    hirag, local = report["results"]["systems"].values()
    assert hirag["questions"] == 3
    for part in ("context", "retrieved"):
        for level in ("local", "global"):
            for value in hirag["in_bridge"][part][level].values():
                assert 0 <= value["low"] <= value["value"] <= value["high"] <= 1
    assert hirag["in_bridge"]["retrieved"]["local"]["recall"]["value"] > 0
    assert local["in_bridge"]["context"]["local"]["recall"]["value"] == 0.0, "there is no bridge"
    assert local["in_bridge"]["context"]["global"]["recall"]["value"] is None, "nor a global level"
    built = report["results"]["index"]
    assert built["layers"][0]["entities"] > 4
    assert built["total"]["calls"] >= len(NOTES)
    assert built["build_seconds"] > 0
    assert 0 <= built["clustering"]["all_layers"]["transitivity"] <= 1
    assert report["this_run"]["calls"] == 0
    assert hirag["timings_ms"]["retrieval"]["p50"] > 0
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "Table 7" in page
    code, again = evaluate(*asked, "--out", "out")
    assert again["units"] == {"new": 0, "from_before": 6}
    assert again["results"]["systems"] == report["results"]["systems"]
