"""Scores of several systems: which questions count where, and what is missing."""

from __future__ import annotations

from typing import Any

import pytest

from hirag_dist.evaluation.kinds.qa import ScoredAnswers, ScoringRules
from hirag_dist.evaluation.questions import Question

QUESTIONS = (
    Question("q1", "Where?", "place", ("Dundee",)),
    Question("q2", "Who?", "person", ("Ethel Hay", "Hay")),
    Question("q3", "Is it?", "person", ("yes",)),
    Question("q4", "What is not there?", "null", ("Insufficient information",)),
    Question("q5", "What is not there either?", "", ("nothing at all",), answerable=False),
    Question("q6", "What nobody wrote down?"),
)
RIGHT = ("Dundee", "Hay", "Yes.", "I do not know", "I do not know", "anything")
WRONG = ("Perth", "Ethel", "I do not know", "Dundee", "No answer", "anything")


def results(answers: dict[str, tuple[str | None, ...]]) -> Any:
    made = ScoredAnswers(QUESTIONS, list(answers), ScoringRules())
    for system, texts in answers.items():
        for place, text in enumerate(texts):
            made.add(place, system, text)
    return made.findings({}).results


def test_answers_and_refusals_are_scored_apart() -> None:
    found = results({"right": RIGHT, "wrong": WRONG})
    right, wrong = found["systems"]["right"], found["systems"]["wrong"]
    assert found["answers"]["right"] == {"scored": 3, "missing": 0, "unanswerable": 2}
    assert right["exact"].value == right["f1"].value == 1.0
    assert wrong["exact"].value == 0.0
    assert wrong["f1"].value == pytest.approx((2 / 3) / 3), "Ethel, of Ethel Hay"
    refusals = {system: [each.value for each in found["refusals"][system].values()] for system in ("right", "wrong")}
    assert refusals == {"right": [1.0, 0.0], "wrong": [0.5, pytest.approx(1 / 3)]}
    assert found["questions"] == {"answerable": 3, "unanswerable": 2, "without gold": 1}


def test_an_answer_that_is_missing_is_wrong_and_is_counted() -> None:
    found = results({"a": ("Dundee", None, None, None, "No answer", None)})
    assert found["answers"]["a"] == {"scored": 3, "missing": 4, "unanswerable": 2}
    assert found["systems"]["a"]["exact"].value == pytest.approx(1 / 3)
    assert found["refusals"]["a"]["refused"].value == 0.5, "silence is no refusal"


def test_a_line_of_scores_holds_the_answer_with_its_gold_answers_and_scores() -> None:
    made = ScoredAnswers(QUESTIONS, ["a"], ScoringRules())
    line = made.add(1, "a", "Hay", {"calls": 1.0})
    assert line["scores"] == {"exact": 1.0, "f1": 1.0, "precision": 1.0, "recall": 1.0}
    assert (line["gold_answers"], line["cost"]) == (["Ethel Hay", "Hay"], {"calls": 1.0})
    assert made.board.average("a", "calls") == 1.0
