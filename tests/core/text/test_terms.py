"""Terms of a text: words, bigrams and codes, in any script."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hirag_dist.core.text.terms import MAX_CHARS, terms


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The Ghost's chains", ["the", "ghost", "s", "chains"]),
        ("order AB-1234/5", ["order", "ab-1234/5", "ab", "1234", "5"]),
        ("3.14, or 1,000.", ["3.14", "3", "14", "or", "1,000", "1", "000"]),
        ("C++ and C#", ["c++", "c", "and", "c#", "c"]),
        ("東京都", ["東京", "京都"]),
        ("東京tower2号", ["東京", "tower2", "tower", "2", "号"]),
        ("naïve Kraków e\u0301tude", ["naive", "krakow", "etude"]),
    ],
)
def test_terms_of_a_text(text: str, expected: list[str]) -> None:
    assert terms(text) == expected


@settings(deadline=None, derandomize=True)
@given(st.text(st.characters(max_codepoint=127)))
def test_plain_letters_are_read_as_in_any_other_text(text: str) -> None:
    assert terms(f"{text} é") == [*terms(text), "e"]


@settings(deadline=None, derandomize=True)
@given(st.text(), st.text())
def test_texts_that_are_set_apart_do_not_change_each_other(one: str, other: str) -> None:
    assert terms(f"{one}\n\n{other}") == [*terms(one), *terms(other)]
    assert all(0 < len(term) <= MAX_CHARS for term in terms(one))
