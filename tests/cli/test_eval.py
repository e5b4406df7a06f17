"""`eval` from the command line to the report: on real indexes, and with models that are functions behind HTTP."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hirag_dist.cli._command_line import run
from hirag_dist.evaluation.questions import read_questions
from hirag_dist.llm.endpoints.hashing import HashingEmbedder
from hirag_dist.storage.snapshot.reader import open_snapshot
from hirag_dist.storage.store import Store
from tests.evaluation.corpora import DOCUMENTS, QUESTIONS, write_corpus, write_lines
from tests.scripted_endpoint import Asked, Endpoint, Script, run_command, write_config

Run = Callable[..., tuple[int, Any]]
OF_NOTES = ("--set", "llm.endpoints.builtin-embedder.dim=384", "--set", "vectors.backend=memory")
MEMORY = ("--set", "vectors.backend=memory")
NAMED = {f"q{number}": f"What is told of {name}?" for number, name in enumerate(("Ann", "Bob", "Cleo"), start=1)}


@pytest.fixture
def evaluate(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Runs `eval`, with its results in `out`; returns its exit code and the object on stdout."""
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: run_command(("eval", *arguments, "--out", "out"), monkeypatch, capfd)


def indexed(folder: Path, corpus: Path, *options: str) -> Path:
    """Build an index with the built-in models."""
    command = ["index", str(corpus), "--index", str(folder / "index"), "--executor", "inline", *options]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert run(command) == 0
    return folder / "index"


@pytest.fixture
def serve(tmp_path: Path, request: pytest.FixtureRequest) -> Callable[[Script], Endpoint]:
    """Serves a script as the model of every role that evaluation asks."""

    def serve(script: Script) -> Endpoint:
        endpoint = Endpoint(script)
        request.addfinalizer(endpoint.close)
        write_config(tmp_path / "hirag.yaml", {"big": endpoint.url}, {"judge": "big", "answer": "big"})
        return endpoint

    return serve


def answers(path: Path, **methods: Callable[[int], str]) -> Path:
    """A file with an answer of each method to each question, by the question's place."""
    rows = [
        {"query_id": own_id, "query": text, "method": method, "answer": said(place)}
        for place, (own_id, text) in enumerate(NAMED.items())
        for method, said in methods.items()
    ]
    return write_lines(path, rows)


# ---- retrieval


@pytest.fixture(scope="module")
def passages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("indexed")
    return indexed(folder, write_corpus(folder), "--set", "chunking=none", "--set", "kernels=cpu")


def naive_ranks(index: Path) -> dict[str, list[str]]:
    """The documents' texts by similarity to each question, the plainest way: ids of each, best first."""
    embedder = HashingEmbedder(dim=open_snapshot(Store(str(index))).manifest.dim)
    texts = {text: [own for own, _, other in DOCUMENTS if other == text] for _, _, text in DOCUMENTS}
    vectors = embedder.embed_now([*texts, *(row["question"] for row in QUESTIONS)])
    scores = vectors[len(texts) :] @ vectors[: len(texts)].T
    order = np.argsort(-scores, axis=1, kind="stable")
    ids = list(texts.values())
    return {row["id"]: [ids[place] for place in places] for row, places in zip(QUESTIONS, order, strict=True)}


