"""Replies of judges in all accepted forms, and unusable ones."""

from __future__ import annotations

import json

import pytest

from hirag_dist.core.prompts.reply_validation import MalformedReply
from hirag_dist.evaluation.metrics.judge_replies import FIRST, SECOND, TIE, Verdict, parse_verdicts, winner_of
from hirag_dist.types import ChatReply

TWO = ("comprehensiveness", "overall")


@pytest.mark.parametrize(
    "said",
    [
        *("Answer 1", "answer 1", "1", 1, 1.0, "A", "a.", "[[A]]", "Answer A", "**Answer 1**", "Answer_1", "answer1"),
        *(
            "Response 1",
            "Assistant A",
            "first",
            "The first answer",
            "the first",
            '"Answer 1"',
            "Answer 1 wins",
            "Option A",
        ),
        *(
            "Answer 1 is better",
            "Answer 1 is clearly better than Answer 2.",
            "Answer #1",
            "Answer 1, for its detail",
            "①",
        ),
    ],
)
def test_the_first_answer_wins(said: object) -> None:
    assert winner_of(said) == FIRST


@pytest.mark.parametrize(
    "said",
    [
        *(
            "Answer 2",
            "2",
            2,
            "B",
            "[[B]]",
            "**B**",
            "second",
            "Answer B",
            "Model 2",
            "The second answer",
            "answer two",
        ),
        *("Answer 2 performs better than Answer 1 here", "The winner is Answer 2", "２"),
    ],
)
def test_the_second_answer_wins(said: object) -> None:
    assert winner_of(said) == SECOND


@pytest.mark.parametrize(
    "said", ["tie", "Tie.", "It's a tie", "0", 0, "both", "Neither", "equal", "draw", "[[C]]", "Both answers", "平局"]
)
def test_neither_wins(said: object) -> None:
    assert winner_of(said) == TIE


@pytest.mark.parametrize(
    "said",
    [
        *(None, "", "3", 3, 1.5, True, "Answer 1 or Answer 2", "Answer 3", [], {}, "unclear", "Answer 1 is not better"),
        *(
            "Answer 1 is not better than Answer 2",
            "not a tie",
            "Answer 2 is worse",
            "Answer 1 loses",
            "1 2",
            "12",
            "ab",
        ),
        *(
            "Answer 1 isn't better than Answer 2",
            "Both Answer 1 and Answer 2 are good",
            "Answer 1 and 2",
            "The one that gives the answer a reader wants",
            "1 or tie",
            "1, 2 or tie",
            "Answer 1 or a tie",
            "tie or Answer 2",
        ),
    ],
)
def test_no_winner_is_guessed(said: object) -> None:
    assert winner_of(said) is None


def test_methods_may_be_named() -> None:
    assert winner_of("hirag", ("naive", "hirag")) == SECOND
    assert winner_of("b", ("b", "a")) == FIRST, "the method b stood first"
    assert winner_of("x", ("x", "x")) is None
    assert winner_of("lightrag", ("naive", "hirag")) is None


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
        json.dumps(
            {"Comprehensiveness": {"Winner": "Answer 1", "Explanation": "…"}, "Overall Winner": {"Winner": "B"}}
        ),
        '{"comprehensiveness": "1", "overall": 2}',
        '{"verdicts": {"comprehensiveness": {"reason": "…", "winner": "1"}, "overall": {"winner": "2"}}}',
        '[{"criterion": "overall", "winner": "2"}, {"criterion": "comprehensiveness", "winner": "1"}]',
        '```json\n[{"criterion": "overall", "winner": 2}, {"criterion": "comprehensiveness", "winner": 1},]\n```',
        '{"reasons": ["Both [1] and [2] …"], "verdicts": [{"criterion": "overall", "winner": "2"}, '
        '{"criterion": "comprehensiveness", "winner": "1"}]}',
        '```json\n{"Comprehensiveness": {"winner": 1}, "Overall": {"winner": 2},}\n```',
        "Here it is: {“overall”: “Answer 2”, “comprehensiveness”: “Answer 1”}",
        "<think>Answer 2 first, I thought.</think>\n**Comprehensiveness**: Answer 1\n**Overall Winner**: Answer 2",
        "1. Comprehensiveness: [[A]]\n2. Overall: [[B]]",
        "- comprehensiveness: Answer 1 because it names all three\n- overall: the second answer",
        json.dumps(
            {"results": [{"metric": "Overall", "better": "B"}, {"dimension": "COMPREHENSIVENESS", "winner": "A"}]}
        ),
    ],
)
def test_other_forms_that_say_the_same(text: str) -> None:
    assert read(text) == {"comprehensiveness": FIRST, "overall": SECOND}


@pytest.mark.parametrize(
    "text", ['{"winner": 1, "reasoning": "Answer 1 is better because …"}', "I prefer the first: [[A]]", "Overall: 1"]
)
def test_one_criterion_needs_no_name(text: str) -> None:
    assert read(text, ("overall",)) == {"overall": FIRST}


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        (ChatReply(""), "empty"),
        (ChatReply(json.dumps(ASKED), finish_reason="length"), "cut off"),
        (ChatReply("I'm sorry, I cannot compare these."), "refused"),
        (ChatReply('{"overall": "2"}'), "no verdict on comprehensiveness"),
        (ChatReply('{"overall": "2", "comprehensiveness": "Answer 1 or 2?"}'), "not 1, 2 or tie: Answer 1 or 2"),
        (ChatReply('{"overall": "2", "comprehensiveness": {"reason": "…"}}'), "not 1, 2 or tie: None"),
        (ChatReply("Overall: 1\nComprehensiveness: 2\nOverall: 2"), "contradicting verdicts on overall"),
        (ChatReply("Answer 1 is good. Answer 2 is too."), "no verdict on comprehensiveness"),
        (ChatReply('{"verdicts": ["1", "2"]}'), "no verdict on comprehensiveness"),
        (ChatReply('{"winner": 1}'), "no verdict on comprehensiveness"),
    ],
)
def test_what_cannot_be_used_says_why(reply: ChatReply, why: str) -> None:
    with pytest.raises(MalformedReply, match=why.replace("?", r"\?")):
        parse_verdicts(reply, TWO)
