"""Exact match and F1 by each definition: values worked by hand from the official scripts' rules, and recorded ones."""

from __future__ import annotations

import pytest

from hirag_dist.evaluation.metrics.exact_match_f1 import (
    DEFINITIONS,
    AnswerScore,
    is_refusal,
    normalised,
    score_answer,
)


def f1(answer: str, *gold: str, by: str = "hotpotqa") -> float:
    return score_answer(answer, gold, DEFINITIONS[by]).f1


def exact(answer: str, *gold: str, by: str = "hotpotqa") -> float:
    return score_answer(answer, gold, DEFINITIONS[by]).exact


def test_case_articles_punctuation_and_spaces_do_not_tell_answers_apart() -> None:
    assert normalised(" The  Beatles'\tLet-It-Be! ") == "beatles letitbe"
    assert exact("the U.S.A.", "USA") == 1.0
    assert exact("a cat", "an cat") == 1.0
    assert exact("theatre", "atre") == 0.0, "an article is a word, not a beginning"


def test_tokens_are_counted_as_often_as_both_have_them() -> None:
    score = score_answer("to be or not to be", ["be or be not be"])
    # shared: be twice, or, not = 4; of 6 given and 5 wanted
    assert score == AnswerScore(0.0, pytest.approx(2 * (4 / 6) * (4 / 5) / (4 / 6 + 4 / 5)), 4 / 6, 4 / 5)


def test_yes_and_no_are_a_whole_in_hotpotqa() -> None:
    assert f1("yes, they are", "yes") == 0.0
    assert f1("yes", "yes they are") == 0.0
    assert f1("YES.", "yes") == 1.0


def test_yes_is_an_ordinary_word_in_musique() -> None:
    assert f1("yes they are", "yes", by="musique") == 0.5  # precision 1/3, recall 1


def test_nothing_against_nothing() -> None:
    for name, expected in {"hotpotqa": 0.0, "musique": 1.0}.items():
        assert exact("the", "!", by=name) == 1.0
        assert f1("the", "!", by=name) == expected
        assert f1("", "Paris", by=name) == 0.0


def test_every_figure_is_the_best_over_the_gold_answers_each_by_itself() -> None:
    score = score_answer("Stanley Hall of Clark", ["Hall", "President G. Stanley Hall of Clark University"])
    assert score.precision == 1.0, "of the second"
    assert score.recall == 1.0, "of the first"
    assert score.f1 == pytest.approx(2 * 1.0 * (4 / 7) / (1.0 + 4 / 7)), "of the second"
    assert exact("Stanley Hall", "G. Stanley Hall", "Stanley Hall") == 1.0


def test_the_reference_counts_tokens_as_they_are_written() -> None:
    assert exact("The  Rhine!", "the rhine", by="hirag") == 1.0
    assert exact("Rhine", "the Rhine", by="hirag") == 0.0, "articles stay"
    assert f1("rhine", "Rhine", by="hirag") < 1.0, "case tells tokens apart"
    assert f1("", "Rhine", by="hirag") == 0.0


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
