"""`eval claims` from the command line to the report, with a model that is a function behind HTTP."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.scripted_endpoint import Asked, Endpoint, run_command, write_config

Run = Callable[..., tuple[int, Any]]
QUESTIONS = {f"q{number}": f"What is told of {name}?" for number, name in enumerate(("Ann", "Bob", "Cleo"))}


def sentences(asked: Asked) -> str:
    """Every sentence is a claim."""
    assert asked.task == "claims"
    found = [part.strip() for part in asked.between("answer").split(".") if part.strip()]
    return json.dumps({"claims": [f"{part}." for part in found]})


@pytest.fixture
def model() -> Iterator[Endpoint]:
    endpoint = Endpoint(sentences)
    yield endpoint
    endpoint.close()


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path, model: Endpoint) -> Run:
    monkeypatch.chdir(tmp_path)
    write_config(tmp_path / "hirag.yaml", {"big": model.url}, {"judge": "big"})

    def run(*arguments: object, out: str = "out") -> tuple[int, Any]:
        return run_command(["eval", "claims", "--out", out, *arguments], monkeypatch, capfd)

    return run


def jsonl(path: Path, *rows: object) -> Path:
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


LONG = "Ann owns a red mill. Ann owns a blue mill. Bob sells fish. ANN OWNS A RED MILL."
SHORT = "Bob sells fish."


def answers(path: Path) -> Path:
    rows = [
        {"query_id": own_id, "query": text, "method": method, "answer": answer}
        for own_id, text in QUESTIONS.items()
        for method, answer in (("long", LONG), ("short", SHORT))
    ]
    return jsonl(path, *rows)


def test_distinct_claims_and_their_clusters_are_counted(run: Run, model: Endpoint, tmp_path: Path) -> None:
    code, report = run("--answers", answers(tmp_path / "a.jsonl"))
    assert code == 0
    results = report["results"]
    assert (results["claims_listed"], results["claims_distinct"]) == (15, 12)
    long, short = results["systems"]["long"], results["systems"]["short"]
    assert (results["answers"]["long"], long["claims"]["value"], short["claims"]["value"]) == (3, 3.0, 1.0)
    assert (long["clusters at 0.5"]["value"], short["clusters at 0.5"]["value"]) == (2.0, 1.0), "mills are near"
    pair = next(each for each in results["differences"] if each["measure"] == "claims")
    assert (pair["first"], pair["second"], pair["questions"]) == ("long", "short", 3)
    assert pair["difference"] == {"value": 2.0, "low": 2.0, "high": 2.0}
    assert pair["z"] == pytest.approx(3**0.5), "ranks 2, 2, 2: 6 less 3, over √3"
    assert len(model.asked) == 6
    assert run("--answers", tmp_path / "a.jsonl")[1]["results"] == results
    assert len(model.asked) == 6, "equal requests, and the second run, ask nobody again"
