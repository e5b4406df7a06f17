"""Pairs that are merged, referred to a model, or rejected, tier by tier."""

from __future__ import annotations

import numpy as np
import pytest

from hirag_dist.core.entities.resolution.candidate_pairs import PairRules
from tests.core.entities.resolution.graphs import ALL, proposed, view_of

PERSON, FIRM, PLACE, THING = "person", "organization", "location", "concept"


def verdicts(view_args: dict[str, object], rules: PairRules = ALL) -> dict[tuple[str, str], str]:
    view = view_of(**view_args)  # type: ignore[arg-type]
    return {names: "ask" if pair.ask else pair.tier for names, pair in proposed(view, rules).items()}


def test_spellings_are_merged_with_the_most_mentioned() -> None:
    names = {"Chicago Tribune": FIRM, "The Chicago Tribune": FIRM, "CHICAGO TRIBUNE, INC.": FIRM}
    found = verdicts({"kinds": names, "mentions": {"Chicago Tribune": 9}})
    assert found == {
        ("Chicago Tribune", "The Chicago Tribune"): "normalise",
        ("CHICAGO TRIBUNE, INC.", "Chicago Tribune"): "normalise",
    }


def test_spellings_of_two_kinds_are_asked_about_and_plurals_of_two_kinds_are_left() -> None:
    assert verdicts({"kinds": {"Al-Wakrah": FIRM, "Al Wakrah": PLACE}}) == {("Al Wakrah", "Al-Wakrah"): "ask"}
    assert verdicts({"kinds": {"Cleveland Browns": FIRM, "Cleveland Brown": PERSON}}) == {}
    assert verdicts({"kinds": {"Apple": FIRM, "apples": THING}}) == {}


def test_a_title_is_not_dropped_where_a_woman_has_the_name_too() -> None:
    names = {"Mr. Fezziwig": PERSON, "Fezziwig": PERSON}
    assert verdicts({"kinds": names}) == {("Fezziwig", "Mr. Fezziwig"): "normalise"}
    found = verdicts({"kinds": names | {"Mrs. Fezziwig": PERSON}})
    assert found[("Fezziwig", "Mr. Fezziwig")] == "ask"
    assert ("Mr. Fezziwig", "Mrs. Fezziwig") not in found


def test_two_legal_forms_are_two_companies_until_a_model_says_otherwise() -> None:
    assert verdicts({"kinds": {"Hudson Ltd.": FIRM, "Hudson Inc.": FIRM}}) == {("Hudson Inc.", "Hudson Ltd."): "ask"}


def test_an_acronym_in_a_name_or_a_description_is_enough() -> None:
    long = "World Health Organization"
    assert verdicts({"kinds": {f"{long} (WHO)": FIRM, "WHO": FIRM}}) == {("WHO", f"{long} (WHO)"): "alias"}
    said = {"WHO": f"The {long} (WHO) is an agency."}
    assert verdicts({"kinds": {long: FIRM, "WHO": FIRM}, "said": said}) == {("WHO", long): "alias"}


def test_initials_need_a_context_and_no_rival() -> None:
    long, chunks = "World Health Organization", {"World Health Organization": ["c"], "WHO": ["c"]}
    names = {long: FIRM, "WHO": FIRM}
    assert verdicts({"kinds": names}) == {("WHO", long): "ask"}
    assert verdicts({"kinds": names, "chunks": chunks}) == {("WHO", long): "alias"}
    rival = {"Women Helping Others": FIRM}
    assert verdicts({"kinds": names | rival, "chunks": chunks}) == {("WHO", long): "ask"}
    assert verdicts({"kinds": {long: FIRM, "WHO": PERSON}, "chunks": chunks}) == {}


def test_a_stated_alias_is_asked_about() -> None:
    names = {"Sun Wukong": PERSON, "Great Sage": PERSON}
    found = verdicts({"kinds": names, "said": {"Sun Wukong": "A monkey, also known as the Great Sage."}})
    assert found == {("Great Sage", "Sun Wukong"): "ask"}


def test_a_surname_needs_more_than_a_chunk() -> None:
    names = {"Marley": PERSON, "Jacob Marley": PERSON, "Scrooge": PERSON}
    chunks = {"Marley": ["c"], "Jacob Marley": ["c"]}
    both = [("Marley", "Scrooge"), ("Jacob Marley", "Scrooge")]
    pair = ("Jacob Marley", "Marley")
    assert verdicts({"kinds": names}) == {}
    assert verdicts({"kinds": names, "chunks": chunks}) == {pair: "ask"}
    assert verdicts({"kinds": names, "related": both}) == {pair: "alias"}
    assert verdicts({"kinds": names, "said": {"Marley": "Jacob Marley was dead."}}) == {pair: "alias"}
    assert verdicts({"kinds": names, "related": [*both, pair]}) == {pair: "ask"}  # a text tells them apart
    ranked = {"Colonel Marley": PERSON, "Jacob Marley": PERSON, "Scrooge": PERSON}
    related = [("Colonel Marley", "Scrooge"), ("Jacob Marley", "Scrooge")]
    assert verdicts({"kinds": ranked, "related": related}) == {("Colonel Marley", "Jacob Marley"): "ask"}
    told = {"Jacob Marley": "The late Marley, a partner of Scrooge."}
    assert verdicts({"kinds": names, "related": both, "said": told}) == {pair: "alias"}
    found = verdicts({"kinds": names | {"Anna Marley": PERSON}, "related": both})
    assert found == {pair: "ask"}


