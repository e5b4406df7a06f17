"""JSON that is plainly meant is read; what was cut off or is ambiguous is not."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hirag_dist.core.prompts.lenient_json import json_object, json_objects


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


@pytest.mark.parametrize(
    "text",
    [
        '{"unit": 1}\n{"unit": 2}',
        '[{"unit": 1}, {"unit": 2}]',
        'First {"unit": 1,}, then\n```json\n{ "unit": 2}\n```',
        '{"units": [{"unit": 1}, {"unit": 2}, {"unit": 3, "x": "cut o',
    ],
)
def test_objects_one_after_another(text: str) -> None:
    assert json_objects(text) == [{"unit": 1}, {"unit": 2}]


@settings(derandomize=True, deadline=None, max_examples=300)
@given(
    st.lists(st.sampled_from(['{"unit"', ":", "1", "}", "{", "[", "]", ",", '"', "\\", "x", "“", "```json\n", "```"]))
)
def test_no_text_makes_it_raise(pieces: list[str]) -> None:
    text = "".join(pieces)
    assert json_object(text) is None or json_object(text) == json_object(text)
    assert all(isinstance(item, dict) for item in json_objects(text))
