"""Win rates and the doubts about them, from verdicts few enough to count by hand."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from hirag_dist.evaluation.metrics.win_rates import (
    AnswerPair,
    VerdictRow,
    VerdictTable,
    by_question,
    majority,
    position_bias,
    score_differences,
    tally,
    verdict_table,
)

WIN, TIE, LOSS = 1.0, 0.5, 0.0


PAIRS = (AnswerPair("a", "b"), AnswerPair("a", "c"))


def verdicts(
    rows: Sequence[tuple[int, bool, float]], *, askings: Sequence[int] = (), pairs: Sequence[int] = ()
) -> VerdictTable:
    """Rows are (question, whether swapped, score of the first method)."""
    nothing = [0] * len(rows)
    return verdict_table(
        [
            VerdictRow(PAIRS[pair], "overall", f"q{question}", asking, swapped, score)
            for (question, swapped, score), asking, pair in zip(rows, askings or nothing, pairs or nothing, strict=True)
        ],
        PAIRS,
    )


NOTHING = verdicts([])
BOTH_ORDERS = verdicts(
    [
        *((0, False, WIN), (0, True, WIN)),  # a wins
        *((1, False, WIN), (1, True, LOSS)),  # whichever stands first wins
        *((2, False, TIE), (2, True, LOSS)),
        (3, False, LOSS),  # the other order is a dead letter
    ]
)


def test_a_tie_is_half_a_win() -> None:
    counted = tally(BOTH_ORDERS)
    assert (counted.wins, counted.ties, counted.losses, counted.n) == (3, 1, 3, 7)
    assert counted.rate == 3.5 / 7
    assert tally(NOTHING).rate is None


def test_verdicts_on_a_question_stay_together() -> None:
    sums, counts = by_question(BOTH_ORDERS)
    assert sums.tolist() == [2, 1, 0.5, 0]
    assert counts.tolist() == [2, 2, 2, 1]
    assert score_differences(BOTH_ORDERS).tolist() == [100, 0, -50, -100]
    none = BOTH_ORDERS.where(extra=BOTH_ORDERS.question == 0)
    assert score_differences(none).tolist() == [100], "questions without a verdict are left out"


def test_position_bias_by_hand() -> None:
    bias = position_bias(BOTH_ORDERS)
    # The answer shown first got 1, 0, 1, 1, 0.5, 1, 0.
    assert bias.first_shown == pytest.approx(4.5 / 7)
    assert (bias.when_first, bias.when_second) == (2.5 / 4, 1 / 3)
    assert (bias.twice, bias.flipped, bias.half_tied) == (3, 1, 1)


def test_flips_are_of_one_pair_judge_and_replicate() -> None:
    rows = [(0, False, WIN), (0, True, LOSS)]
    assert position_bias(verdicts(rows, askings=[0, 1])).twice == 0
    assert position_bias(verdicts(rows, pairs=[0, 1])).twice == 0
    assert position_bias(verdicts(rows)).flipped == 1


def test_a_majority_is_more_than_half() -> None:
    """Two wins, one loss, two ties: no majority, so a tie (GraphRAG paper, section 5.2)."""
    first = [WIN, WIN, WIN, LOSS, TIE]
    none = [WIN, WIN, LOSS, TIE, TIE]
    second = [LOSS, LOSS, LOSS, WIN, WIN]
    rows = [(q, False, score) for q, scores in enumerate((first, none, second)) for score in scores]
    assert majority(verdicts(rows)).tolist() == [1, 0, -1]