def test_naive_finds_what_the_plainest_ranking_finds(evaluate: Run, passages: Path, tmp_path: Path) -> None:
    questions = write_lines(tmp_path / "q.jsonl", QUESTIONS)
    options = ("--modes", "naive,hirag", "--k", "1,2", *MEMORY)
    code, report = evaluate("retrieval", "--index", passages, "-q", questions, *options)
    assert (code, report["complete"], report["questions"]["questions"]) == (0, True, 4)
    ranked = naive_ranks(passages)
    for k in (1, 2):
        shares = [
            sum(any(gold in ids for ids in ranked[row["id"]][:k]) for gold in row["gold"]) / len(row["gold"])
            for row in QUESTIONS
        ]
        found = report["results"]["systems"]["naive"]
        assert found[f"recall@{k}"]["value"] == pytest.approx(np.mean(shares))
        assert found[f"all@{k}"]["value"] == pytest.approx(np.mean(np.array(shares) == 1))
        assert found[f"recall@{k}"]["low"] <= np.mean(shares) <= found[f"recall@{k}"]["high"]
    assert set(report["results"]["by_type"]) == {"multi", "single"}
    assert (tmp_path / "out" / "report.html").read_text().startswith("<!DOCTYPE html>")
    written = json.loads((tmp_path / "out" / "report.json").read_text())
    assert written == {key: value for key, value in report.items() if key != "out"}
    lines = [json.loads(line) for line in (tmp_path / "out" / "outcomes" / "retrieve.jsonl").read_text().splitlines()]
    assert [line["id"] for line in lines] == [f"q{n} {mode}" for n in range(1, 5) for mode in ("naive", "hirag")]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(["--variant", "x:top_n=0"], "top_n"), (["--set", "llm.endpoints.builtin-embedder.dim=7"], "embedder")],
)
def test_wrong_arguments_are_refused_with_a_reason(
    evaluate: Run, passages: Path, tmp_path: Path, arguments: list[str], said: str
) -> None:
    questions = write_lines(tmp_path / "q.jsonl", QUESTIONS)
    code, answer = evaluate("retrieval", "--index", passages, "-q", questions, *MEMORY, *arguments)
    assert code in (1, 2)
    assert said in answer["error"]


# ---- qa and coverage

NOTES = {
    "gallery": "The gallery of Dundee was founded in 1873 by Albert Lamb. It holds 412 paintings by Ethel Hay.",
    "painter": "Ethel Hay died in Perth on 4 May 1931. Her pupil Mary Grieve finished the mural of Perth.",
    "bridge": "The Tay Bridge was designed by Thomas Bouch. It fell in a storm in 1879 near Dundee.",
    "storm": "The storm of 1879 destroyed the Tay Bridge. Thomas Bouch lost his good name by it.",
}
NOTE_QUESTIONS = [
    {"id": "q1", "question": "In what year was the gallery of Dundee founded?", "answer": "1873", "type": "year"},
    {"id": "q2", "question": "Who designed the Tay Bridge?", "answer": "Bouch", "aliases": ["Thomas Bouch"]},
    {"id": "q3", "question": "Which submarine crossed the Arctic Ocean?", "answer": "", "answerable": False},
]


