"""Pairs that are merged, asked about, or not proposed, by what is alike in the names and by their context."""

from __future__ import annotations

from typing import Any

import pytest

from hirag_dist.core.entities.resolution.scores import MERGED_FROM
from tests.core.entities.resolution.graphs import proposed

PERSON, FIRM, PLACE, THING = "person", "organization", "location", "concept"


def verdicts(kinds: dict[str, str], **context: Any) -> dict[tuple[str, str], str]:
    found = proposed(kinds, **context)
    return {names: pair.tier if pair.score >= MERGED_FROM else "ask" for names, pair in found.items()}


def verdict(one: str, other: str, kind: str = THING, **context: Any) -> str:
    """Return the verdict of the one pair that there can be: its tier, "ask", or an empty text."""
    return next(iter(verdicts({one: kind, other: kind}, **context).values()), "")


@pytest.mark.parametrize(
    ("one", "other", "kind", "tier"),
    [
        ("Chicago Tribune", "The Chicago Tribune", FIRM, "normalise"),
        ("Marley's ghost", "ghost of Marley", PERSON, "normalise"),
        ("BBC One", "BBC1", FIRM, "normalise"),
        ("2018 World Cup", "World Cup (2018)", "event", "normalise"),
        ("Cambridge University", "University of Cambridge", FIRM, "normalise"),
        ("Washington, D.C", "Washington DC", PLACE, "normalise"),
        ("Golden Globe", "Golden Globes", "event", "normalise"),
        ("Mr. Topper", "Topper", PERSON, "normalise"),
        ("Lincoln, Abraham", "Abraham Lincoln", PERSON, "normalise"),
        ("Satellite Experiment (SITE)", "Satellite Experiment", THING, "normalise"),
        ("Dr. Smith", "Smith", PERSON, "normalise"),
        ("Window", "Windows", THING, "ask"),  # a word and its plural
    ],
)
def test_spellings_are_merged_or_asked_about(one: str, other: str, kind: str, tier: str) -> None:
    assert verdict(one, other, kind) == tier


@pytest.mark.parametrize(
    ("one", "other", "kind"),
    [
        ("Dr. Smith", "Prof. Smith", PERSON),
        ("GPT-3", "GPT-4", THING),
        ("Ken Griffey", "Ben Griffey", PERSON),
        ("x > 1", "x < 1", THING),
        ("P = NP", "P ≠ NP", THING),
        ("P = NP", "P != NP", THING),
        ("News Agency", "New Agency", THING),
        ("AIDS RELIEF", "Aid Relief", THING),
        ("Newport, Wales", "Newport, New Hampshire", PLACE),
        ("Martin Luther King", "Martin Luther King Jr", PERSON),
        ("Rowan County", "Carter County", PLACE),
    ],
)
def test_names_that_differ_are_never_one(one: str, other: str, kind: str) -> None:
    assert verdict(one, other, kind) in ("", "ask")
    if one not in ("Martin Luther King", "Dr. Smith"):  # whom one description would make one
        said = dict.fromkeys((one, other), "One of the two that the chronicle names beside the river.")
        assert verdict(one, other, kind, said=said, chunks={one: ["a"], other: ["b"]}) in ("", "ask")


def test_spellings_of_two_kinds_are_asked_about() -> None:
    assert verdicts({"Al-Wakrah": FIRM, "Al Wakrah": PLACE}) == {("Al Wakrah", "Al-Wakrah"): "ask"}


def test_a_qualifier_counts_where_the_other_description_has_it() -> None:
    names = ("Newbury", "Newbury, New Hampshire")
    near = {"Newbury": "A town in New Hampshire beside Goshen.", names[1]: "A town beside Goshen, to its north."}
    far = {"Newbury": "A market town in England with a racecourse.", names[1]: "A town beside Goshen, to its north."}
    assert verdict(*names, kind=PLACE, said=near) == "normalise"
    assert verdict(*names, kind=PLACE, said=far) in ("", "ask")


def test_an_acronym_in_a_name_or_a_description_is_enough() -> None:
    long = "World Health Organization"
    assert verdict(f"{long} (WHO)", "WHO", FIRM) == "alias"
    assert verdict(long, "WHO", FIRM, said={"WHO": f"The {long} (WHO) is an agency."}) == "alias"