def test_initials_and_middle_names_of_people() -> None:
    chunks = {name: ["c"] for name in ("J. Lee Thompson", "John Lee Thompson", "Josh Thompson", "Lynn Reynolds")}
    pair = ("J. Lee Thompson", "John Lee Thompson")
    assert verdicts({"kinds": dict.fromkeys(pair, PERSON), "chunks": chunks}) == {pair: "alias"}
    assert verdicts({"kinds": dict.fromkeys(pair, PERSON)}) == {pair: "ask"}
    found = verdicts({"kinds": dict.fromkeys([*pair, "Josh Thompson"], PERSON), "chunks": chunks})
    assert found[pair] == "ask"
    assert ("John Lee Thompson", "Josh Thompson") not in found


@pytest.mark.parametrize(
    ("one", "other", "verdict"),
    [
        ("George H. W. Bush", "George W. Bush", None),
        ("George Bush", "George W. Bush", "ask"),
        ("John Adams", "John Quincy Adams", "ask"),
        ("John F. Kennedy", "John Fitzgerald Kennedy", "alias"),
        ("Ludwig Beethoven", "Ludwig van Beethoven", "alias"),
    ],
)
def test_a_chunk_says_too_little_where_a_given_name_is_lacking(one: str, other: str, verdict: str | None) -> None:
    found = verdicts({"kinds": dict.fromkeys((one, other), PERSON), "chunks": {one: ["c"], other: ["c"]}})
    assert found == ({(one, other): verdict} if verdict else {})


def test_the_plural_of_a_proper_name_is_asked_about() -> None:
    chunks = {"Windows": ["c"], "Window": ["c"]}
    said = {"Windows": "An operating system.", "Window": "A window is an opening."}
    assert verdicts({"kinds": dict.fromkeys(chunks, THING), "chunks": chunks, "said": said}) == {
        ("Window", "Windows"): "ask"
    }
    view = view_of(dict.fromkeys(chunks, THING), chunks=chunks, said=said)
    assert [pair.ask for pair in proposed(view, vectors=NEAR).values()] == [True]  # nearness does not overrule it
    said = {"Windows": "The windows of the house.", "Window": "A window is an opening."}
    assert verdicts({"kinds": dict.fromkeys(chunks, THING), "chunks": chunks, "said": said}) == {
        ("Window", "Windows"): "normalise"
    }


def test_kings_go_by_their_numbers() -> None:
    names = dict.fromkeys(["King Edward I", "Edward I", "Edward II", "Edward William I"], PERSON)
    chunks = {name: ["c"] for name in names}
    assert verdicts({"kinds": names, "chunks": chunks}) == {("Edward I", "King Edward I"): "alias"}


NEAR = np.array([[1, 0], [0.99, np.sqrt(1 - 0.99**2)]], np.float32)


@pytest.mark.parametrize(
    ("one", "other", "verdict"),
    [
        ("Ghost of Christmas Past", "Christmas Past Ghost", "vector"),
        ("Bontaro Miyake", "Bontaro Miake", "vector"),  # a slip
        ("Christmas feast", "feast", "ask"),
        ("Rowan County", "Carter County", None),
        ("Chapter 3 of Oliver", "Chapter 4 of Oliver", None),
    ],
)
def test_near_vectors_propose_and_names_decide(one: str, other: str, verdict: str | None) -> None:
    view = view_of({one: THING, other: THING}, chunks={one: ["c"], other: ["c"]})
    found = proposed(view, vectors=NEAR)
    assert [("ask" if pair.ask else pair.tier) for pair in found.values()] == ([verdict] if verdict else [])


def test_near_vectors_without_context_or_of_two_kinds_are_nothing() -> None:
    names = ["Ghost of Christmas Past", "Christmas Past Ghost"]
    assert not proposed(view_of(dict.fromkeys(names, THING)), vectors=NEAR)
    chunks = {name: ["c"] for name in names}
    assert not proposed(view_of(dict(zip(names, [THING, PERSON], strict=True)), chunks=chunks), vectors=NEAR)
    related = view_of(dict.fromkeys(names, THING), chunks=chunks, related=[(names[0], names[1])])
    assert [pair.ask for pair in proposed(related, vectors=NEAR).values()] == [True]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("x > 1", "x < 1"),
        ("P = NP", "P ≠ NP"),
        ("$10", "€10"),
        ("√2", "2"),
        ("A search", "A* search"),
    ],
)
def test_signs_set_names_apart(one: str, other: str) -> None:
    view = view_of({one: THING, other: THING}, chunks={one: ["c"], other: ["c"]})
    assert proposed(view, vectors=NEAR) == {}
