"""Names as they are compared: spellings of one name fold to one form, and what sets names apart is kept."""

from __future__ import annotations

import pytest

from hirag_dist.core.entities.resolution.name_forms import is_acronym_of, name_form

THING, PERSON, FIRM, PLACE = "concept", "person", "organization", "location"


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [
        (FIRM, "U.S. Steel", "US Steel"),
        (FIRM, "AT&T", "AT and T"),
        (FIRM, "The New York Times", "New York Times"),
        (FIRM, "Acme, Inc.", "ACME Incorporated"),
        (FIRM, "トヨタ株式会社", "トヨタ"),
        (THING, "honey bees", "Honey Bee"),
        (
            THING,
            "Bidirectional Encoder Representations from Transformers (BERT)",
            "Bidirectional Encoder Representations from Transformers",
        ),
        (PLACE, "Fianna Fáil", "fianna fail"),
        (PLACE, "Łódź", "Lodz"),
        (PERSON, "Королёв", "Королев"),
        (PERSON, "阿尔伯特·爱因斯坦", "阿尔伯特 爱因斯坦"),
        (PERSON, "Dr. Jordan Hayes", "Jordan Hayes"),
        (PERSON, "山田さん", "山田"),
        (PERSON, "Marley's Ghost", "The Ghost of Marley"),
        ("event", "World War II", "World War Two"),
        (THING, "C♯", "C#"),
        (PERSON, "Henry IV", "HENRY the 4th"),
        (THING, "६ देवता", "6 देवता"),
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
        (THING, "Mars", "Mar"),
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


@pytest.mark.parametrize("name", ["the", "a", "Dr.", "Inc.", "...", "", "’s", "(x)", "()", ",", "Smith,", "·"])
@pytest.mark.parametrize("kind", [THING, PERSON, FIRM, "", "unknown"])
def test_no_name_is_too_short(name: str, kind: str) -> None:
    form = name_form(name, kind)
    assert form.text == " ".join(form.words)


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
        ("World Health Organization", {"who"}),
        ("Food and Drug Administration", {"fada", "fda"}),
        ("World War II", {"ww"}),
        ("Berlin", set()),
    ],
)
def test_initials(name: str, initials: set[str]) -> None:
    assert name_form(name, FIRM).initials == initials
