"""Win rates and the doubts about them, from verdicts few enough to count by hand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from hirag_dist.evaluation.metrics.win_rates import (
    AnswerPair,
    VerdictTable,
    agreement,
    by_question,
    length_bias,
    majority,
    position_bias,
    score_differences,
    tally,
)

WIN, TIE, LOSS = 1.0, 0.5, 0.0


def verdicts(
    rows: Sequence[tuple[int, bool, float]],
    *,
    judges: Sequence[int] | None = None,
    replicates: Sequence[int] | None = None,
    pairs: Sequence[int] | None = None,
    n_questions: int = 4,
) -> VerdictTable:
    """Rows are (question, whether swapped, score of the first method)."""
    zeros = [0] * len(rows)

    def column(values: Sequence[int] | None) -> np.ndarray:
        return np.array(zeros if values is None else values, np.int64)

    return VerdictTable(
        pairs=(AnswerPair("a", "b"), AnswerPair("a", "c")),
        criteria=("overall",),
        questions=tuple(f"q{number}" for number in range(n_questions)),
        judges=("one", "two"),
        pair=column(pairs),
        criterion=column(None),
        question=np.array([row[0] for row in rows], np.int64),
        judge=column(judges),
        replicate=column(replicates),
        swapped=np.array([row[1] for row in rows], bool),
        score=np.array([row[2] for row in rows], np.float64),
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
    assert score_differences(verdicts([(2, False, WIN)])).tolist() == [100], "questions without a verdict are left out"


def test_position_bias_by_hand() -> None:
    bias = position_bias(BOTH_ORDERS)
    # The answer shown first got 1, 0, 1, 1, 0.5, 1, 0.
    assert bias.first_shown == pytest.approx(4.5 / 7)
    assert (bias.when_first, bias.when_second) == (2.5 / 4, 1 / 3)
    assert (bias.twice, bias.flipped, bias.half_tied) == (3, 1, 1)


def test_flips_are_of_one_judge_pair_and_replicate() -> None:
    rows = [(0, False, WIN), (0, True, LOSS)]
    assert position_bias(verdicts(rows, judges=[0, 1])).twice == 0
    assert position_bias(verdicts(rows, replicates=[0, 1])).twice == 0
    assert position_bias(verdicts(rows, pairs=[0, 1])).twice == 0
    assert position_bias(verdicts(rows)).flipped == 1


def test_length_bias_by_hand() -> None:
    lengths = np.array([[20, 10], [10, 30], [5, 5], [-1, 7]])
    found = length_bias(BOTH_ORDERS, lengths)
    assert (found.mean_first, found.mean_second) == (35 / 3, 15), "question 3 has no known length, so counts nowhere"
    assert (found.when_longer, found.n_longer) == (1.0, 2)  # question 0
    assert (found.when_shorter, found.n_shorter) == (0.5, 2)  # question 1; question 2 is as long as the other
    assert found.longer_wins == (2 + 1) / 4


def test_a_majority_is_more_than_half() -> None:
    """Two wins, one loss, two ties: no majority, so a tie (GraphRAG paper, section 5.2)."""
    first = [WIN, WIN, WIN, LOSS, TIE]
    none = [WIN, WIN, LOSS, TIE, TIE]
    second = [LOSS, LOSS, LOSS, WIN, WIN]
    rows = [(q, False, score) for q, scores in enumerate((first, none, second)) for score in scores]
    assert majority(verdicts(rows)).tolist() == [1, 0, -1, 0]


def test_judges_agree_on_what_both_judged() -> None:
    rows = [(q, False, score) for q, score in enumerate([WIN, WIN, LOSS, TIE])]
    other = [(0, False, WIN), (1, False, LOSS), (2, False, LOSS)]
    found = agreement(verdicts([*rows, *other], judges=[0] * 4 + [1] * 3))
    assert found.n_items == 3
    assert found.same == pytest.approx(2 / 3)
    # One says win twice, the other once: p_e = 2/3 · 1/3 + 1/3 · 2/3 = 4/9.
    assert found.cohen == {(0, 1): pytest.approx((2 / 3 - 4 / 9) / (5 / 9))}
    # Fleiss: three wins and three losses: p_e = 1/2.
    assert found.fleiss == pytest.approx((2 / 3 - 1 / 2) / (1 / 2))
