"""`eval qa` and `eval coverage` as commands, on an index of a few notes that the built-in model made."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hirag_dist.cli import main
from tests.scripted_endpoint import run_command

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

    return lambda *arguments: run_command(("eval", *arguments), monkeypatch, capfd)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]


def test_answers_are_asked_and_scored_by_mode(evaluate: Command, index: Path, tmp_path: Path) -> None:
    asked = ("qa", "--index", index, "--questions", "questions.jsonl", "--modes", "hirag,naive", *HERE)
    code, report = evaluate(*asked, "--out", "out")
    assert code == 0
    results = report["results"]
    assert set(results["systems"]) == {"hirag", "naive"}
    for system in results["systems"]:
        assert results["systems"][system]["exact"]["value"] == 1.0
        assert results["refusals"][system]["refused"]["value"] == 1.0
        assert results["costs"][system]["input_tokens"] > 0
    assert report["results"]["by_type"]["year"]["questions"] == 1
    scores = lines(tmp_path / "out" / "scores.jsonl")
    assert [(row["question_id"], row["system"]) for row in scores] == [
        (f"q{at}", mode) for at in (1, 2, 3) for mode in ("hirag", "naive")
    ]
    assert scores[0]["answer"] == "1873"
    assert "Exact match and F1" in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")

    code, again = evaluate(*asked, "--out", "out", "--metric", "musique")
    assert code == 0
    assert again["units"] == {"new": 0, "from_before": 6}, "another definition asks nobody"
    assert again["this_run"]["calls"] == 0
    assert again["results"]["definition"] == "musique"


def test_the_share_of_each_level_that_the_bridge_holds(evaluate: Command, index: Path, tmp_path: Path) -> None:
    code, report = evaluate("coverage", "--index", index, "-q", "questions.jsonl", "--out", "out", *HERE)
    assert code == 0
    found = report["results"]["systems"]["hirag"]
    assert all(0 < found[level]["value"] <= 1 for level in ("local", "global"))
    assert (tmp_path / "out" / "report.html").is_file()
