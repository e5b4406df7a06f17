"""`eval questions` from the command line to a question file, with a model that is a function behind HTTP."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hirag_dist.evaluation import read_questions
from tests.scripted_endpoint import Asked, Endpoint, run_command, write_config
from tests.toy_builds import Bench

Run = Callable[..., tuple[int, Any]]


def wanted(asked: Asked) -> int:
    found = re.search(r"\b(?:of|Name|Write) (\d+) ", asked.system)
    assert found, asked.system
    return int(found[1])


def items(asked: Asked, names: list[str]) -> str:
    key = asked.task.removeprefix("sensemaking-")
    return json.dumps({key: names})


def inventive(asked: Asked) -> str:
    """As many as asked for, named by whom they are for, and numbered on behind what is known."""
    about = "" if asked.task == "personas" else asked.between("user")
    about += f" {asked.between('task')}" if asked.task == "sensemaking-questions" else ""
    first = asked.user.split("<known>")[1].count("\n- ") if "<known>" in asked.user else 0
    kind = asked.task[0]
    return items(asked, [f"{about} {kind}{number}" for number in range(first, first + wanted(asked))])


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
        counts = [part for pair in zip(("--personas", "--tasks", "--questions"), sizes, strict=True) for part in pair]
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


def test_what_is_repeated_is_asked_for_again(run: Run, model: Endpoint) -> None:
    """The second user is the first one in other letters; asked again, the model thinks of another."""

    def script(asked: Asked) -> str:
        if asked.task == "personas" and "<known>" not in asked.user:
            return items(asked, ["A teacher.", "a TEACHER"])
        return inventive(asked)

    model.script = script
    code, report = run("--description", "Letters.")
    assert (code, report["results"]["questions"], report["results"]["repeated"]) == (0, 12, 1)
    again = [asked for asked in model.asked if asked.task == "personas"][1]
    assert (again.between("known"), wanted(again)) == ("- A teacher.", 1)


def test_a_question_that_two_users_ask_stands_there_once(run: Run, model: Endpoint) -> None:
    def script(asked: Asked) -> str:
        if asked.task == "sensemaking-questions" and "<known>" not in asked.user:
            return items(asked, ["What changed?", f"Who gains by {asked.between('task')}?"])
        return inventive(asked)

    model.script = script
    code, report = run("--description", "Letters.")
    assert (code, report["results"]["questions"]) == (0, 12)
    assert report["results"]["repeated"] == 5
    again = [asked for asked in model.asked if "<known>" in asked.user]
    assert len(again) == 5
    assert all("What changed?" in asked.between("known") for asked in again), "or it might be named once more"


def test_an_index_describes_itself_by_its_reports(run: Run, model: Endpoint, tmp_path: Path) -> None:
    Bench(tmp_path).build(["alpha beta gamma delta", "epsilon zeta alpha eta"])
    code, report = run("--index", "index", sizes=(1, 1, 1))
    assert (code, report["results"]["questions"]) == (0, 1)
    told = model.asked[0].between("description")
    assert told.startswith("A collection of 2 documents.")
    assert "- Words: A row of words." in told


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "say what the corpus is about"),
        (["--description", " "], "--description is empty"),
        (["--description", "@none.txt"], "cannot read none.txt"),
        (["--description", "x", "--set", "llm.roles.judge=builtin"], "eval questions needs a language model"),
    ],
)
def test_orders_that_make_no_sense(run: Run, options: list[str], said: str) -> None:
    code, report = run(*options)
    assert code == 2
    assert said in report["error"]
