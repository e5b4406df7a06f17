"""Recorded verdicts: whose answer was whose, and what cannot be used."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hirag_dist.evaluation.kinds.judge import read_verdicts
from hirag_dist.evaluation.metrics.win_rates import AnswerPair


def lines(path: Path, *records: object) -> str:
    path.write_text("\n".join(json.dumps(record) for record in records))
    return str(path)


def record(question: str, winner: object, swapped: bool = False, **more: Any) -> dict[str, Any]:
    one, other = ("b", "a") if swapped else ("a", "b")
    about = {"query_id": question, "answer_1_method": one, "answer_2_method": other}
    return about | {"overall": {"winner": winner, "explanation": "…"}} | more


def test_the_winner_is_whoever_wrote_the_answer(tmp_path: Path) -> None:
    path = lines(
        tmp_path / "v.jsonl",
        record("q1", "Answer 1"),
        record("q1", "Answer 1", swapped=True),
        record("q2", "tie"),
        record("q2", "a", swapped=True),  # the method by its name
    )
    found, _ = read_verdicts([path])
    assert found.pairs == (AnswerPair("a", "b"),)
    assert found.swapped.tolist() == [False, True, False, True]
    assert found.score.tolist() == [1.0, 0.0, 0.5, 1.0]
    assert (found.questions, found.criteria) == (("q1", "q2"), ("overall",))


def test_the_first_record_decides_who_is_first_unless_it_says_that_it_is_swapped(tmp_path: Path) -> None:
    exchanged = record("q1", "Answer 1", swapped=True) | {"swapped": True}
    path = lines(tmp_path / "v.jsonl", exchanged, record("q1", "Answer 1"))
    found, _ = read_verdicts([path])
    assert found.pairs == (AnswerPair("a", "b"),)
    assert found.score.tolist() == [0.0, 1.0]


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        ({"query_id": "q1", "overall": {"winner": "1"}}, "answer_1_method"),
        ({**record("q1", "1"), "answer_2_method": "a"}, "both answers are of a"),
        (record("q1", "1", swapped=True) | {"swapped": False}, "swapped is False"),
        ({"id": "q1: a before b", "dead_letter": "cut off", "attempts": 3}, "a dead letter: cut off"),
    ],
)
def test_what_cannot_be_used_is_told(tmp_path: Path, broken: dict[str, Any], why: str) -> None:
    found, unreadable = read_verdicts([lines(tmp_path / "v.jsonl", record("q0", "1"), broken)])
    assert len(found) == 1
    assert why in unreadable[0].reason
    assert unreadable[0].record == 1
