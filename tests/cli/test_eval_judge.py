"""`eval judge` from the command line to the report, with judges that are functions behind HTTP."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.built_in_builds import write_corpus
from tests.scripted_endpoint import Asked, Endpoint, Script, run_command, write_config

Run = Callable[..., tuple[int, Any]]
CRITERIA = ("comprehensiveness", "diversity", "empowerment", "directness", "overall")
QUESTIONS = {f"q{number}": f"What is told of {name}?" for number, name in enumerate(("Ann", "Bob", "Cleo"), start=1)}


def reply(winner: str, criteria: tuple[str, ...] = CRITERIA) -> str:
    return json.dumps({"verdicts": [{"criterion": name, "reason": "So it is.", "winner": winner} for name in criteria]})


def by_merit(asked: Asked) -> str:
    """The judge takes the answer with more stars, wherever it stands."""
    stars = [asked.between(tag).count("*") for tag in ("answer-1", "answer-2")]
    return reply("tie" if stars[0] == stars[1] else "1" if stars[0] > stars[1] else "2")


@pytest.fixture
def serve() -> Iterator[Callable[[Script], Endpoint]]:
    started: list[Endpoint] = []

    def serve(script: Script) -> Endpoint:
        started.append(Endpoint(script))
        return started[-1]

    yield serve
    for each in started:
        each.close()


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    monkeypatch.chdir(tmp_path)

    def run(*arguments: object, out: str = "out") -> tuple[int, Any]:
        return run_command(["eval", "judge", "--out", out, *arguments], monkeypatch, capfd)

    return run


def answers(path: Path, **stars: tuple[int, ...]) -> Path:
    """A file with an answer of each method to each question, with so many stars."""
    rows = [
        {"query_id": own_id, "query": text, "method": method, "answer": f"{method} says {'*' * count}"}
        for method, counts in stars.items()
        for (own_id, text), count in zip(QUESTIONS.items(), counts, strict=False)
    ]
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def config_for(tmp_path: Path, **endpoints: Endpoint) -> Path:
    urls = {name: endpoint.url for name, endpoint in endpoints.items()}
    return write_config(tmp_path / "hirag.yaml", urls, {"judge": next(iter(urls)), "answer": next(iter(urls))})


def cell(report: Any, criterion: str = "overall", pair: int = 0) -> Any:
    return report["results"]["pairs"][pair]["criteria"][criterion]


def test_both_orders_are_judged_once_and_a_second_run_asks_nobody(run: Run, serve: Any, tmp_path: Path) -> None:
    judge = serve(by_merit)
    config_for(tmp_path, big=judge)
    file = answers(tmp_path / "a.jsonl", good=(3, 2, 1), bad=(1, 1, 1))
    code, report = run("--answers", file)
    assert code == 0
    assert len(judge.asked) == 6, "three questions, two orders"
    shown = {tuple(asked.between(tag).split()[0] for tag in ("answer-1", "answer-2")) for asked in judge.asked}
    assert shown == {("good", "bad"), ("bad", "good")}
    found = cell(report)
    assert (found["wins"], found["ties"], found["losses"]) == (4, 2, 0)
    assert found["win_rate"]["value"] == pytest.approx(5 / 6)
    assert found["win_rate"]["low"] >= 0.5
    assert (found["position"]["first_shown"], found["position"]["flipped"], found["position"]["twice"]) == (0.5, 0, 3)
    assert [row["step"] for row in report["usage"]] == ["verdicts"]
    before = report["results"]
    code, report = run("--answers", file)
    assert (code, len(judge.asked), report["this_run"]["calls"]) == (0, 6, 0)
    assert report["results"] == before
    assert report["units"] == {"new": 0, "from_before": 6}


def refusing(asked: Asked) -> str | int:
    """The endpoint answers questions, and refuses whatever needs judgement, as `simulate-llm` does."""
    return "It is told [S1]." if asked.task == "answer" else 400


@pytest.mark.parametrize("kind", ["judge", "claims"])
def test_a_judge_that_refuses_is_found_before_an_answer_is_paid(
    kind: str, serve: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    endpoint = serve(refusing)
    config_for(tmp_path, big=endpoint)
    write_corpus(tmp_path / "corpus", 2)
    built = ["index", "corpus", "--index", "index", "--executor", "inline"]
    assert run_command(built, monkeypatch, capfd)[0] == 0
    questions = [{"id": own_id, "question": text} for own_id, text in QUESTIONS.items()]
    (tmp_path / "q.jsonl").write_text("\n".join(map(json.dumps, questions)))
    command = ["eval", kind, "--index", "index", "--questions", "q.jsonl", "--modes", "local,naive", "--out", "out"]
    code, said = run_command(command, monkeypatch, capfd)
    assert code == 2
    assert "No answer was made, because the model of role judge failed a trial: endpoint big (big)" in said["error"]
    assert [asked.task for asked in endpoint.asked] == [kind]


def test_a_judge_that_works_is_tried_once(
    run: Run, serve: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    endpoint = serve(lambda asked: "It is told [S1]." if asked.task == "answer" else by_merit(asked))
    config_for(tmp_path, big=endpoint)
    write_corpus(tmp_path / "corpus", 2)
    assert run_command(["index", "corpus", "--index", "index", "--executor", "inline"], monkeypatch, capfd)[0] == 0
    (tmp_path / "q.jsonl").write_text(json.dumps({"id": "q1", "question": "What did Charles Babbage design?"}))
    for _ in range(2):
        code, report = run("--index", "index", "--questions", "q.jsonl", "--modes", "local,naive")
        assert code == 0
        assert report["results"]["verdicts"] == 10
        tasks = [asked.task for asked in endpoint.asked]
        assert tasks == ["judge", "answer", "answer", "judge"], "the trial first; both orders are one request"
