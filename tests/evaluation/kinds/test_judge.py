"""Recorded verdicts: whose answer was whose, and what cannot be used."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hirag_dist.evaluation.kinds.judge import read_verdicts, rows_of_record, write_verdict
from hirag_dist.evaluation.metrics.judge_replies import FIRST, SECOND, TIE
from hirag_dist.evaluation.metrics.win_rates import AnswerPair, verdict_table


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
        ({"answer_1_method": "a", "answer_2_method": "b", "overall": {"winner": "1"}}, "query_id"),
        (record("q1", "who knows"), "neither answer nor a tie"),
        ({**record("q1", "1"), "answer_2_method": "a"}, "both answers are of a"),
        (record("q1", "1", swapped=True) | {"swapped": False}, "swapped is False"),
        ({key: value for key, value in record("q1", "1").items() if key != "overall"}, "no criterion"),
        ({"id": "q1: a before b", "dead_letter": "cut off", "attempts": 3}, "a dead letter: cut off"),
    ],
)
def test_what_cannot_be_used_is_told(tmp_path: Path, broken: dict[str, Any], why: str) -> None:
    found, unreadable = read_verdicts([lines(tmp_path / "v.jsonl", record("q0", "1"), broken)])
    assert len(found) == 1
    assert why in unreadable[0].reason
    assert unreadable[0].record == 1


def test_what_is_written_can_be_read(tmp_path: Path) -> None:
    written = [
        write_verdict(("a", "b"), "q1", "judge:big", 0, False, {"overall": (FIRST, "fuller")}),
        write_verdict(("b", "a"), "q1", "judge:big", 1, True, {"overall": (SECOND, "fuller")}),
        write_verdict(("a", "b"), "q2", "judge:small", 0, False, {"overall": (TIE, "")}),
    ]
    path = lines(tmp_path / "v.jsonl", *({"id": "…", "value": each, "seconds": 1} for each in written))
    found, _ = read_verdicts([path])
    rows = [row for each in written for row in rows_of_record(AnswerPair("a", "b"), each, ["overall"])]
    expected = verdict_table(rows)
    for name in ("pair", "criterion", "question", "asking", "swapped", "score"):
        assert getattr(found, name).tolist() == getattr(expected, name).tolist(), name
    assert found.score.tolist() == [1.0, 1.0, 0.5]
    assert found.asking.tolist() == [0, 1, 2], "by judge and replicate"
