"""Names as they are compared: spellings of one name fold to one form, and what sets names apart keeps them apart."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hirag_dist.core.entities.resolution.name_forms import compatible, is_acronym_of, known_different, name_form
from tests.core.entities.resolution.graphs import proposed

THING, PERSON, FIRM, PLACE = "concept", "person", "organization", "location"


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [
        (FIRM, "U.S. Steel", "US Steel"),
        (FIRM, "Acme, Inc.", "ACME Incorporated"),
        (PLACE, "Fianna Fáil", "fianna fail"),
        (PERSON, "Королёв", "Королев"),
        (PERSON, "阿尔伯特·爱因斯坦", "阿尔伯特 爱因斯坦"),
        ("event", "World War II", "World War Two"),
        (PERSON, "Henry VIII", "HENRY 8"),
    ],
)
def test_spellings_of_one_name_have_one_form(kind: str, one: str, other: str) -> None:
    assert name_form(one, kind).text == name_form(other, kind).text
    assert name_form(one, kind).numbers == name_form(other, kind).numbers


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [
        (PERSON, "Henry James", "James Henry"),
        (PERSON, "Mr. Williams", "William"),  # no plural
        (PERSON, "Mrs. Cratchit", "Mr. Cratchit"),
        (PLACE, "Paris, Texas", "Texas, Paris"),  # no surname first
        (THING, "C++", "C#"),
        (THING, "2.0", "20"),
        ("event", "fourth season", "four seasons"),
        (THING, "が", "か"),
        (THING, "हिन्दी", "हिन्द"),
    ],
)
def test_other_names_have_other_forms(kind: str, one: str, other: str) -> None:
    assert name_form(one, kind).text != name_form(other, kind).text


@pytest.mark.parametrize(
    ("kind", "name", "numbers"),
    [
        (PERSON, "Louis XIV", ("14",)),
        (THING, "GPT-4", ("4",)),
        (THING, "Python 3.11", ("3.11",)),
        (THING, "Vitamin A", ("a",)),
        (PERSON, "J. K. Rowling", ()),
        (THING, "C++", ("+", "+", "c")),
        (THING, "第三章", ("三",)),
        ("event", "Battle of Hastings (1066)", ("1066",)),
        (THING, "civic duty", ()),  # letters of Roman numerals are no number
    ],
)
def test_numbers_in_a_name(kind: str, name: str, numbers: tuple[str, ...]) -> None:
    assert name_form(name, kind).numbers == numbers


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


@pytest.mark.parametrize(
    ("short", "long", "fits"),
    [
        ("WHO", "World Health Organization", True),
        ("RTÉ", "Raidió Teilifís Éireann", True),
        ("FIFA", "Fédération Internationale de Football Association", True),
        ("W", "World", False),
        ("WHO", "WHO", False),
    ],
)
def test_letters_of_an_acronym(short: str, long: str, fits: bool) -> None:
    assert is_acronym_of(short, long) is fits


@pytest.mark.parametrize(
    ("name", "initials"),
    [
        ("World Health Organization", {"WHO"}),
        ("Food and Drug Administration", {"FADA", "FDA"}),
        ("World War II", {"WW"}),
        ("Berlin", set()),
    ],
)
def test_initials(name: str, initials: set[str]) -> None:
    assert name_form(name, FIRM).initials == initials


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [
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
    ],
)
def test_two_things(kind: str, one: str, other: str) -> None:
    assert known_different(name_form(one, kind), name_form(other, kind))
    assert known_different(name_form(other, kind), name_form(one, kind))


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [
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
    ],
)
def test_not_held_apart(kind: str, one: str, other: str) -> None:
    assert not known_different(name_form(one, kind), name_form(other, kind))


KINDS = st.sampled_from(["person", "organization", "location", "event", "concept", "unknown", ""])
PIECES = st.sampled_from(
    ["the", "Mr.", "Inc.", "II", "4th", "the", "'s", "(", ")", "of", ",", ".", "-", "王", "が", "é", "ё"]
)
NAMES = st.text(max_size=12) | st.lists(PIECES | st.text(max_size=4), max_size=6).map(" ".join)


@settings(max_examples=100, deadline=None)
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


@settings(max_examples=25, deadline=None)
@given(st.dictionaries(NAMES, KINDS, max_size=8))
def test_any_names_give_pairs_of_two(kinds: dict[str, str]) -> None:
    said = {name: f"{name} ({name}), also known as {name}" for name in kinds}
    for pair in proposed(kinds, {name: ["c"] for name in kinds}, said).values():
        assert 0 <= pair.left < pair.right < len(kinds)
        assert 0.4 <= pair.score <= 1.0
