"""What is complete of a reply that broke off, or that repeats itself."""

import json

import pytest

from hirag_dist.core.prompts.reply_parsing import parse_extraction, parse_report, usable_text
from hirag_dist.core.prompts.reply_validation import CutOffReply, MalformedReply, RepeatedReply, complete_part
from hirag_dist.types import ChatReply

GRAPH = {
    "entities": [
        {"id": 1, "name": "Ada {A}", "type": "person", "description": 'Says "]".'},
        {"id": 2, "name": "Bob", "type": "person", "description": "b"},
    ],
    "relations": [{"pairs": [[1, 2]], "description": "They met."}],
}
RECORDS = "1|Ada|person|a\n2|Bob|person|b\n1-2|They met.\n<|COMPLETE|>"


@pytest.mark.parametrize("indent", [None, 1])
def test_of_json_that_breaks_off_anywhere_the_complete_items_are_kept(indent: int | None) -> None:
    text = json.dumps(GRAPH, indent=indent)
    counts = []
    for end in range(len(text)):
        kept = complete_part("Here: " + text[:end])
        found = json.loads(kept) if kept else {}
        entities, relations = found.get("entities", []), found.get("relations", [])
        assert entities == GRAPH["entities"][: len(entities)]
        assert relations == GRAPH["relations"][: len(relations)]
        counts.append((len(entities), len(relations)))
    assert counts == sorted(counts)
    assert {(0, 0), (1, 0), (2, 0), (2, 1)} == set(counts)


def test_of_records_that_break_off_the_complete_lines_are_kept() -> None:
    kept = complete_part("1|Ada|person|a\n2|Bob|person|b\n1-2|They m")
    assert [entity.name for entity in parse_extraction(ChatReply(kept)).entities] == ["Ada", "Bob"]
    assert not parse_extraction(ChatReply(kept)).relations


def test_of_a_report_that_breaks_off_its_complete_findings_are_kept() -> None:
    finding = {"summary": "s", "explanation": "e", "references": ["E1"]}
    text = json.dumps({"title": "t", "summary": "u", "findings": [finding, finding | {"summary": "v"}]})
    assert [one.summary for one in parse_report(ChatReply(complete_part(text[:-30]))).findings] == ["s"]


def test_what_repeats_is_kept_once() -> None:
    many = [{"id": at, "name": "Ada", "type": "person", "description": "a"} for at in range(1, 40)]
    assert json.loads(complete_part(json.dumps({"entities": many})[:-9])) == {"entities": many[:1]}
    assert complete_part("1|Ada|person|a\n" * 30 + "1|A") == "1|Ada|person|a"


def test_of_prose_whole_sentences_are_kept_and_of_nothing_nothing() -> None:
    assert complete_part("Ada wrote. Bob read it. And th") == "Ada wrote. Bob read it."
    assert complete_part("Ada wro") == complete_part('{"entities": [{"id": 1, "na') == complete_part("") == ""


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (RECORDS[:30], CutOffReply),
        ("".join(f"{at}|Ada|person|A poet.\n" for at in range(20)), RepeatedReply),
        ("Ada was a poet" + " and a poet" * 80, RepeatedReply),
    ],
)
def test_a_loop_is_told_from_a_reply_that_was_cut_off(text: str, kind: type[MalformedReply]) -> None:
    with pytest.raises(MalformedReply) as caught:
        usable_text(ChatReply(text, finish_reason="length"))
    assert type(caught.value) is kind