@pytest.fixture(scope="module")
def notes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index that is asked and never written to."""
    folder = tmp_path_factory.mktemp("notes")
    (folder / "notes").mkdir()
    for name, text in NOTES.items():
        (folder / "notes" / f"{name}.txt").write_text(text)
    return indexed(folder, folder / "notes")


def test_answers_are_asked_and_scored_by_mode(evaluate: Run, notes: Path, tmp_path: Path) -> None:
    questions = write_lines(tmp_path / "q.jsonl", NOTE_QUESTIONS)
    asked = ("qa", "--index", notes, "--questions", questions, "--modes", "hirag,naive", *MEMORY)
    code, report = evaluate(*asked)
    assert code == 0
    results = report["results"]
    assert set(results["systems"]) == {"hirag", "naive"}
    for system, figures in results["systems"].items():
        assert figures["exact"]["value"] == 1.0
        assert results["refusals"][system]["refused"]["value"] == 1.0
        assert results["costs"][system]["input_tokens"] > 0
    assert report["results"]["by_type"]["year"]["questions"] == 1
    scores = list(map(json.loads, (tmp_path / "out" / "scores.jsonl").read_text().splitlines()))
    assert [(row["question_id"], row["system"]) for row in scores] == [
        (f"q{at}", mode) for at in (1, 2, 3) for mode in ("hirag", "naive")
    ]
    assert scores[0]["answer"] == "1873"
    assert "Exact match and F1" in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")

    code, again = evaluate(*asked, "--metric", "musique")
    assert code == 0
    assert again["units"] == {"new": 0, "from_before": 6}, "another definition asks nobody"
    assert again["this_run"]["calls"] == 0
    assert again["results"]["definition"] == "musique"


def test_the_share_of_each_level_that_the_bridge_holds(evaluate: Run, notes: Path, tmp_path: Path) -> None:
    questions = write_lines(tmp_path / "q.jsonl", NOTE_QUESTIONS)
    code, report = evaluate("coverage", "--index", notes, "-q", questions, *MEMORY)
    assert code == 0
    found = report["results"]["systems"]["hirag"]
    assert all(0 < found[level]["value"] <= 1 for level in ("local", "global"))
    assert (tmp_path / "out" / "report.html").is_file()


# ---- claims


def sentences(asked: Asked) -> str:
    """Every sentence is a claim."""
    assert asked.task == "claims"
    found = [part.strip() for part in asked.between("answer").split(".") if part.strip()]
    return json.dumps({"claims": [f"{part}." for part in found]})


LONG = "Ann owns a red mill. Ann owns a blue mill. Bob sells fish. ANN OWNS A RED MILL."
SHORT = "Bob sells fish."


def test_distinct_claims_and_their_clusters_are_counted(evaluate: Run, serve: Any, tmp_path: Path) -> None:
    model = serve(sentences)
    file = answers(tmp_path / "a.jsonl", long=lambda _: LONG, short=lambda _: SHORT)
    code, report = evaluate("claims", "--answers", file)
    assert code == 0
    results = report["results"]
    assert (results["claims_listed"], results["claims_distinct"], results["answers"]["long"]) == (15, 12, 3)
    long, short = ({name: each["value"] for name, each in results["systems"][of].items()} for of in ("long", "short"))
    assert (long["claims"], short["claims"]) == (3.0, 1.0)
    assert (long["clusters at 0.5"], short["clusters at 0.5"]) == (2.0, 1.0), "mills are near"
    pair = next(each for each in results["differences"] if each["measure"] == "claims")
    assert (pair["first"], pair["second"], pair["questions"]) == ("long", "short", 3)
    assert pair["difference"] == {"value": 2.0, "low": 2.0, "high": 2.0}
    assert pair["z"] == pytest.approx(3**0.5), "ranks 2, 2, 2: 6 less 3, over √3"
    assert len(model.asked) == 6
    assert evaluate("claims", "--answers", file)[1]["results"] == results
    assert len(model.asked) == 6, "equal requests, and the second run, ask nobody again"


# ---- judge

CRITERIA = ("comprehensiveness", "diversity", "empowerment", "directness", "overall")


def reply(winner: str, criteria: tuple[str, ...] = CRITERIA) -> str:
    return json.dumps({"verdicts": [{"criterion": name, "reason": "So it is.", "winner": winner} for name in criteria]})


def by_merit(asked: Asked) -> str:
    """The judge takes the answer with more stars, wherever it stands."""
    stars = [asked.between(tag).count("*") for tag in ("answer-1", "answer-2")]
    return reply("tie" if stars[0] == stars[1] else "1" if stars[0] > stars[1] else "2")


def test_both_orders_are_judged_once_and_a_second_run_asks_nobody(evaluate: Run, serve: Any, tmp_path: Path) -> None:
    judge = serve(by_merit)
    stars = {"good": (3, 2, 1), "bad": (1, 1, 1)}
    methods = {name: lambda at, name=name: f"{name} says {'*' * stars[name][at]}" for name in stars}
    file = answers(tmp_path / "a.jsonl", **methods)
    code, report = evaluate("judge", "--answers", file)
    assert code == 0
    assert len(judge.asked) == 6, "three questions, two orders"
    shown = {tuple(asked.between(tag).split()[0] for tag in ("answer-1", "answer-2")) for asked in judge.asked}
    assert shown == {("good", "bad"), ("bad", "good")}
    found = report["results"]["pairs"][0]["criteria"]["overall"]
    assert (found["wins"], found["ties"], found["losses"]) == (4, 2, 0)
    assert found["win_rate"]["value"] == pytest.approx(5 / 6)
    assert (found["position"]["first_shown"], found["position"]["flipped"], found["position"]["twice"]) == (0.5, 0, 3)
    assert [row["step"] for row in report["usage"]] == ["verdicts"]
    code, again = evaluate("judge", "--answers", file)
    assert (code, len(judge.asked), again["this_run"]["calls"]) == (0, 6, 0)
    assert (again["results"], again["units"]) == (report["results"], {"new": 0, "from_before": 6})


def refusing(asked: Asked) -> str | int:
    """The endpoint answers questions, and refuses whatever needs judgement, as `simulate-llm` does."""
    return "It is told [S1]." if asked.task == "answer" else 400


@pytest.mark.parametrize("kind", ["judge", "claims"])
def test_a_judge_that_refuses_is_found_before_an_answer_is_paid(
    kind: str, evaluate: Run, serve: Any, notes: Path, tmp_path: Path
) -> None:
    endpoint = serve(refusing)
    questions = write_lines(tmp_path / "q.jsonl", NOTE_QUESTIONS)
    code, said = evaluate(kind, "--index", notes, "--questions", questions, "--modes", "local,naive", *OF_NOTES)
    assert code == 2
    assert "No answer was made, because the model of role judge failed a trial: endpoint big (big)" in said["error"]
    assert [asked.task for asked in endpoint.asked] == [kind]


def test_a_judge_that_works_is_tried_once(evaluate: Run, serve: Any, notes: Path, tmp_path: Path) -> None:
    endpoint = serve(lambda asked: "It is told [S1]." if asked.task == "answer" else by_merit(asked))
    questions = write_lines(tmp_path / "q.jsonl", NOTE_QUESTIONS[1:2])
    for _ in range(2):
        code, report = evaluate("judge", "--index", notes, "-q", questions, "--modes", "local,naive", *OF_NOTES)
        assert code == 0
        assert report["results"]["verdicts"] == 10
        tasks = [asked.task for asked in endpoint.asked]
        assert tasks == ["judge", "answer", "answer", "judge"], "the trial first; both orders are one request"


# ---- questions


def items(asked: Asked, names: list[str]) -> str:
    return json.dumps({asked.task.removeprefix("sensemaking-"): names})


def inventive(asked: Asked) -> str:
    """As many as asked for, named by whom they are for."""
    about = "" if asked.task == "personas" else asked.between("user")
    about += f" {asked.between('task')}" if asked.task == "sensemaking-questions" else ""
    wanted = int(re.findall(r"\b(?:of|Name|Write) (\d+) ", asked.system)[0])
    return items(asked, [f"{about} {asked.task[0]}{number}" for number in range(wanted)])


def test_users_times_tasks_times_questions(evaluate: Run, serve: Any, tmp_path: Path) -> None:
    model = serve(inventive)
    asked_for = ("questions", "--personas", 2, "--tasks", 3, "--per-task", 2, "--description", "Letters of a miller.")
    code, report = evaluate(*asked_for)
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
    assert evaluate(*asked_for)[1]["results"] == results
    assert len(model.asked) == n_asked


def test_what_is_repeated_is_left_out_and_lacks(evaluate: Run, serve: Any) -> None:
    serve(lambda asked: items(asked, ["The same?", "the SAME"]))
    sizes = ("--personas", 2, "--tasks", 2, "--per-task", 1)
    code, report = evaluate("questions", *sizes, "--description", "Letters of a miller.")
    assert code == 0
    assert report["results"]["short"] == {"personas": 1, "tasks": 1, "questions": 0}
    assert (report["results"]["questions"], report["results"]["repeated"]) == (1, 3)
