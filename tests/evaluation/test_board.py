"""Comparison of systems: means over what is known, paired differences, groups by type, and the family of tests."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest
from scipy import stats

from hirag_dist.evaluation.board import Board, bootstrap_means, holm, wilcoxon
from hirag_dist.types.index_info import Interval


def test_the_interval_agrees_with_scipys() -> None:
    values = np.random.default_rng(8).normal(size=60)
    theirs = stats.bootstrap((values,), np.mean, method="percentile", random_state=3, n_resamples=9999)
    (found,) = bootstrap_means(values[:, None])
    low, high = theirs.confidence_interval
    assert (found.low, found.high) == pytest.approx((low, high), abs=0.02)


def test_columns_are_drawn_together() -> None:
    """A column that is another one plus a constant has a difference without any spread, however wide both are."""
    values = np.random.default_rng(2).random(40)
    together = bootstrap_means(np.stack([values, values + 1, values + 1 - values], axis=1))
    assert together[1].low == pytest.approx(together[0].low + 1)
    assert together[2] == Interval(*[pytest.approx(1.0)] * 3)
    assert together[2].low > 0
    assert bootstrap_means((values - values)[:, None]) == [Interval(0.0, 0.0, 0.0)]


def test_signed_ranks_agree_with_scipy() -> None:
    differences = np.random.default_rng(9).integers(-2, 4, 60).astype(float)
    theirs = stats.wilcoxon(differences, method="asymptotic").pvalue
    found = wilcoxon(np.append(differences, np.nan))
    assert found.p == pytest.approx(theirs)
    assert found.z > 0
    assert wilcoxon([0.0, 0.0]) == (0.0, 1.0)
    assert wilcoxon([np.nan]) is None


def test_holm_by_hand() -> None:
    """0.005·4, 0.01·3, 0.03·2, 0.04·1: the last is raised to the one before it."""
    assert holm([0.04, 0.005, 0.03, 0.01]) == pytest.approx([0.06, 0.02, 0.06, 0.03])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


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
    pairs = list(combinations(SCORES, 2))
    found = board(SCORES).results(["score"], pairs)["differences"]
    gaps = [[one - other for one, other in zip(SCORES[a], SCORES[b], strict=True)] for a, b in pairs]
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
