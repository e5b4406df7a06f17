"""Scores of several systems: which questions count where, what is missing, paired differences, costs."""

from __future__ import annotations

import math
from typing import Any

import pytest

from hirag_dist.evaluation.kinds.qa_scores import AnswerCost, Scoreboard
from hirag_dist.evaluation.kinds.scoring_rules import ScoringRules
from hirag_dist.evaluation.page import render_page
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


def test_questions_are_sorted_by_what_can_be_scored() -> None:
    assert results({"a": RIGHT})["questions"] == {"answerable": 3, "unanswerable": 2, "without gold": 1}


def test_types_can_be_named_unanswerable() -> None:
    rules = ScoringRules(unanswerable_types=frozenset({"place"}))
    assert results({"a": RIGHT}, rules)["questions"]["unanswerable"] == 3


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


def test_what_was_never_added_counts_for_nothing() -> None:
    made = Scoreboard(QUESTIONS, ["a"], ScoringRules())
    made.add(0, "a", QUESTIONS[0], "Dundee")
    found = made.findings({}).results["systems"]["a"]
    assert (found["scored"], found["missing"]) == (1, 0)
    assert found["scores"]["hotpotqa"]["exact"].value == 1.0
    assert found["unanswerable"] == {"questions": 0, "refused": None}


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


def test_by_type_without_those_that_have_no_answer() -> None:
    found = results({"a": RIGHT, "b": WRONG})["by_type"]
    assert {name: said["questions"] for name, said in found.items()} == {"place": 1, "person": 2}
    assert found["person"]["systems"]["b"]["f1"].value == pytest.approx((2 / 3) / 2)


def test_several_definitions_of_one_answer() -> None:
    found = results({"a": ("Dundee", "Hay", "yes it is", "", "", "")}, ScoringRules(("hotpotqa", "musique")))
    scores = found["systems"]["a"]["scores"]
    assert found["definitions"] == ["hotpotqa", "musique"]
    assert scores["hotpotqa"]["f1"].value == pytest.approx(2 / 3)
    assert scores["musique"]["f1"].value == pytest.approx((1 + 1 + 0.5) / 3)


def test_costs_are_means_of_an_answer() -> None:
    made = board({"a": RIGHT})
    assert made.findings({}).results["systems"]["a"]["cost"] is None
    for place, seconds in enumerate((1.0, 2.0, 3.0)):
        made.add(place, "a", QUESTIONS[place], "x", AnswerCost(1, 1000, 10 * place, 0.25, 900, 5.0, seconds))
    cost = made.findings({}).results["systems"]["a"]["cost"]
    assert (cost["calls"], cost["input_tokens"], cost["output_tokens"], cost["usd"]) == (1.0, 1000.0, 10.0, 0.25)
    assert (cost["seconds"], cost["seconds_p50"]) == (2.0, 2.0)


def test_other_refusals() -> None:
    german = ("Dundee", "Hay", "ja", "Keine Angabe", "Keine Angabe.", "")
    rules = ScoringRules(refusals=("Keine Angabe", "Insufficient information"))
    assert results({"a": german}, rules)["systems"]["a"]["unanswerable"]["refused"].value == 1.0


def test_only_questions_without_an_answer() -> None:
    made = Scoreboard(QUESTIONS[3:5], ["a"], ScoringRules())
    for place in range(2):
        made.add(place, "a", QUESTIONS[3 + place], "I do not know")
    findings = made.findings({})
    assert math.isnan(findings.results["systems"]["a"]["scores"]["hotpotqa"]["exact"].value)
    assert "Refusals" in [section.title for section in findings.sections]
    assert not [section for section in findings.sections if section.title.startswith("Exact match")]


def test_systems_with_hostile_names_are_drawn() -> None:
    findings = board({"<script>alert(1)</script>": RIGHT, "b": WRONG}).findings({})
    report = {
        "kind": "qa",
        "created_at": "",
        "index": None,
        "complete": True,
        "questions": {},
        "usage": [],
        "this_run": {"calls": 0, "tokens": 0, "usd": 0.0, "rate_limited": 0, "failed": 0},
        "total_usd": 0.0,
        "seconds": 0.0,
        "units": {"new": 0, "from_before": 0},
        "dead_letters": {"count": 0, "shown": []},
        "version": "",
    }
    page = render_page(report, findings.sections)
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert" in page
