"""Win rates and the doubts about them, from verdicts few enough to count by hand."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from hirag_dist.evaluation.kinds.judge import VerdictRow, judging_sections, position_bias, win_rates

WIN, TIE, LOSS = 1.0, 0.5, 0.0
PAIRS = [("a", "b"), ("a", "c")]


def verdicts(rows: Sequence[tuple[int, bool, float]], replicate: int = 0, pair: int = 0) -> list[VerdictRow]:
    """Rows are (question, whether swapped, score of the first method)."""
    return [VerdictRow(PAIRS[pair], "overall", f"q{question}", replicate, *rest) for question, *rest in rows]


BOTH_ORDERS = verdicts(
    [
        *((0, False, WIN), (0, True, WIN)),  # a wins
        *((1, False, WIN), (1, True, LOSS)),  # whichever stands first wins
        *((2, False, TIE), (2, True, LOSS)),
        (3, False, LOSS),  # the other order is a dead letter
    ]
)


def test_a_question_counts_once_and_a_tie_half() -> None:
    results = win_rates(BOTH_ORDERS, PAIRS[:1], ["overall"])
    found = results["pairs"][0]["criteria"]["overall"]
    assert (found["wins"], found["ties"], found["losses"]) == (3, 1, 3)
    assert found["win_rate"].value == pytest.approx((1 + 0.5 + 0.25 + 0) / 4)
    assert (results["questions"], results["verdicts"]) == (4, 7)


def test_shares_as_far_from_a_draw_tie_in_ranks() -> None:
    rows = [
        verdicts([(0, False, WIN), (1, False, score)], replicate) for replicate, score in enumerate((WIN, LOSS, LOSS))
    ]
    rows[0][0] = rows[0][0]._replace(score=LOSS)  # q0: two of three, q1: one of three
    found = win_rates([row for each in rows for row in each], PAIRS[:1], ["overall"])["pairs"][0]["criteria"]["overall"]
    assert found["z"] == 0.0


def test_a_pair_without_a_verdict_has_no_figure() -> None:
    results = win_rates(BOTH_ORDERS, PAIRS, ["overall"])
    empty = results["pairs"][1]["criteria"]["overall"]
    assert (empty["wins"], empty["p"], empty["p_holm"], empty["position"]["twice"]) == (0, None, None, 0)
    first = results["pairs"][0]["criteria"]["overall"]
    assert first["p_holm"] == first["p"]
    assert judging_sections(results)


def test_position_bias_by_hand() -> None:
    assert position_bias(BOTH_ORDERS) == {
        "first_shown": pytest.approx(4.5 / 7),  # the answer shown first got 1, 0, 1, 1, 0.5, 1, 0
        "when_first": 2.5 / 4,
        "when_second": 1 / 3,
        "twice": 3,
        "flipped": 1,
        "half_tied": 1,
    }


def test_flips_are_of_one_pair_and_replicate() -> None:
    first, second = [(0, False, WIN)], [(0, True, LOSS)]
    assert position_bias(verdicts(first) + verdicts(second, replicate=1))["twice"] == 0
    assert position_bias(verdicts(first) + verdicts(second, pair=1))["twice"] == 0
    assert position_bias(verdicts(first) + verdicts(second))["flipped"] == 1
