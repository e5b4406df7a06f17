"""Names as they are compared: spellings of one name fold to one form, and what sets names apart keeps them apart."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hirag_dist.core.entities.resolution.name_forms import compatible, known_different, name_form
from tests.core.entities.resolution.graphs import proposed

THING, PERSON, FIRM, PLACE = "concept", "person", "organization", "location"


SPELLINGS = [
    (FIRM, "U.S. Steel", "US Steel"),
    (FIRM, "Acme, Inc.", "ACME Incorporated"),
    (PLACE, "Fianna Fáil", "fianna fail"),
    (PERSON, "Королёв", "Королев"),
    (PERSON, "阿尔伯特·爱因斯坦", "阿尔伯特 爱因斯坦"),
    ("event", "World War II", "World War Two"),
    (PERSON, "Henry VIII", "HENRY 8"),
]
OTHERS = [
    (PERSON, "Henry James", "James Henry"),
    (PERSON, "Mr. Williams", "William"),  # no plural
    (PERSON, "Mrs. Cratchit", "Mr. Cratchit"),
    (PLACE, "Paris, Texas", "Texas, Paris"),  # no surname first
    (THING, "C++", "C#"),
    (THING, "2.0", "20"),
    ("event", "fourth season", "four seasons"),
    (THING, "が", "か"),
    (THING, "हिन्दी", "हिन्द"),
]


@pytest.mark.parametrize(("kind", "one", "other"), SPELLINGS + OTHERS)
def test_spellings_of_one_name_have_one_form_and_other_names_another(kind: str, one: str, other: str) -> None:
    left, right = name_form(one, kind), name_form(other, kind)
    same = (kind, one, other) in SPELLINGS
    assert (left.text == right.text) is same
    assert left.numbers == right.numbers or not same


@pytest.mark.parametrize(
    ("name", "acronym", "aside"),
    [
        ("World Health Organization (WHO)", "WHO", ""),
        ("Proof of Work (PoW)", "PoW", ""),
        ("WHO", "WHO", ""),
        ("LLMs", "LLM", ""),
        ("West Division (NHL)", "", "nhl"),  # whose division, not what it is called for short
        ("Mercury (planet)", "", "planet"),
        ("Who", "", ""),
        ("悟空", "", ""),
    ],
)
def test_what_stands_in_parentheses(name: str, acronym: str, aside: str) -> None:
    form = name_form(name, FIRM)
    assert (form.acronym, form.aside) == (acronym, aside)


TWO_THINGS = [
    ("person", "Henry IV", "Henry V"),
    ("person", "Henry", "Henry IV"),
    ("product", "Python 3.11", "Python 3.12"),
    ("event", "1948 Olympics", "1952 Olympics"),
    ("work", "第一章", "第二章"),
    ("location", "North Korea", "South Korea"),
    ("concept", "Vice President", "President"),
    ("organization", "East Division (NHL)", "East Division (CFL)"),
    ("person", "Mr. Cratchit", "Mrs. Cratchit"),
    ("person", "Carl Demarco", "Carla DeMarco"),
    ("person", "Stephen Henry Parker", "Stephen Stanley Parker"),
    ("person", "Scrooge's nephew", "Scrooge"),
    ("person", "George W. Bush", "George H. W. Bush"),
    ("person", "Anna M. Lee", "Anna R. Lee"),
    ("person", "Sammy Davis Jr.", "Sammy Davis Sr."),
]
MAYBE_ONE = [
    ("person", "Scrooge", "Ebenezer Scrooge"),
    ("person", "J. R. R. Tolkien", "John Ronald Reuel Tolkien"),
    ("person", "Jo Swinson", "Jo Anne Swinson"),
    ("person", "Bob Cratchit", "Robert Cratchit"),
    ("person", "Mr. Scrooge", "Uncle Scrooge"),
    ("organization", "World Health Organization", "WHO"),
    ("concept", "international law", "law of nations"),
    ("location", "North Ireland", "Northern Ireland"),
    ("event", "World War II", "Second World War"),
    ("organization", "Department of State", "US Department of State"),
]


@pytest.mark.parametrize(("kind", "one", "other"), TWO_THINGS + MAYBE_ONE)
def test_what_is_known_to_be_two_things_is_held_apart(kind: str, one: str, other: str) -> None:
    left, right = name_form(one, kind), name_form(other, kind)
    assert known_different(left, right) is known_different(right, left) is ((kind, one, other) in TWO_THINGS)


KINDS = st.sampled_from(["person", "organization", "location", "event", "concept", "unknown", ""])
PIECES = st.sampled_from(
    ["the", "Mr.", "Inc.", "II", "4th", "the", "'s", "(", ")", "of", ",", ".", "-", "王", "が", "é", "ё"]
)
NAMES = st.text(max_size=12) | st.lists(PIECES | st.text(max_size=4), max_size=6).map(" ".join)


@settings(max_examples=40, deadline=None)
@given(NAMES, NAMES, KINDS, KINDS)
def test_any_two_names(one: str, other: str, kind: str, other_kind: str) -> None:
    left, right = name_form(one, kind), name_form(other, other_kind)
    assert " ".join(left.words) == left.text
    assert name_form(one, kind) == left
    assert known_different(left, right) == known_different(right, left)
    assert not known_different(left, left)
    assert compatible(left, right) == compatible(right, left)
    assert compatible(left, left)
    assert all(2 <= len(letters) <= 8 for letters in left.initials)


@given(st.dictionaries(NAMES, KINDS, max_size=8))
def test_any_names_give_pairs_of_two(kinds: dict[str, str]) -> None:
    said = {name: f"{name} ({name}), also known as {name}" for name in kinds}
    for pair in proposed(kinds, {name: ["c"] for name in kinds}, said).values():
        assert 0 <= pair.left < pair.right < len(kinds)
        assert 0.4 <= pair.score <= 1.0
