"""Comparison of systems: means over what is known, paired differences, groups by type, and the family of tests."""

from __future__ import annotations

import math

import pytest

from hirag_dist.evaluation.board import Board, all_pairs, comparison, difference_table, mean_table
from hirag_dist.evaluation.metrics.statistics import holm, wilcoxon

SCORES = {"a": [1.0, 1.0, 1.0, 1.0, 0.5, 0.0], "b": [0.0, 0.5, 0.5, 0.5, 0.5, 0.5], "c": [0.0] * 6}


def board(scores: dict[str, list[float | None]], types: list[str] | None = None) -> Board:
    n_questions = len(next(iter(scores.values())))
    made = Board(types or [""] * n_questions, list(scores), ["score"])
    for system, values in scores.items():
        for question, value in enumerate(values):
            made.add(question, system, {"score": value})
    return made


def test_means_and_differences_are_over_the_questions_that_are_known() -> None:
    made = board({"a": [1.0, None, 0.0, 1.0], "b": [0.0, 1.0, None, 1.0]})
    found = made.results(["score"])
    assert found["questions"] == 4
    assert found["systems"]["a"]["score"].value == pytest.approx(2 / 3)
    (difference,) = found["differences"]
    assert (difference["first"], difference["second"], difference["questions"]) == ("b", "a", 2)
    assert difference["difference"].value == -0.5
    assert made.average("a", "score") == pytest.approx(2 / 3)


def test_by_default_all_are_compared_with_the_first_and_with_naive_retrieval() -> None:
    found = board({"x": [1.0], "y": [1.0], "naive": [1.0]}).results(["score"])["differences"]
    assert [(each["first"], each["second"]) for each in found] == [("x", "naive"), ("y", "naive"), ("y", "x")]


def test_the_family_of_tests_is_the_pairs_of_one_measure() -> None:
    found = board(SCORES).results(["score"], all_pairs(list(SCORES)))["differences"]
    gaps = [[one - other for one, other in zip(SCORES[a], SCORES[b], strict=True)] for a, b in all_pairs(list(SCORES))]
    alone = [test.p for gap in gaps if (test := wilcoxon(gap))]
    assert [each["p"] for each in found] == pytest.approx(alone)
    assert [each["p_holm"] for each in found] == pytest.approx(holm(alone))
    assert any(each["p_holm"] > 1.5 * each["p"] for each in found)


def test_a_system_without_a_value_has_no_figure_and_is_in_no_family() -> None:
    found = board({"a": [1.0, 0.0, 1.0], "b": [0.0, 0.0, 0.0], "c": [None, None, None]}).results(["score"])
    assert math.isnan(found["systems"]["c"]["score"].value)
    first, second = found["differences"]
    assert first["p_holm"] == first["p"]
    assert (second["questions"], second["p"], second["p_holm"]) == (0, None, None)
    assert board({"c": [None]}).average("c", "score") is None


def test_results_are_repeated_for_each_type_where_there_are_several() -> None:
    made = board({"a": [1.0, 0.0, 0.5]}, ["multi", "single", "single"])
    by_type = made.results(["score"])["by_type"]
    assert {kind: (each["questions"], each["systems"]["a"]["score"].value) for kind, each in by_type.items()} == {
        "multi": (1, 1.0),
        "single": (2, 0.25),
    }
    assert board({"a": [1.0, 0.0]}, ["same", "same"]).results(["score"])["by_type"] == {}


def test_tables_have_a_row_for_each_system_and_pair() -> None:
    results = board(SCORES).results(["score"])
    assert [row[0] for row in mean_table("t", results).rows] == ["a", "b", "c"]
    assert [row[1:3] for row in difference_table(results)[0].rows] == [["b", "a"], ["c", "a"]]
    assert not difference_table(board({"a": [1.0]}).results(["score"]))
    assert len(comparison("t", results)) == 3
