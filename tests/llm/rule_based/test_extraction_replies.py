"""Replies to the three extraction tasks, in both forms, and gleaning."""

from __future__ import annotations

import pytest

from hirag_dist.core.prompts.reply_parsing import EntityRecord, ExtractionReply, parse_extraction
from hirag_dist.core.prompts.templates import DONE, Prompts, extraction_request
from hirag_dist.llm.rule_based import reply_to
from hirag_dist.types import ChatReply, ChatRequest

TYPES = ["organization", "person", "location", "event", "technology", "concept"]
CAST = ["Anna Bell", "Carl Dahl", "Eva Fox", "Gustav Hall", "Ida Jung", "Karl Lund", "Mona Nyman", "Oskar Park"]
TOWNS = ["Vienna", "Prague", "Munich", "Dresden", "Leipzig", "Hamburg", "Bremen", "Lisbon", "Madrid", "Naples"]
STORY = " ".join(
    f"{CAST[number % 8]} travelled to {TOWNS[number % 10]} in order to meet {CAST[(number * 3 + 1) % 8]} there. "
    f"The night train was late again, and the night train was cold."
    for number in range(40)
)


LISTED = (("Anna Bell", "person"), ("Vienna", "location"), ("Carl Dahl", "person"), ("Nobody", "person"))


def request(task: str, form: str | None, text: str = STORY) -> ChatRequest:
    return extraction_request(task, text, Prompts(), TYPES, form, LISTED if "relations" in task else ())


def read(request: ChatRequest) -> tuple[str, ExtractionReply]:
    """Return the reply as text, and as the records read with the entities that the conversation has numbered before."""
    text = reply_to(request.messages, request.form)
    known = [EntityRecord(*pair, "") for pair in LISTED if "extract-relations" in request.messages[0].content]
    for message in request.messages:
        if message.role == "assistant":
            known += parse_extraction(ChatReply(message.content), "", known).entities
    return text, parse_extraction(ChatReply(text), "", known)


@pytest.mark.parametrize("form", [None, "extract-graph"])
def test_extracts_entities_and_relations(form: str | None) -> None:
    opening = request("extract-graph", form)
    _, first = read(opening)
    types = {one.name: one.type for one in first.entities}
    assert types["Anna Bell"] == "person"
    assert types["Vienna"] == "location"
    assert types["night train"] == "concept"
    assert all(one.type in TYPES for one in first.entities)
    named = {one.name for one in first.entities}
    assert all(one.source in named and one.target in named for one in first.relations)
    assert all(one.description for one in first.relations)
    assert all(
        one.description in STORY or "…" in one.description or len(one.description) > 100 for one in first.entities
    )


def test_both_forms_say_the_same() -> None:
    assert read(request("extract-graph", None))[1] == read(request("extract-graph", "extract-graph"))[1]


@pytest.mark.parametrize("task", ["extract-graph", "extract-entities", "extract-relations"])
@pytest.mark.parametrize("json", [False, True])
def test_every_record_is_read_back(task: str, json: bool) -> None:
    text, extraction = read(request(task, task if json else None))
    if not json:
        lines = text.split("\n")
        assert lines[-1] == DONE
        n_pairs = sum(len(line.split("|")[0].split()) for line in lines[:-1])
        assert len(extraction.entities) + len(extraction.relations) == n_pairs
    assert bool(extraction.entities) == (task != "extract-relations")
    assert bool(extraction.relations) == (task != "extract-entities")


@pytest.mark.parametrize("text", ["", "1234 5678, 9."])
@pytest.mark.parametrize("form", [None, "extract-graph"])
def test_a_text_about_nothing_gives_an_empty_reply(text: str, form: str | None) -> None:
    reply, extraction = read(request("extract-graph", form, text))
    assert extraction == ExtractionReply((), ())
    assert form is not None or reply == DONE
