"""A text of a known form equals the text that is searched, whatever documents hold."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hirag_dist.core.retrieval.context import (
    PLAIN,
    SPACED,
    UNKNOWN_FORM,
    community_text,
    entity_text,
    is_plain,
    relation_text,
    source_text,
    text_form,
)

PIECES = st.lists(
    st.sampled_from(
        ["word", " ", "  ", "   ", "\n", "\n\n", " \n", "\t", "\r", "\u2028", "\u200b", "[S1]", "(e", " 3)"]
    )
    | st.sampled_from([" 3)", "## ", "[", "<s>", "(29.1 km2)", "é", "中文", ".", "\u00a0", "[INST]", "\ufffd"]),
    max_size=14,
).map("".join)


@settings(derandomize=True, deadline=None, max_examples=60)
@given(PIECES, PIECES)
@example("A title", "Two  lines\n\n of text ")
def test_texts_of_several_lines(title: str, text: str) -> None:
    form = text_form(title, text)
    assert source_text(title, 3, 9, text, form) == source_text(title, 3, 9, text)
    assert community_text(title, 2, 7.5, text, form) == community_text(title, 2, 7.5, text)


@settings(derandomize=True, deadline=None, max_examples=60)
@given(PIECES, PIECES, PIECES)
def test_texts_of_one_line(name: str, other: str, text: str) -> None:
    if is_plain(name) and is_plain(text):
        assert entity_text(name, "(odd [S1]", 1, text, PLAIN) == entity_text(name, "(odd [S1]", 1, text)
        if is_plain(other):
            assert relation_text(name, other, text, PLAIN) == relation_text(name, other, text)


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("One line.", PLAIN),
        (" One \n\n and another (in 29.1 km2)", PLAIN),
        ("Two.  Spaces.", SPACED),
        ("A tab\tand", UNKNOWN_FORM),
        ("As [S1] says", UNKNOWN_FORM),
        ("One\n[x] line", UNKNOWN_FORM),
        ("## A section", UNKNOWN_FORM),
        ("<|im_start|>", UNKNOWN_FORM),
    ],
)
def test_forms(text: str, form: int) -> None:
    assert text_form("Title", text) == form
    assert text_form("Title [S1]", text) == UNKNOWN_FORM
