"""`eval retrieval` from the command line: on a real index, with wrong arguments, killed, with a failing endpoint."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hirag_dist.cli import main
from hirag_dist.config.model import Config
from hirag_dist.llm.endpoints.hashing import HashingEmbedder
from hirag_dist.storage.snapshot.reader import open_snapshot
from hirag_dist.storage.store import Store
from hirag_dist.testing.simulator import SimulatorOptions, SimulatorThread
from tests.evaluation.corpora import DOCUMENTS, QUESTIONS, run, write_corpus, write_lines

Run = Callable[..., tuple[int, Any]]
MEMORY = ("--set", "vectors.backend=memory")
BUILD = ("--executor", "inline", "--set", "chunking=none", "--set", "kernels=cpu")


@pytest.fixture
def hirag(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Runs a command; returns its exit code and the object on stdout."""
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: run(capfd, monkeypatch, *arguments)


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("indexed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            sys, "argv", ["hirag-dist", "index", str(write_corpus(folder)), "-i", str(folder / "index"), *BUILD]
        )
        with pytest.raises(SystemExit) as ended:
            main.main()
    assert not ended.value.code
    return folder / "index"


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    return write_lines(tmp_path / "q.jsonl", QUESTIONS)


def naive_ranks(config: Config, index: Path) -> dict[str, list[str]]:
    """The documents' texts by similarity to each question, the plainest way: ids of each, best first."""
    embedder = HashingEmbedder(dim=open_snapshot(Store(str(index))).manifest.dim)
    texts = {text: [own for own, _, other in DOCUMENTS if other == text] for _, _, text in DOCUMENTS}
    vectors = embedder.embed_now([*texts, *(row["question"] for row in QUESTIONS)])
    scores = vectors[len(texts) :] @ vectors[: len(texts)].T
    order = np.argsort(-scores, axis=1, kind="stable")
    ids = list(texts.values())
    return {row["id"]: [ids[place] for place in places] for row, places in zip(QUESTIONS, order, strict=True)}


def test_naive_finds_what_the_plainest_ranking_finds(hirag: Run, index: Path, questions: Path, tmp_path: Path) -> None:
    options = ("--modes", "naive,hirag", "--k", "1,2", *MEMORY)
    code, report = hirag("eval", "retrieval", "--index", index, "-q", questions, "--out", "out", *options)
    assert (code, report["complete"], report["questions"]["questions"]) == (0, True, 4)
    ranked = naive_ranks(Config(), index)
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
    assert report["results"]["levels"]["naive"]["local"]["chunks"] == 0
    assert report["results"]["levels"]["hirag"]["local"]["reached"] > 0
    assert (tmp_path / "out" / "report.html").read_text().startswith("<!DOCTYPE html>")
    written = json.loads((tmp_path / "out" / "report.json").read_text())
    assert written == {key: value for key, value in report.items() if key != "out"}
    lines = [json.loads(line) for line in (tmp_path / "out" / "outcomes" / "retrieve.jsonl").read_text().splitlines()]
    assert [line["id"] for line in lines] == [f"q{n} {mode}" for n in range(1, 5) for mode in ("naive", "hirag")]


def test_variants_are_compared_side_by_side(hirag: Run, index: Path, questions: Path) -> None:
    variants = ("--variant", "narrow:top_n=1", "--variant", "wide:retrieval.top_n=30,top_m=20")
    arguments = ("eval", "retrieval", "-i", index, "-q", questions, "-o", "out", "--modes", "local", *MEMORY)
    code, report = hirag(*arguments, *variants)
    assert code == 0
    assert list(report["results"]["systems"]) == ["local", "local:narrow", "local:wide"]
    assert report["variants"]["wide"]["top_n"] == 30
    reached = {name: each["local"]["chunks"] for name, each in report["results"]["levels"].items()}
    assert reached["local:narrow"] < reached["local"] <= reached["local:wide"]
    assert report["units"] == {"new": 12, "from_before": 0}
    code, report = hirag(*arguments, "--set", "retrieval.top_n=30", "--set", "retrieval.top_m=20")
    assert report["units"] == {"new": 0, "from_before": 4}  # the settings decide, not their name


