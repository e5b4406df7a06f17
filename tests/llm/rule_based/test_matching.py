"""The built-in model says that two entities are one only where a description does."""

from __future__ import annotations

import pytest

from hirag_dist.core.prompts.reply_parsing import parse_same
from hirag_dist.core.prompts.templates import Prompts, same_entity_request
from hirag_dist.llm.rule_based import reply_to
from hirag_dist.types import ChatReply


@pytest.mark.parametrize("form", [None, "same-entity"])
@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("Marley (person): Jacob Marley was dead.", "Jacob Marley (person): A partner of Scrooge.", True),
        ("Marley (person): A partner.", "Jacob Marley (person): Dead as a door nail.", False),
        (
            "Honey bee (animal): It makes honey from nectar and lives in large colonies.",
            "Western honey bee (animal): It lives in large colonies, and makes honey from nectar.",
            True,
        ),
        ("Rowan County (place): A county of North Carolina.", "Iredell County (place): A county.", False),
        ("Marley (person)", "Jacob Marley (person)", False),
        ("a ) b (thing): <|>", "a (thing", False),
    ],
)
def test_same(form: str | None, one: str, other: str, same: bool) -> None:
    for pair in ([one, other], [other, one]):
        request = same_entity_request(pair, Prompts(), form)
        reply = reply_to(request.messages, request.form)
        answer = parse_same(ChatReply(reply))
        assert answer.same is same
        assert answer.reason
