"""Hits of gold passages, and the choice of passages and questions of a set."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.source_ranking import Question, figures_of, read_passages, read_questions


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


@pytest.mark.parametrize(
    ("ranked", "figures"),
    [
        (["a", "b"], [1.0, 1.0, 1.0, 1.0, 1.0]),
        (["b", "x", "y", "z", "w", "a"], [0.5, 0.5, 1.0, 0.0, 1.0]),
        (["x", "y", "a"], [0.0, 0.5, 0.5, 0.0, 0.0]),
        ([*"xyzuvwrstq", "a", "b"], [0.0, 0.0, 0.0, 0.0, 0.0]),
        ([], [0.0, 0.0, 0.0, 0.0, 0.0]),
    ],
)
def test_recall_and_all_evidence(ranked: list[str], figures: list[float]) -> None:
    assert figures_of(ranked, frozenset("ab")) == figures


def test_a_set_of_passages(tmp_path: Path) -> None:
    write(tmp_path / "corpus.jsonl", [{"passage_id": "p1", "title": "T", "text": "Of it."}])
    write(
        tmp_path / "questions.jsonl",
        [{"question": "Who?", "gold_passage_ids": ["p1", "p2"], "type": "bridge"}],
    )
    assert list(read_passages(tmp_path)) == [("p1", "T", "T\nOf it.", "p1")]
    assert read_questions(tmp_path) == [Question("Who?", frozenset({"p1", "p2"}), single=False)]


def test_a_set_of_documents_whose_questions_may_have_no_evidence(tmp_path: Path) -> None:
    write(tmp_path / "documents.jsonl", [{"doc_id": "d1", "text": "Said."}])
    rows = [
        {"question": "One?", "evidence_doc_ids": ["d1"], "type": "Single"},
        {"question": "None?", "evidence_doc_ids": None, "type": "Null"},
        {"question": "Lost?", "evidence_doc_ids": [None], "type": "Single"},
    ]
    write(tmp_path / "questions.jsonl", rows)
    assert list(read_passages(tmp_path)) == [("d1", "d1", "d1\nSaid.", "d1")]
    assert read_questions(tmp_path) == [Question("One?", frozenset({"d1"}), single=True)]
