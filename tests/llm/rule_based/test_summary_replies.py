"""Replies to summarise and describe."""

from __future__ import annotations

import pytest

from hirag_dist.core.prompts.reply_parsing import SummaryReply, parse_summary, parse_text
from hirag_dist.core.prompts.templates import Prompts, describe_request, summary_request
from hirag_dist.core.text.normalize import name_key
from hirag_dist.llm.rule_based import reply_to
from hirag_dist.types import ChatReply

META = ["organization", "person", "location", "event", "technology", "concept"]
HIVE = [
    ("queen cell", "concept", "A queen cell is built by the honey bee colony before swarming."),
    ("swarming", "concept", "Swarming is how a honey bee colony multiplies."),
    ("worker", "concept", "The worker feeds the brood of the honey bee colony."),
    ("drone", "concept", "A drone leaves the honey bee colony to mate."),
]


def summary_of(members: list[tuple[str, str, str]], form: str | None) -> SummaryReply:
    request = summary_request(members, Prompts(), META, form)
    return parse_summary(ChatReply(reply_to(request.messages, form)), len(members), [name for name, _, _ in members])


@pytest.mark.parametrize("form", [None, "summarise"])
def test_names_a_cluster_by_what_its_members_share(form: str | None) -> None:
    summary = summary_of(HIVE, form)
    assert [one.type for one in summary.entities] == ["concept"]
    name = name_key(summary.entities[0].name)
    assert "honey bee" in name or "bee colony" in name
    assert name not in {name_key(member) for member, _, _ in HIVE}
    assert {cover.member for cover in summary.covers} == {0, 1, 2, 3}
    assert all(1 <= cover.strength <= 10 for cover in summary.covers)
    assert "swarming" in summary.entities[0].description.lower()


def test_describe_keeps_the_distinct_sentences_within_the_limit() -> None:
    texts = [
        "Scrooge is a miser who lives in London.",
        "Scrooge is a miser who lives in London.",
        "Scrooge is a miser living in London.",
        "Scrooge employs Bob Cratchit in London.",
    ]
    request = describe_request("Scrooge", "person", texts, Prompts(), 20)
    text = parse_text(ChatReply(reply_to(request.messages, None)))
    assert text.count("miser") == 1
    assert "Bob Cratchit" in text
    assert len(text.split()) <= 20
