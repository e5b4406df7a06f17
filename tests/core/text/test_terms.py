"""Terms of a text: words, bigrams and codes, in any script; passages that no other text has."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hirag_dist.core.text.terms import MAX_CHARS, SHINGLE_WORDS, Passages, shingles, terms, words


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


TEXT = "Ada Lovelace wrote the longest of her notes\non the Analytical Engine, in 1843."


def test_a_passage_is_found_in_another_layout() -> None:
    passages = Passages(shingles(TEXT))
    assert len(passages) == len(words(TEXT)) - SHINGLE_WORDS + 1
    assert passages.within('It says: "ADA LOVELACE wrote the longest of her notes."')
    assert not passages.within("Ada Lovelace wrote the longest of her letters.")


def test_what_another_text_has_is_not_distinctive() -> None:
    passages = Passages(shingles(TEXT))
    passages.discard_within("We read that Ada Lovelace wrote the longest of her notes in London.")
    assert not passages.within("Ada Lovelace wrote the longest of her notes")
    assert passages.within(TEXT)


def test_writing_without_spaces_is_searched_by_characters() -> None:
    passages = Passages(shingles("吾輩は猫である。名前はまだ無い。"))
    assert passages.within("「吾輩は猫である。名前はまだ無い。どこで生れたか")
    assert not passages.within("吾輩は犬である。")


def test_short_texts() -> None:
    assert list(shingles("And who is it?")) == [], "a phrase that any text may have"
    assert list(shingles("")) == []
    passages = Passages([(), ("engine",)])
    assert len(passages) == 1
    assert passages.within("Engine!") == {("engine",)}
    assert Passages().within(TEXT) == set()
