"""Replies of judges in all accepted forms, and unusable ones."""

from __future__ import annotations

import json

import pytest

from hirag_dist.core.prompts.reply_validation import MalformedReply
from hirag_dist.evaluation.metrics.judge_replies import FIRST, SECOND, TIE, Verdict, parse_verdicts, winner_of
from hirag_dist.types import ChatReply

TWO = ("comprehensiveness", "overall")
WINNERS: list[tuple[int | None, list[object]]] = [
    (FIRST, ["Answer 1", 1, 1.0, "[[A]]", "**Answer 1**", "The first answer"]),
    (SECOND, ["2", 2, "B", "answer two", "The second response wins"]),
    (TIE, ["It's a tie", 0, "both", "Neither", "[[C]]", "平局"]),
    (None, [None, "", 3, 1.5, True, [], "12", "Answer 1 or Answer 2", "Answer 1 is not better", "Answer 1 loses"]),
    (None, ["not a tie", "Both Answer 1 and Answer 2 are good", "1, 2 or tie"]),
]


@pytest.mark.parametrize(("winner", "said"), [(winner, said) for winner, texts in WINNERS for said in texts])
def test_the_winner_is_read_and_never_guessed(winner: int | None, said: object) -> None:
    assert winner_of(said) == winner


def read(text: str, criteria: tuple[str, ...] = TWO) -> dict[str, int]:
    return {name: verdict.winner for name, verdict in parse_verdicts(ChatReply(text), criteria).items()}


ASKED = {
    "verdicts": [
        {"criterion": "overall", "reason": "It says more.", "winner": "2"},
        {"criterion": "comprehensiveness", "reason": "Both list three.", "winner": "tie"},
    ]
}


def test_the_requested_form_in_any_order() -> None:
    found = parse_verdicts(ChatReply(json.dumps(ASKED)), TWO)
    assert list(found) == list(TWO)
    assert found == {"comprehensiveness": Verdict(TIE, "Both list three."), "overall": Verdict(SECOND, "It says more.")}


@pytest.mark.parametrize(
    "text",
    [
        '{"Comprehensiveness": {"Winner": "Answer 1", "Explanation": "…"}, "Overall Winner": {"Winner": "B"}}',
        '```json\n[{"criterion": "overall", "winner": 2}, {"criterion": "comprehensiveness", "winner": 1},]\n```',
        "<think>Answer 2 first, I thought.</think>\n**Comprehensiveness**: Answer 1\n**Overall Winner**: Answer 2",
    ],
)
def test_other_forms_that_say_the_same(text: str) -> None:
    assert read(text) == {"comprehensiveness": FIRST, "overall": SECOND}


def test_one_criterion_needs_no_name() -> None:
    assert read("I prefer the first: [[A]]", ("overall",)) == {"overall": FIRST}


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
