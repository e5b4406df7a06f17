"""Names as people, models and typesetters write them, the keys that bring them together, and wrapped lines."""

from __future__ import annotations

import random
import textwrap
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hirag_dist.core.text.normalize import clean_name, is_name, name_key, one_line, shorten, unwrapped

PUNCTUATION = "\"'`“”‘’«»‹›„‚「」『』 .,;:!?()[]{}<>*_#|（）［］＃…‥．。　\u00a0"
SPECIAL = "ßẞİıſΣςǰΐ\u0345\u0301\u0130ﬁﬀⅨ①㍿カﾞ"


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("Ebenezer Scrooge", "EBENEZER  scrooge", True),
        ("Scrooge", '"Scrooge"', True),
        ("O'Brien", "o’brien", True),
        ("IBM", "ＩＢＭ", True),
        ("Straße", "STRASSE", True),
        ("Café", "Cafe\u0301", True),
        ("北京", "「北京」", True),
        (".NET", "“.net”,", True),
        ("U.S.", "U.S", True),
        ("C", "C#", False),
        ("O'Brien", "OBrien", False),
        ("Acme (Paris)", "Acme (Rome)", False),
        ("Acme", "Acme (Paris)", False),
        ("é", "e", False),
        ("U.S.", "US", False),
    ],
)
def test_spellings_of_one_name_have_one_key(one: str, other: str, same: bool) -> None:
    assert (name_key(one) == name_key(other)) is same


def test_the_key_of_a_key_is_the_key_for_every_letter() -> None:
    rng = random.Random(0)
    codes = (*range(0x20, 0x3000), *range(0xF900, 0xFFF0), *range(0x1D400, 0x1D800))
    letters = [chr(code) for code in codes]
    letters = [letter for letter in letters if unicodedata.category(letter) not in ("Cn", "Cs")]
    for letter in letters:
        text = letter + rng.choice(PUNCTUATION) + rng.choice(SPECIAL) + letter
        assert name_key(name_key(text)) == name_key(one_line(text)) == name_key(text)


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("  Tiny   Tim\n", "Tiny Tim"),
        ('"Scrooge & Marley",', "Scrooge & Marley"),
        ("Acme (Paris)", "Acme (Paris)"),
        ("C#", "C#"),
        (".NET", ".NET"),
        ("R.E.M.", "R.E.M."),
        ("J.R.R. Tolkien.", "J.R.R. Tolkien"),
    ],
)
def test_names_are_shown_without_what_surrounds_them(written: str, shown: str) -> None:
    assert clean_name(written) == shown


@pytest.mark.parametrize(
    ("name", "usable"),
    [("a", True), ("7", True), ("北", True), ("", False), ("?!", False), ("a" * 200, True), ("a" * 201, False)],
)
def test_a_name_holds_a_letter_or_digit_and_is_no_paragraph(name: str, usable: bool) -> None:
    assert is_name(name) is usable


@settings(derandomize=True, deadline=None, max_examples=40)
@given(st.text(st.sampled_from("ab ,;:\n"), max_size=40), st.integers(1, 50))
def test_shortened_text_keeps_to_its_length_and_begins_as_the_text(text: str, n_chars: int) -> None:
    short = shorten(text, n_chars)
    assert len(short) <= max(n_chars, 2)
    if len(text) <= n_chars:
        assert short == text
    else:
        assert short.endswith("…")
        assert text.startswith(short[:-1])


PROSE = (
    "It was the best of times, it was the worst of times, it was the age of wisdom, it was the age of Foolishness, "
    "it was the epoch of Belief. Mr. Lorry, of Tellson's Bank, came down to Dover in November by the mail coach, and "
    "a clerk of the Royal George Hotel opened the door."
)


@pytest.mark.parametrize("width", [50, 70, 76, 80])
def test_a_wrapped_paragraph_is_one_line(width: int) -> None:
    wrapped = textwrap.fill(PROSE, width)
    assert wrapped.count("\n") > 1
    text = f"CHAPTER I.\n\n{wrapped}\n\nAnother paragraph."
    found = unwrapped(text)
    assert found == text.replace(wrapped, PROSE)
    assert len(found) == len(text)


def test_writing_without_capitals_goes_on() -> None:
    line = "北京是中国的首都" * 5
    assert unwrapped(f"{line}\n{line}。\n\n{line}") == f"{line} {line}。\n\n{line}"


@pytest.mark.parametrize(
    "text",
    [
        "Name: Alice Holm\nAge: 31\nTown: Perth",
        "Whose woods these are I think I know.\nHis house is in the village though;\nHe will not see me stopping here",
        "2024-01-01 10:00:00 INFO the service was started here\n2024-01-01 10:00:01 INFO the service was stopped here",
        "Things that the keeper took with him on the boat:\n- a lamp for the long nights of the winter\n- some oil",
        "| lamp of the lighthouse | lit in the year of 1921 |\n| tower of the lighthouse | painted in the year 1987 |",
        "# The lighthouse of the bay of mist, a history of it\nthe tower was painted",
        "apples\npears\nplums",
        "a line of a hundred and more characters, " * 5 + "\nand the next one, which is a line of its own",
        "",
        "\n\n",
    ],
)
def test_lines_that_end_what_they_say_stay(text: str) -> None:
    assert unwrapped(text) == text
