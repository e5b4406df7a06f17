"""`eval judge` from the command line to the report, with judges that are functions behind HTTP."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.scripted_endpoint import Asked, Endpoint, Script, run_command, write_config
from tests.toy_builds import Bench

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


def test_a_judge_who_takes_the_first_is_found_out(run: Run, serve: Any, tmp_path: Path) -> None:
    config_for(tmp_path, big=serve(lambda _: reply("Answer 1")))
    code, report = run("--answers", answers(tmp_path / "a.jsonl", good=(3, 2, 1), bad=(0, 0, 0)))
    found = cell(report)
    assert (code, found["win_rate"]["value"], found["balanced_win_rate"]) == (0, 0.5, 0.5)
    assert found["position"] == {
        "first_shown": 1.0,
        "when_first": 1.0,
        "when_second": 0.0,
        "twice": 3,
        "flipped": 3,
        "half_tied": 0,
    }
    assert (found["z"], found["p_holm"]) == (0.0, 1.0)


def test_verdicts_that_were_written_can_be_counted_again(run: Run, serve: Any, tmp_path: Path) -> None:
    judge = serve(by_merit)
    config_for(tmp_path, big=judge)
    file = answers(tmp_path / "a.jsonl", one=(3, 2, 1), two=(1, 1, 1), three=(2, 0, 2))
    first = run("--answers", file)[1]["results"]
    n_asked = len(judge.asked)
    again = run("--judgements", "out/outcomes/verdicts.jsonl", out="again")[1]["results"]
    assert len(judge.asked) == n_asked == 3 * 3 * 2
    assert again["pairs"] == first["pairs"]


def test_a_verdict_that_cannot_be_used_is_asked_again_and_then_a_dead_letter(
    run: Run, serve: Any, tmp_path: Path
) -> None:
    healed = threading.Event()

    def script(asked: Asked) -> str:
        if "Bob" in asked.between("question") and not healed.is_set():
            return "Both have their merits."
        if "Cleo" in asked.between("question") and not asked.is_again:
            return reply("1", ("overall",))  # four criteria are missing
        return by_merit(asked)

    judge = serve(script)
    config_for(tmp_path, big=judge)
    file = answers(tmp_path / "a.jsonl", good=(3, 2, 1), bad=(1, 1, 0))
    code, report = run("--answers", file)
    assert code == 3
    assert report["dead_letters"]["count"] == 2
    assert "no verdict on comprehensiveness" in report["dead_letters"]["shown"][0]["reason"]
    assert (cell(report)["wins"], report["results"]["verdicts"]) == (4, 20)
    assert len(judge.asked) == 2 + 2 * 3 + 2 * 2
    healed.set()
    code, report = run("--answers", file)
    assert (code, cell(report)["wins"], report["units"]) == (0, 6, {"new": 2, "from_before": 4})


def test_an_index_answers_each_question_once_a_mode_for_all_comparisons(run: Run, serve: Any, tmp_path: Path) -> None:
    Bench(tmp_path).build(["alpha beta gamma delta", "epsilon zeta alpha eta"])

    def script(asked: Asked) -> str:
        return "It is told [S1]. ***" if asked.task == "answer" else by_merit(asked)

    model = serve(script)
    config_for(tmp_path, big=model)
    questions = tmp_path / "questions.jsonl"
    rows = [{"question_id": "q1", "question": "alpha beta"}, {"question_id": "q2", "question": "zeta"}]
    questions.write_text("\n".join(map(json.dumps, rows)))
    recorded = tmp_path / "a.jsonl"
    recorded.write_text(json.dumps({"question_id": "q1", "method": "theirs", "answer": "*"}))
    options = ("--index", "index", "--questions", questions, "--modes", "hirag,naive,flat", "--answers", recorded)
    code, report = run(*options)
    assert code == 0, report
    assert report["results"]["answers"] == {"theirs": 1, "hirag": 2, "naive": 2, "flat": 2}
    pairs = {(pair["first"], pair["second"]): pair["criteria"]["overall"] for pair in report["results"]["pairs"]}
    assert len(pairs) == 6
    assert (pairs["theirs", "hirag"]["losses"], pairs["hirag", "naive"]["ties"]) == (2, 4), "they share one question"
    assert model.count("answer") <= 6, "equal contexts are one request"
    n_asked = len(model.asked)
    assert run(*options, "--against", "hirag")[1]["this_run"]["calls"] == 0, "the same answers, and the same verdicts"
    assert len(model.asked) == n_asked


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "give answers to compare"),
        (["--answers", "a.jsonl"], "needs a language model, and role judge is played by the built-in one"),
        (["--answers", "a.jsonl", "--judge", "nobody"], "--judge nobody: no such endpoint"),
        (["--answers", "a.jsonl", "--criteria", "beauty"], "no criterion 'beauty'"),
        (["--judgements", "v.jsonl", "--judge", "big"], "--judge cannot go with --judgements"),
    ],
)
def test_orders_that_make_no_sense_say_what_to_do(run: Run, tmp_path: Path, options: list[str], said: str) -> None:
    answers(tmp_path / "a.jsonl", a=(1,), b=(1,))
    code, report = run(*options)
    assert code == 2
    assert said in report["error"]
    assert not (tmp_path / "out" / "report.json").exists()
