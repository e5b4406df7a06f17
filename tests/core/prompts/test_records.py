"""Ends of delimited records, and replies that are made to be slow or unreadable."""

from __future__ import annotations

import json
from collections.abc import Callable

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hirag_dist.core.entities.claims import parse_claims
from hirag_dist.core.prompts.packing import split_reply
from hirag_dist.core.prompts.records import json_object, record_lines
from hirag_dist.core.prompts.reply_parsing import (
    parse_extraction,
    parse_meta_types,
    parse_report,
    parse_same,
    parse_summary,
    parse_text,
)
from hirag_dist.core.prompts.reply_validation import MAX_CHARS, MalformedReply
from hirag_dist.core.prompts.requests import parse_list
from hirag_dist.types import ChatReply


@pytest.mark.parametrize(
    "text",
    [
        '{"a": ["x, ]", 2]}',
        '```json\n{"a": ["x, ]", 2]}\n```',
        '```\n{"a": ["x, ]", 2,],}\n```',
        "{“a”: [“x, ]”, 2]}",
        '{"a": ["x, ]", 2]',
    ],
)
def test_what_is_plainly_meant_is_read(text: str) -> None:
    assert json_object(text) == {"a": ["x, ]", 2]}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[1]",
        '{"a": [{"b": 1}, {"b"',
        '{"a": "not finish',
        '```json\n{"a": 1}\n```\n```json\n{"a": 2}\n```',
        "[" * 100_000,
        '{"a":' * 100_000,
    ],
)
def test_what_is_cut_off_or_ambiguous_is_not(text: str) -> None:
    assert json_object(text) is None


PARSERS: tuple[Callable[[ChatReply], object], ...] = (
    parse_extraction,
    lambda reply: parse_summary(reply, 3, ["a", "b", "c"]),
    parse_report,
    parse_same,
    parse_meta_types,
    parse_claims,
    parse_text,
    lambda reply: parse_list(reply, "questions"),
    lambda reply: split_reply(reply, 2),
)


def read(parse: Callable[[ChatReply], object], text: str) -> object:
    try:
        return parse(ChatReply(text))
    except MalformedReply as refusal:
        return str(refusal)


TOKENS = 'entity relation <|> ## a ( ) { } [ ] , : ` " “ \\ <think> </think> ``` ```python <|COMPLETE|>'
PIECES = [*TOKENS.split(), "\n", "```json\n", '{"unit"', "unit<|>", "1", "5", "[]", "entities"]


@settings(derandomize=True, deadline=None, max_examples=40)
@given(st.lists(st.sampled_from(PIECES)))
def test_any_text_parses_or_is_refused_with_a_reason(pieces: list[str]) -> None:
    text = "".join(pieces)
    assert all(read(parse, text) is not None for parse in PARSERS)
    assert json_object(text) is None or json_object(text) == json_object(text)


def test_marks_inside_a_record_are_a_part_of_it() -> None:
    found = parse_extraction(
        ChatReply(
            "entity<|>C##<|>language<|>A sharp language; see http://x.org/##use and ## Setup.\n"
            "relation<|>C##<|>D<|>Older than ## D.<|>7"
        )
    )
    assert [(entity.name, entity.description) for entity in found.entities] == [
        ("C##", "A sharp language; see http://x.org/##use and ## Setup.")
    ]
    assert [(each.source, each.description, each.strength) for each in found.relations] == [
        ("C##", "Older than ## D.", 7.0)
    ]


@pytest.mark.parametrize("mark", ["##", "## ", " ##", "##\n", "\n##", "##\r\n", "\n\n##\n"])
def test_marks_between_records_end_them(mark: str) -> None:
    text = mark.join(
        ['("entity"<|>"A"<|>"person"<|>"One.")', "- entity<|>B<|>person<|>Two.", "2. relation<|>A<|>B<|>x<|>5"]
    )
    found = parse_extraction(ChatReply(text))
    assert [entity.description for entity in found.entities] == ["One.", "Two."]
    assert [(each.source, each.target) for each in found.relations] == [("A", "B")]


@settings(derandomize=True, deadline=None, max_examples=40)
@given(st.text(st.sampled_from("a#\n\r |<>entiy"), max_size=30))
def test_lines_hold_the_whole_text(text: str) -> None:
    kept = "".join(record_lines(text)).replace("#", "").replace("\r", "").replace("\n", "")
    assert kept == text.replace("#", "").replace("\r", "").replace("\n", "")


LONG = 100_000
SLOW = {
    "dashes": "-" * LONG + "<|>x<|>y",
    "escaped quotes": '{"a' + '"\\' * LONG,
    "quotes and a backslash": '{"' + '\\"' * LONG + "\\",
    "underscores": "entity<|><" + "_" * LONG + "<|>y<|>z",
    "marks": "##" * LONG,
    "spaces behind marks": ("##" + " " * 1000) * 100,
    "commas": '{"a": [' + ", " * LONG,
    "braces": "{" * LONG,
    "units": '{"unit"' * 8_000,
    "nested units": '{"unit": 1, "x": [' * 1000,
    "fences": "```\n" * 50_000,
    "thinking": "<think>" * 50_000,
    "channels": "<|channel|>final" * 20_000,
    "brackets": '{"entities": ' + "[" * LONG,
}


@pytest.mark.parametrize("name", SLOW)
def test_no_reply_takes_long_to_refuse(name: str) -> None:
    for parse in PARSERS:
        assert read(parse, SLOW[name]) is not None


def test_a_reply_of_more_characters_than_a_model_writes_is_refused() -> None:
    assert read(parse_text, "ab " * (MAX_CHARS // 3 + 1)) == "the reply has 2,000,001 characters"


deep = json.loads("[" * 900 + "]" * 900)
KEYS = """name type description source target strength member entity title summary rating findings references
explanation same reason unit units subject"""
odd_values = st.sampled_from([10**4000, -1.5, 1e308, "\ud800", "a\udc00b", "A", "B", "", "yes", deep])
odd = st.recursive(
    st.none() | st.booleans() | st.integers() | odd_values,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*KEYS.split(), "\ud800"]), inner, max_size=5)
    ),
    max_leaves=8,
)


@settings(derandomize=True, deadline=None, max_examples=30)
@given(
    st.dictionaries(
        st.sampled_from(["entities", "relations", "claims", "title", "summary", "same", "units"]), odd, max_size=3
    )
)
def test_whatever_json_holds_is_refused_or_can_be_stored(data: dict[str, object]) -> None:
    text = json.dumps(data)
    for parse in PARSERS:
        pa.array([repr(read(parse, text)).replace("\\ud", "surrogate")], pa.string()).validate(full=True)
    try:
        found = parse_extraction(ChatReply(text))
    except MalformedReply:
        return
    pa.array(
        [value for record in found.entities for value in (record.name, record.type, record.description)], pa.string()
    )
    pa.array([value for record in found.relations for value in (record.source, record.description)], pa.string())


def test_a_lone_surrogate_in_json_is_replaced() -> None:
    text = '{"entities": [{"name": "A\\ud800", "type": "t\\udc00", "description": "\\ud83d\\ude00 fine"}]}'
    (entity,) = parse_extraction(ChatReply(text)).entities
    assert (entity.name, entity.type, entity.description) == ("A\ufffd", "t\ufffd", "😀 fine")
