"""Replies on whether two entities are one: in records, in JSON, in prose; or refused with the reason."""

from __future__ import annotations

import pytest

from hirag_dist.core.prompts.reply_parsing import MalformedReply, SameEntityReply, parse_same
from hirag_dist.core.prompts.templates import FORMATS
from hirag_dist.types import ChatReply


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("answer<|>yes<|>both are the agency\n<|COMPLETE|>", SameEntityReply(True, "both are the agency")),
        ("- Answer<|>**Yes**<|>one man".replace("**", ""), SameEntityReply(True, "one man")),
        ("Here it is:\nanswer<|>no<|>two kings\nDone.", SameEntityReply(False, "two kings")),
        ('{"same": true, "reason": "one\\nagency"}', SameEntityReply(True, "one agency")),
        ('```json\n{"same": "no", "reason": "kings"}\n```', SameEntityReply(False, "kings")),
        ('<think>Perhaps.</think>{"same": false}', SameEntityReply(False, "")),
    ],
)
def test_answers(text: str, expected: SameEntityReply) -> None:
    assert parse_same(ChatReply(text)) == expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("Yes, they are.", "does not hold one answer"),
        ("answer<|>perhaps<|>hard to say", "neither yes nor no: perhaps"),
        ("answer<|>yes<|>a\nanswer<|>no<|>b", "does not hold one answer"),
        (FORMATS["same-entity"], "does not hold one answer"),
        ('{"same": null}', "neither yes nor no"),
        ("", "empty"),
    ],
)
def test_what_is_no_answer_is_refused(text: str, reason: str) -> None:
    with pytest.raises(MalformedReply, match=reason):
        parse_same(ChatReply(text))
