"""Damaged replies: none may be read as a good one, whatever its form."""

from __future__ import annotations

import json
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
    DONE,
    FIELD,
    Prompts,
    describe_request,
    extraction_request,
    gleaning_request,
    report_request,
    summary_request,
)
from hirag_dist.llm.rule_based import reply_to
from hirag_dist.testing.simulator.faults import damaged, damages, failure, truncated
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


def test_each_form_has_its_own_damages() -> None:
    anywhere = {"thinking", "empty", "refusal"}
    assert set(damages('{"entities": []}')) == anywhere | {"prose", "code", "broken", "language"}
    assert (
        set(damages(f"answer{FIELD}yes{FIELD}c\n{DONE}"))
        == set(damages(f"1|A|b|c\n{DONE}"))
        == anywhere | {*("prose", "code", "delimiters", "language")}
    )
    assert set(damages(DONE)) == anywhere | {"prose", "code", "delimiters", "language"}
    assert set(damages("A plain text.")) == set(damages("{not json}")) == anywhere


def test_a_refusal_is_one_of_the_api_where_a_schema_was_asked_for() -> None:
    request, _ = REQUESTS["report-json"]
    json_reply = ChatReply(reply_to(request.messages, request.form))
    place = list(damages(json_reply.text)).index("refusal") + 0.5
    assert damaged(json_reply, place / len(damages(json_reply.text)), 0.0).finish_reason == "refusal"
    plain = ChatReply("A plain text.")
    assert damaged(plain, 0.99, 0.0).finish_reason == "stop"
    assert damaged(plain, 0.99, 0.0).text.startswith("I'm sorry")


def test_a_reply_in_another_language_keeps_its_values() -> None:
    text = json.dumps({"entities": [{"name": "Scrooge", "other": 1}]})
    found = json.loads(damages(text)["language"](text, 0.0))
    assert found == {"entities_es": [{"name_es": "Scrooge", "other_es": 1}]}


def test_a_server_fails_in_four_ways() -> None:
    found = [failure(form, 0.0) for form in (0.0, 0.3, 0.6, 0.9)]
    assert [each.error.status for each in found] == [500, 502, 503, 529]
    assert [each.page is not None for each in found] == [False, True, False, False]
    assert [each.retry_after_s for each in found] == [None, None, 1, 1]
    assert failure(0.6, 0.5).retry_after_s is None
