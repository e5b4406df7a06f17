"""Scores of several systems: which questions count where, what is missing, paired differences, costs."""

from __future__ import annotations

from typing import Any

import pytest

from hirag_dist.evaluation.kinds.qa_scores import Scoreboard, ScoringRules
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


def board(answers: dict[str, tuple[str | None, ...]], rules: ScoringRules | None = None) -> Scoreboard:
    made = Scoreboard(QUESTIONS, list(answers), rules or ScoringRules())
    for system, texts in answers.items():
        for place, (question, text) in enumerate(zip(QUESTIONS, texts, strict=True)):
            if text is None:
                made.add_missing(place, system)
            else:
                made.add(place, system, question, text)
    return made


def results(answers: dict[str, tuple[str | None, ...]], rules: ScoringRules | None = None) -> Any:
    return board(answers, rules).findings({}).results


def test_answers_and_refusals_are_scored_apart() -> None:
    found = results({"right": RIGHT, "wrong": WRONG})["systems"]
    right, wrong = found["right"], found["wrong"]
    assert right["scored"] == wrong["scored"] == 3
    assert right["scores"]["hotpotqa"]["exact"].value == right["scores"]["hotpotqa"]["f1"].value == 1.0
    assert right["unanswerable"]["refused"].value == 1.0
    assert right["refused_though_answerable"] == 0.0
    assert wrong["scores"]["hotpotqa"]["exact"].value == 0.0
    assert wrong["scores"]["hotpotqa"]["f1"].value == pytest.approx((2 / 3) / 3), "Ethel, of Ethel Hay"
    assert wrong["unanswerable"] == {"questions": 2, "refused": wrong["unanswerable"]["refused"]}
    assert wrong["unanswerable"]["refused"].value == 0.5
    assert wrong["refused_though_answerable"] == pytest.approx(1 / 3)


def test_an_answer_that_is_missing_is_wrong_and_is_counted() -> None:
    found = results({"a": ("Dundee", None, None, None, "No answer", None)})["systems"]["a"]
    assert (found["scored"], found["missing"]) == (3, 4)
    assert found["scores"]["hotpotqa"]["exact"].value == pytest.approx(1 / 3)
    assert found["unanswerable"]["refused"].value == 0.5, "silence is no refusal"


def test_differences_are_paired_and_of_each_two_systems() -> None:
    found = results({"right": RIGHT, "wrong": WRONG, "again": RIGHT})["differences"]
    assert [(each["first"], each["second"]) for each in found] == [
        ("right", "wrong"),
        ("right", "again"),
        ("wrong", "again"),
    ]
    assert found[0]["exact"].value == 1.0
    assert (found[0]["exact"].low, found[0]["exact"].high) == (1.0, 1.0), "each question differs by as much"
    assert (found[1]["f1"].low, found[1]["f1"].high) == (0.0, 0.0)
    assert all(each["questions"] == 3 for each in found)
