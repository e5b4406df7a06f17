"""Names as they are compared: spellings of one name fold to one form, and what sets names apart is kept."""

from __future__ import annotations

import pytest

from hirag_dist.core.entities.resolution.name_forms import family_of, fold, is_acronym_of, name_form

THING, PERSON, FIRM, PLACE = "concept", "person", "organization", "location"


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [
        (FIRM, "U.S. Steel", "US Steel"),
        (PLACE, "Washington, D.C.", "Washington DC"),
        (FIRM, "AT&T", "AT and T"),
        (FIRM, "The New York Times", "New York Times"),
        (FIRM, "Acme, Inc.", "ACME Incorporated"),
        (FIRM, "Siemens AG", "Siemens"),
        (FIRM, "トヨタ株式会社", "トヨタ"),
        (THING, "honey bees", "Honey Bee"),
        (THING, "Colonies of Bees", "colony of bee"),
        (
            THING,
            "Bidirectional Encoder Representations from Transformers (BERT)",
            "Bidirectional Encoder Representations from Transformers",
        ),
        (PLACE, "Fianna Fáil", "fianna fail"),
        (PLACE, "El-Alamein", "El Alamein"),
        (PLACE, "Łódź", "Lodz"),
        (PERSON, "Королёв", "Королев"),
        (PERSON, "أحمد", "احمد"),
        (PERSON, "阿尔伯特·爱因斯坦", "阿尔伯特 爱因斯坦"),
        (PERSON, "Lincoln, Abraham", "Abraham Lincoln"),
        (PERSON, "Dr. Jordan Hayes", "Jordan Hayes"),
        (PERSON, "Mr. Scrooge", "Scrooge"),
        (PERSON, "山田さん", "山田"),
        (PERSON, "Marley's Ghost", "The Ghost of Marley"),
        ("event", "World War II", "World War Two"),
        (THING, "P != NP", "P≠NP"),
        (THING, "x <= y", "x ≤ y"),
        (THING, "C♯", "C#"),
        (PLACE, "El−Alamein", "El-Alamein"),
        ("event", "2nd World War", "Second World War"),
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
        (PERSON, "Lady Macbeth", "Macbeth"),
        (PLACE, "Paris, Texas", "Texas, Paris"),  # no surname first
        (THING, "C++", "C#"),
        (THING, "C++", "C"),
        (THING, "Mars", "Mar"),
        (THING, "physics", "physic"),
        (THING, "A-Division", "Division"),
        (THING, "2.0", "20"),
        ("event", "fourth season", "four seasons"),
        (THING, "12th", "twelve"),
        (THING, "が", "か"),
        (THING, "हिन्दी", "हिन्द"),
        (THING, "мой", "мои"),
    ],
)
def test_other_names_have_other_forms(kind: str, one: str, other: str) -> None:
    assert name_form(one, kind).text != name_form(other, kind).text


@pytest.mark.parametrize(
    ("kind", "name", "numbers"),
    [
        (PERSON, "Louis XIV", ("14",)),
        (PERSON, "Malcolm X", ("10",)),
        (THING, "GPT-4", ("4",)),
        (THING, "GPT4", ("4",)),
        (THING, "Python 3.11", ("3.11",)),
        (THING, "Vitamin A", ("a",)),
        (PERSON, "J. K. Rowling", ()),
        (THING, "C++", ("+", "+", "c")),
        (THING, "第三章", ("三",)),
        ("event", "Battle of Hastings (1066)", ("1066",)),
        (THING, "-9", ("-", "9")),
        (THING, "civic duty", ()),  # letters of Roman numerals are no number
        (THING, "Mix", ()),
    ],
)
def test_numbers_in_a_name(kind: str, name: str, numbers: tuple[str, ...]) -> None:
    assert name_form(name, kind).numbers == numbers


@pytest.mark.parametrize(
    ("name", "acronym", "aside"),
    [
        ("World Health Organization (WHO)", "WHO", ""),
        ("Proof of Work (PoW)", "PoW", ""),
        ("PoW (Proof of Work)", "PoW", ""),
        ("WHO", "WHO", ""),
        ("U.N.", "UN", ""),
        ("LLMs", "LLM", ""),
        ("West Division (NHL)", "", "nhl"),  # whose division, not what it is called for short
        ("Mercury (planet)", "", "planet"),
        ("Who", "", ""),
        ("1984", "", ""),
        ("悟空", "", ""),
    ],
)
def test_what_stands_in_parentheses(name: str, acronym: str, aside: str) -> None:
    form = name_form(name, FIRM)
    assert (form.acronym, form.aside) == (acronym, aside)


def test_what_was_dropped_is_kept_aside() -> None:
    assert name_form("Dr. Hayes", PERSON).title == "dr"
    assert name_form("Acme Ltd.", FIRM).legal == "ltd"
    assert name_form("Acme Ltd.", THING).text == "acme ltd"
    assert name_form("honey bees", THING).plural
    assert not name_form("honey bee", THING).plural
    assert name_form("Scrooge's nephew", PERSON).possessive


@pytest.mark.parametrize("name", ["the", "a", "Dr.", "Inc.", "...", "", "’s", "(x)", "()", ",", "Smith,", "·"])
@pytest.mark.parametrize("kind", [THING, PERSON, FIRM, "", "unknown"])
def test_no_name_is_too_short(name: str, kind: str) -> None:
    form = name_form(name, kind)
    assert form.text == " ".join(form.words)


def test_families_of_types() -> None:
    assert [family_of(kind) for kind in ("Person", "GEO", "company", "", "unknown", "album")] == [
        "person",
        "location",
        "organization",
        "unknown",
        "unknown",
        "thing",
    ]


def test_marks_go_only_where_they_make_no_other_letter() -> None:
    assert fold("Ö É ñ Ø ё й が हिन्दी") == "o e n o е й が हिन्दी"


@pytest.mark.parametrize(
    ("short", "long", "fits"),
    [
        ("WHO", "World Health Organization", True),
        ("TCP", "Internet Protocol", False),
        ("RTÉ", "Raidió Teilifís Éireann", True),
        ("FIFA", "Fédération Internationale de Football Association", True),
        ("HO", "World Health Organization", False),  # the long form begins before it
        ("W", "World", False),
        ("WHO", "WHO", False),
    ],
)
def test_letters_of_an_acronym(short: str, long: str, fits: bool) -> None:
    assert is_acronym_of(short, long) is fits
