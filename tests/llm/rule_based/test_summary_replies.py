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
MUSIC = [
    ("Cat Stevens", "person", "Cat Stevens recorded the studio album in one week."),
    ("Island Records", "organization", "Island Records released the studio album."),
    ("Peace Train", "concept", "Peace Train is a song of the studio album."),
    ("Tillerman", "concept", "Tillerman was the fourth studio album."),
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


def test_two_themes_become_two_entities_that_cover_all() -> None:
    summary = summary_of(HIVE + MUSIC, None)
    assert len(summary.entities) == 2
    assert {cover.member for cover in summary.covers} == set(range(8))
    of = {cover.member: cover.entity for cover in summary.covers}
    assert of[0] == of[1] != of[4] == of[7]


@pytest.mark.parametrize("members", [HIVE[:1], [("Alpha", "person", ""), ("Beta", "person", "")]])
def test_members_that_share_nothing_still_get_a_name(members: list[tuple[str, str, str]]) -> None:
    summary = summary_of(members, None)
    assert len(summary.entities) == 1
    assert len(summary.covers) == len(members)
    assert "cluster" not in summary.entities[0].name.lower()


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