def test_what_is_wrong_with_questions_is_told(hirag: Run, index: Path, questions: Path) -> None:
    more = ["{broken", {"id": "q9", "question": "No gold?"}, {"id": "q8", "question": "Whose?", "gold": ["nobody's"]}]
    write_lines(questions, [*QUESTIONS, *more])
    code, report = hirag("eval", "retrieval", "-i", index, "-q", questions, "-o", "out", "--modes", "naive", *MEMORY)
    assert (code, report["complete"]) == (3, False)
    assert (report["questions"]["without_gold"], report["questions"]["gold_ids_unknown"]) == (1, 1)
    assert report["results"]["asked"] == 5
    assert report["dead_letters"]["shown"][0]["id"].endswith("q.jsonl#4")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--modes", "nonsense"], "there is no nonsense"),
        (["--variant", "x:top_n=0"], "top_n"),
        (["--variant", "x:top_n=3", "--variant", "x:top_n=4"], "given twice"),
        (["--set", "llm.endpoints.builtin-embedder.dim=7"], "embedder"),
    ],
)
def test_wrong_arguments_are_refused_with_a_reason(
    hirag: Run, index: Path, questions: Path, arguments: list[str], said: str
) -> None:
    given = {"--index": str(index), "--questions": str(questions), "--out": "out"}
    rest = [text for pair in given.items() if pair[0] not in arguments for text in pair]
    code, answer = hirag("eval", "retrieval", *rest, *MEMORY, *arguments)
    assert code in (1, 2)
    assert said in answer["error"]


def config_with(folder: Path, url: str) -> Path:
    far = {"base_url": url, "model": "vectors", "dim": 64, "max_concurrent": 1, "batch_size": 1}
    llm = {"endpoints": {"far": far}, "roles": {"embed": "far"}, "outage_timeout_s": 60}
    (folder / "hirag.yaml").write_text(json.dumps({"llm": llm, "vectors": {"backend": "memory"}}))
    return folder / "hirag.yaml"


def start(index: Path, questions: Path, folder: Path, url_config: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "hirag_dist", "eval", "retrieval", "-i", str(index), "-q", str(questions)]
    arguments = ["-o", "out", "--modes", "naive", "--config", str(url_config)]
    return subprocess.Popen(
        [*command, *arguments], cwd=folder, env=os.environ | {"PYTHONPATH": os.getcwd()}, stderr=subprocess.PIPE
    )


@pytest.mark.integration
def test_a_run_that_is_ended_on_the_way_goes_on(
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    questions: Path,
) -> None:
    """It is ended while the endpoint holds back its replies; what was embedded before is not asked again."""
    corpus, root = write_corpus(tmp_path), os.getcwd()
    fast = SimulatorThread(SimulatorOptions(listen="127.0.0.1:0", dim=64))
    with fast as url:
        config = config_with(tmp_path, url)
        built = run(capfd, monkeypatch, "index", corpus, "--index", tmp_path / "index", *BUILD, "--config", config)
        assert built[0] == 0
    slow = SimulatorThread(SimulatorOptions(listen="127.0.0.1:0", dim=64, latency_ms=1500.0))
    with slow as url:
        os.chdir(root)
        process = start(tmp_path / "index", questions, tmp_path, config_with(tmp_path, url))
        while slow.stats()["total"]["calls"] < 2 and process.poll() is None:  # the first is stored by then
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
        assert process.returncode == 130, said.decode()
    with SimulatorThread(SimulatorOptions(listen="127.0.0.1:0", dim=64)) as url:
        monkeypatch.chdir(tmp_path)
        config = config_with(tmp_path, url)
        arguments = ("eval", "retrieval", "-i", "index", "-q", questions, "-o", "out", "--modes", "naive")
        code, report = run(capfd, monkeypatch, *arguments, "--config", config)
        assert (code, report["complete"]) == (0, True)
        assert report["this_run"]["calls"] < len(QUESTIONS)
