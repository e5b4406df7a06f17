"""`eval retrieval` from the command line: on a real index, with wrong arguments, killed, with a failing endpoint."""

from __future__ import annotations

import json
import sys
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
from tests.evaluation.corpora import DOCUMENTS, QUESTIONS, write_corpus, write_lines
from tests.scripted_endpoint import run_command

Run = Callable[..., tuple[int, Any]]
MEMORY = ("--set", "vectors.backend=memory")
BUILD = ("--executor", "inline", "--set", "chunking=none", "--set", "kernels=cpu")


@pytest.fixture
def hirag(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Runs a command; returns its exit code and the object on stdout."""
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: run_command(arguments, monkeypatch, capfd)


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
    hirag: Run, index: Path, questions: Path, arguments: list[str], said: str
) -> None:
    given = {"--index": str(index), "--questions": str(questions), "--out": "out"}
    rest = [text for pair in given.items() if pair[0] not in arguments for text in pair]
    code, answer = hirag("eval", "retrieval", *rest, *MEMORY, *arguments)
    assert code in (1, 2)
    assert said in answer["error"]