def test_initials_need_a_context_and_no_rival() -> None:
    long, chunks = "World Health Organization", {"World Health Organization": ["c"], "WHO": ["c"]}
    names = {long: FIRM, "WHO": FIRM, "Geneva": PLACE, "Tedros": PERSON}
    near = [(name, other) for name in (long, "WHO") for other in ("Geneva", "Tedros")]
    assert verdicts(names) == {("WHO", long): "ask"}
    assert verdicts(names, chunks=chunks, related=near) == {("WHO", long): "alias"}
    rivals = verdicts(names | {"Women Helping Others": FIRM}, related=[*near, ("Women Helping Others", "Geneva")])
    assert "alias" not in rivals.values()


def test_a_surname_needs_a_context_and_no_rival() -> None:
    names = {"Marley": PERSON, "Jacob Marley": PERSON, "Scrooge": PERSON}
    both = [("Marley", "Scrooge"), ("Jacob Marley", "Scrooge")]
    pair = ("Jacob Marley", "Marley")
    assert verdicts(names) == {pair: "ask"}
    told = {"Marley": "Jacob Marley was dead, to begin with."}
    assert verdicts(names, said=told) == {pair: "alias"}
    assert verdicts(names, related=[*both, pair]).get(pair) != "alias", "a text tells them apart"
    found = verdicts(names | {"Anna Marley": PERSON}, related=both)
    assert found.get(("Anna Marley", "Marley")) != "alias"


@pytest.mark.parametrize(
    ("one", "other", "joined"),
    [
        ("J. Lee Thompson", "John Lee Thompson", True),
        ("John F. Kennedy", "John Fitzgerald Kennedy", True),
        ("John Adams", "Jane Adams", False),
    ],
)
def test_given_names_that_agree(one: str, other: str, joined: bool) -> None:
    said = {
        one: "A director of films from Bristol in England.",
        other: "Director of many films, from Bristol, England.",
    }
    found = verdict(one, other, PERSON, said=said, chunks={one: ["a"], other: ["b"]})
    assert (found == "alias") == joined


def test_one_text_that_spells_two_names_means_two_things() -> None:
    said = dict.fromkeys(("Laon", "Lyon"), "A French city with fleurs-de-lis in its arms.")
    together, apart = {"Laon": ["c"], "Lyon": ["c"]}, {"Munich": ["a"], "München": ["b"]}
    assert verdict("Laon", "Lyon", PLACE, said=said, chunks=together) in ("", "ask")
    said = dict.fromkeys(("Munich", "München"), "The capital and most populous city of Bavaria, Germany.")
    assert verdict("Munich", "München", PLACE, said=said, chunks=apart) == "similar"


def test_one_description_of_unlike_names_is_asked_about_and_a_life_is_one_person() -> None:
    apart = {"IBM": ["a"], "Microsoft": ["b"]}
    said = dict.fromkeys(apart, "An American multinational technology corporation.")
    assert verdict("IBM", "Microsoft", FIRM, said=said, chunks=apart) == "ask"
    apart = {"Elvis Presley": ["a"], "King of Rock": ["b"]}
    said = dict.fromkeys(apart, "American singer and actor (1935-1977).")
    assert verdict("Elvis Presley", "King of Rock", PERSON, said=said, chunks=apart) == "similar"
    said = dict.fromkeys(apart, "American singer and actor of films.")
    assert verdict("Elvis Presley", "King of Rock", PERSON, said=said, chunks=apart) == "ask"


def test_aliases_that_a_description_states() -> None:
    names = {"Sun Wukong": PERSON, "Great Sage": PERSON}
    told = {"Sun Wukong": "A monkey king of the mountain, also known as the Great Sage."}
    assert verdicts(names, said=told | {"Great Sage": "A monkey king."}) == {("Great Sage", "Sun Wukong"): "ask"}
    told = {"Satish Harbour Range": "The Satish Harbour Range (SHAR) launches rockets."}
    assert verdict("SHAR", "Satish Harbour Range", FIRM, said=told) == "alias"
    told = {"mon": "A word of Catalan.", "Mixed Oxides of Nitrogen": "Mixed oxides of nitrogen (MON) burn."}
    assert verdict("mon", "Mixed Oxides of Nitrogen", said=told) == "", "a word is no acronym"


def test_pairs_do_not_depend_on_the_order_of_rows() -> None:
    kinds = {"World Health Organization": FIRM, "WHO": FIRM, "The WHO": FIRM, "Marley": PERSON, "Jacob Marley": PERSON}
    found = proposed(kinds)
    assert found == proposed(dict(reversed(kinds.items())))
    assert found
