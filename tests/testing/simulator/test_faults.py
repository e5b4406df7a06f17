"""Damaged replies: none may be read as a good one, whatever its form."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hirag_dist.core.prompts.answer_requests import answer_request
from hirag_dist.core.prompts.reply_parsing import (
    EntityRecord,
    MalformedReply,
    parse_extraction,
    parse_report,
    parse_summary,
    parse_text,
)
from hirag_dist.core.prompts.templates import (
    Prompts,
    describe_request,
    extraction_request,
    gleaning_request,
    report_request,
    summary_request,
)
from hirag_dist.llm.rule_based import reply_to
from hirag_dist.testing.simulator.faults import damaged, damages, truncated
from hirag_dist.types import ChatReply, ChatRequest

TEXT = (
    "Ebenezer Scrooge owns a counting house in London. Bob Cratchit works for Ebenezer Scrooge in London, and Jacob "
    'Marley was the partner of Ebenezer Scrooge. "Humbug!" said Scrooge {aloud} to Bob Cratchit\'s <son> # 1 | 2.'
)
MEMBERS = [
    ("Ebenezer Scrooge", "person", "The owner of a counting house in London."),
    ("Bob Cratchit", "person", "A clerk of a counting house in London."),
]
PAIRS = [("Ebenezer Scrooge", "person"), ("Bob Cratchit", "person"), ("London", "location")]
TYPES = ["person", "location"]
Parse = Callable[[ChatReply], object]


def _extract(task: str, form: bool, text: str = TEXT) -> ChatRequest:
    entities = PAIRS if task == "extract-relations" else ()
    return extraction_request(task, text, Prompts(), TYPES, task if form else None, entities)


def _extraction(reply: ChatReply) -> object:
    return parse_extraction(reply, "", [EntityRecord(*pair, "") for pair in PAIRS])


def _summary(reply: ChatReply) -> object:
    return parse_summary(reply, len(MEMBERS), [name for name, _, _ in MEMBERS])


def _requests() -> dict[str, tuple[ChatRequest, Parse]]:
    found: dict[str, tuple[ChatRequest, Parse]] = {}
    for form in (False, True):
        kind = "json" if form else "delimited"
        for task in ("extract-graph", "extract-entities", "extract-relations"):
            request = _extract(task, form)
            found[f"{task}-{kind}"] = (request, _extraction)
            found[f"{task}-{kind}-of-nothing"] = (_extract(task, form, "and so on"), _extraction)
            found[f"{task}-{kind}-again"] = (
                gleaning_request(request, reply_to(request.messages, request.form)),
                _extraction,
            )
        summary = summary_request(MEMBERS, Prompts(), ["concept"], "summarise" if form else None)
        found[f"summarise-{kind}"] = (summary, _summary)
        entities = ["E1. Ebenezer Scrooge (person): a miser.", "E2. Bob Cratchit (person): a clerk of the house."]
        relations = ["R1. E1-E2: Bob works for him."]
        report = report_request(entities, relations, [], Prompts(), "report" if form else None)
        found[f"report-{kind}"] = (report, parse_report)
    describe = describe_request("Scrooge", "person", ["Scrooge is a miser.", "He lives in London."], Prompts(), 60)
    found["describe"] = (describe, parse_text)
    found["answer"] = (answer_request("Who is Scrooge?", f"[S1] {TEXT}", Prompts()), parse_text)
    return found


REQUESTS = _requests()


def _all_damages(reply: ChatReply) -> list[ChatReply]:
    n = len(damages(reply.text))
    forms = [(place + 0.5) / n for place in range(n)]
    return [damaged(reply, form, share) for form in forms for share in (0.0, 0.2, 0.45, 0.5, 0.65, 0.75, 0.9, 0.999)]


@pytest.mark.parametrize("name", REQUESTS)
def test_what_is_damaged_cannot_be_read(name: str) -> None:
    request, parse = REQUESTS[name]
    reply = ChatReply(reply_to(request.messages, request.form))
    parse(reply)  # undamaged it is good
    every = _all_damages(reply)
    assert len({each.text for each in every}) >= 6
    for each in every:
        with pytest.raises(MalformedReply):
            parse(each)


@pytest.mark.parametrize("name", REQUESTS)
@pytest.mark.parametrize("share", [0.0, 0.5, 0.999])
def test_what_is_cut_off_cannot_be_read(name: str, share: float) -> None:
    request, parse = REQUESTS[name]
    reply = ChatReply(reply_to(request.messages, request.form))
    cut = truncated(reply, share)
    assert cut.finish_reason == "length"
    assert reply.text.startswith(cut.text)
    assert 1 <= len(cut.text) <= max(1, round(0.9 * len(reply.text)))
    with pytest.raises(MalformedReply, match="cut off"):
        parse(cut)
