"""`eval judge` from the command line to the report, with judges that are functions behind HTTP."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

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
