"""Scores of several systems: which questions count where, and what is missing."""

from __future__ import annotations

import pytest

from hirag_dist.evaluation.kinds.qa import (
    DEFINITIONS,
    AnswerScore,
    ScoredAnswers,
    ScoringRules,
    is_refusal,
    score_answer,
)
from hirag_dist.evaluation.questions import Question


def test_tokens_are_counted_as_often_as_both_have_them() -> None:
    score = score_answer("to be or not to be", ["be or be not be"])
    # shared: be twice, or, not = 4; of 6 given and 5 wanted
    assert score == AnswerScore(0.0, pytest.approx(2 * (4 / 6) * (4 / 5) / (4 / 6 + 4 / 5)), 4 / 6, 4 / 5)


def test_every_figure_is_the_best_over_the_gold_answers_each_by_itself() -> None:
    score = score_answer("Stanley Hall of Clark", ["Hall", "President G. Stanley Hall of Clark University"])
    assert score.precision == 1.0, "of the second"
    assert score.recall == 1.0, "of the first"
    assert score.f1 == pytest.approx(2 * 1.0 * (4 / 7) / (1.0 + 4 / 7)), "of the second"
    assert score_answer("Stanley Hall", ["G. Stanley Hall", "Stanley Hall"]).exact == 1.0


@pytest.mark.parametrize(
    ("answer", "refuses"),
    [
        ("I do not know", True),
        ("I do not know. The context names no year.", True),
        ("", True),
        ("Unknown", True),
        ("Unknown Pleasures", False),
        ("I do not know why, but it is 1755", False),
    ],
)
def test_refusals(answer: str, refuses: bool) -> None:
    assert is_refusal(answer) is refuses


QUESTIONS = (
    Question("q1", "Where?", "place", ("Dundee",)),
    Question("q2", "Who?", "person", ("Ethel Hay", "Hay")),
    Question("q3", "Is it?", "person", ("yes",)),
    Question("q4", "What is not there?", "null", ("Insufficient information",)),
    Question("q5", "What is not there either?", "", ("nothing at all",), answerable=False),
    Question("q6", "What nobody wrote down?"),
)
ANSWERS: dict[str, tuple[str | None, ...]] = {
    "right": ("Dundee", "Hay", "Yes.", "I do not know", "I do not know", "anything"),
    "wrong": ("Perth", "Ethel", "I do not know", "Dundee", "No answer", "anything"),
    "silent": ("Dundee", None, None, None, "No answer", None),
}


def test_answers_and_refusals_are_scored_apart_and_one_that_is_missing_is_wrong() -> None:
    made = ScoredAnswers(QUESTIONS, list(ANSWERS), ScoringRules())
    for system, texts in ANSWERS.items():
        for place, text in enumerate(texts):
            made.add(place, system, text)
    found = made.findings({}).results
    right, wrong = found["systems"]["right"], found["systems"]["wrong"]
    assert found["answers"]["right"] == {"scored": 3, "missing": 0, "unanswerable": 2}
    assert right["exact"].value == right["f1"].value == 1.0
    assert wrong["exact"].value == 0.0
    assert wrong["f1"].value == pytest.approx((2 / 3) / 3), "Ethel, of Ethel Hay"
    refusals = {system: [each.value for each in of.values()] for system, of in found["refusals"].items()}
    assert refusals.pop("silent")[0] == 0.5, "silence is no refusal"
    assert refusals == {"right": [1.0, 0.0], "wrong": [0.5, pytest.approx(1 / 3)]}
    assert found["questions"] == {"answerable": 3, "unanswerable": 2, "without gold": 1}
    assert found["answers"]["silent"] == {"scored": 3, "missing": 4, "unanswerable": 2}
    assert found["systems"]["silent"]["exact"].value == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("by", "answer", "gold", "exact", "f1"),
    [
        ("hotpotqa", " The  Beatles'\tLet-It-Be! ", "beatles letitbe", 1, 1),  # case, articles, punctuation, spaces
        ("hotpotqa", "a cat", "an cat", 1, 1),
        ("hotpotqa", "theatre", "atre", 0, 0),  # an article is a word, not a beginning
        ("hotpotqa", "yes, they are", "yes", 0, 0),  # yes and no are a whole
        ("hotpotqa", "yes", "yes they are", 0, 0),
        ("hotpotqa", "YES.", "yes", 1, 1),
        ("musique", "yes they are", "yes", 0, 0.5),  # precision 1/3, recall 1
        ("hotpotqa", "the", "!", 1, 0),  # nothing against nothing
        ("musique", "the", "!", 1, 1),
        ("hotpotqa", "", "Paris", 0, 0),
        ("musique", "", "Paris", 0, 0),
        ("hirag", "", "Paris", 0, 0),
        ("hirag", "The  Rhine!", "the rhine", 1, 0.25),  # tokens of a model, which case and punctuation tell apart
        ("hirag", "rhine", "Rhine", 1, 0.5),
        ("hirag", "Rhine", "the Rhine", 0, 0.4),  # articles stay
    ],
)
def test_words_are_compared_as_a_definition_says(by: str, answer: str, gold: str, exact: float, f1: float) -> None:
    found = score_answer(answer, [gold], DEFINITIONS[by])
    assert (found.exact, found.f1) == (exact, pytest.approx(f1))
