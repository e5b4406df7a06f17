"""`eval questions` from the command line to a question file, with a model that is a function behind HTTP."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hirag_dist.evaluation.questions import read_questions
from tests.scripted_endpoint import Asked, Endpoint, run_command, write_config

Run = Callable[..., tuple[int, Any]]


def wanted(asked: Asked) -> int:
    found = re.search(r"\b(?:of|Name|Write) (\d+) ", asked.system)
    assert found, asked.system
    return int(found[1])


def items(asked: Asked, names: list[str]) -> str:
    key = asked.task.removeprefix("sensemaking-")
    return json.dumps({key: names})


def inventive(asked: Asked) -> str:
    """As many as asked for, named by whom they are for."""
    about = "" if asked.task == "personas" else asked.between("user")
    about += f" {asked.between('task')}" if asked.task == "sensemaking-questions" else ""
    kind = asked.task[0]
    return items(asked, [f"{about} {kind}{number}" for number in range(wanted(asked))])


@pytest.fixture
def model() -> Iterator[Endpoint]:
    endpoint = Endpoint(inventive)
    yield endpoint
    endpoint.close()


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path, model: Endpoint) -> Run:
    monkeypatch.chdir(tmp_path)
    write_config(tmp_path / "hirag.yaml", {"big": model.url}, {"judge": "big"})

    def run(*arguments: object, sizes: tuple[int, int, int] = (2, 3, 2)) -> tuple[int, Any]:
        counts = [part for pair in zip(("--personas", "--tasks", "--per-task"), sizes, strict=True) for part in pair]
        return run_command(["eval", "questions", "--out", "out", *counts, *arguments], monkeypatch, capfd)

    return run


def test_users_times_tasks_times_questions(run: Run, model: Endpoint, tmp_path: Path) -> None:
    code, report = run("--description", "Letters of a miller.")
    assert code == 0
    results = report["results"]
    assert (results["questions"], results["wanted"], results["repeated"]) == (12, 12, 0)
    assert results["short"] == {"personas": 0, "tasks": 0, "questions": 0}
    assert [model.count(task) for task in ("personas", "tasks", "sensemaking-questions")] == [1, 2, 6]
    assert all(asked.between("description") == "Letters of a miller." for asked in model.asked)
    rows = [json.loads(line) for line in (tmp_path / "out" / "questions.jsonl").read_text().splitlines()]
    assert rows[0] == {"question_id": "s01", "question": "p0 p0 t0 s0", "persona": "p0", "task": "p0 t0"}
    assert rows[-1] == {"question_id": "s12", "question": "p1 p1 t2 s1", "persona": "p1", "task": "p1 t2"}
    found = read_questions(str(tmp_path / "out" / "questions.jsonl"))
    assert [question.id for question in found.items][:2] == ["s01", "s02"]
    assert found.counts["copies"] == found.counts["texts_used_twice"] == 0
    n_asked = len(model.asked)
    assert run("--description", "Letters of a miller.")[1]["results"] == results
    assert len(model.asked) == n_asked


def test_what_is_repeated_is_left_out_and_lacks(run: Run, model: Endpoint) -> None:
    model.script = lambda asked: items(asked, ["The same?", "the SAME"])
    code, report = run("--description", "Letters of a miller.", sizes=(2, 2, 1))
    assert code == 0
    assert report["results"]["short"] == {"personas": 1, "tasks": 1, "questions": 0}
    assert (report["results"]["questions"], report["results"]["repeated"]) == (1, 3)
