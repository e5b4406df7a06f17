"""Win rates and the doubts about them, from verdicts few enough to count by hand."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from hirag_dist.core.prompts.reply_validation import MalformedReply
from hirag_dist.evaluation.kinds.judge import (
    FIRST,
    SECOND,
    TIE,
    Verdict,
    VerdictRow,
    judging_sections,
    parse_verdicts,
    position_bias,
    win_rates,
    winner_of,
)
from hirag_dist.types import ChatReply

TWO = ("comprehensiveness", "overall")
WINNERS: list[tuple[int | None, list[object]]] = [
    (FIRST, ["Answer 1", 1, "[[A]]", "**Answer 1**", "The first answer"]),
    (SECOND, ["2", 2, "B", "answer two", "The second response"]),
    (TIE, ["It's a tie", 0, "both", "Neither", "[[C]]"]),
    (None, [None, "", 3, 1.5, True, [], "12", "Answer 1 or Answer 2", "Answer 1 is not better", "Answer 1 loses"]),
    (None, ["not a tie", "Both Answer 1 and Answer 2 are good", "1, 2 or tie"]),
]


@pytest.mark.parametrize(("winner", "said"), [(winner, said) for winner, texts in WINNERS for said in texts])
def test_the_winner_is_read_and_never_guessed(winner: int | None, said: object) -> None:
    assert winner_of(said) == winner


ASKED = {
    "verdicts": [
        {"criterion": "overall", "reason": "It says more.", "winner": "2"},
        {"criterion": "comprehensiveness", "reason": "Both list three.", "winner": "1"},
    ]
}


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(ASKED),
        '{"Comprehensiveness": {"Winner": "Answer 1", "Explanation": "…"}, "Overall Winner": {"Winner": "B"}}',
        '```json\n[{"criterion": "overall", "winner": 2}, {"criterion": "comprehensiveness", "winner": 1},]\n```',
        "1. Comprehensiveness: 1\n(2) Overall: 2",
        '{"results": [{"criterion": "overall", "winner": 2}, {"criterion": "comprehensiveness", "winner": 1}]}',
        "<think>Answer 2 first, I thought.</think>\n**Comprehensiveness**: Answer 1\n**Overall Winner**: Answer 2",
    ],
)
def test_the_requested_form_and_others_that_say_the_same(text: str) -> None:
    found = parse_verdicts(ChatReply(text), TWO)
    assert [(name, verdict.winner) for name, verdict in found.items()] == [(TWO[0], FIRST), (TWO[1], SECOND)]
    assert text[:12] != '{"verdicts":' or found["overall"] == Verdict(SECOND, "It says more.")


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        (ChatReply(""), "empty"),
        (ChatReply(json.dumps(ASKED), finish_reason="length"), "cut off"),
        (ChatReply("I'm sorry, I cannot compare these."), "refused"),
        (ChatReply('{"overall": "2"}'), "no verdict on comprehensiveness"),
        (ChatReply('{"overall": "2", "comprehensiveness": "Answer 1 or 2?"}'), "not 1, 2 or tie: Answer 1 or 2"),
        (ChatReply("Overall: 1\nComprehensiveness: 2\nOverall: 2"), "contradicting verdicts on overall"),
    ],
)
def test_unusable_replies_say_why(reply: ChatReply, why: str) -> None:
    with pytest.raises(MalformedReply, match=why.replace("?", r"\?")):
        parse_verdicts(reply, TWO)


WIN, HALF, LOSS = 1.0, 0.5, 0.0
PAIRS = [("a", "b"), ("a", "c")]


def verdicts(rows: Sequence[tuple[int, bool, float]], replicate: int = 0, pair: int = 0) -> list[VerdictRow]:
    """Rows are (question, whether swapped, score of the first method)."""
    return [VerdictRow(PAIRS[pair], "overall", f"q{question}", replicate, *rest) for question, *rest in rows]


BOTH_ORDERS = verdicts(
    [
        *((0, False, WIN), (0, True, WIN)),  # a wins
        *((1, False, WIN), (1, True, LOSS)),  # whichever stands first wins
        *((2, False, HALF), (2, True, LOSS)),
        (3, False, LOSS),  # the other order is a dead letter
    ]
)


def test_a_question_counts_once_and_a_tie_half() -> None:
    results = win_rates(BOTH_ORDERS, PAIRS[:1], ["overall"])
    found = results["pairs"][0]["criteria"]["overall"]
    assert (found["wins"], found["ties"], found["losses"]) == (3, 1, 3)
    assert found["win_rate"].value == pytest.approx((1 + 0.5 + 0.25 + 0) / 4)
    assert (results["questions"], results["verdicts"]) == (4, 7)


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
