"""Names of entities in questions: found by their words, the longest first."""

from __future__ import annotations

import random

import numpy as np
import pytest

from hirag_dist.core.retrieval import entity_linking
from hirag_dist.core.retrieval.entity_linking import (
    MAX_WORDS,
    NameIndex,
    NamePhrase,
    found_names,
    longest_names,
    name_keys,
    similar_names,
    sorted_names,
    words,
)


def names_of(names: list[str]) -> NameIndex:
    keys, places = name_keys(names)
    return sorted_names(keys, places)


def named(question: str, names: list[str]) -> list[str]:
    return [names[row] for row in longest_names(found_names(names_of(names), words(question)))]


@pytest.mark.parametrize(
    ("question", "names", "found"),
    [
        ("Where was Marie Curie's husband born?", ["Curie", "Marie Curie", "Husband"], ["Marie Curie", "Husband"]),
        ("Is «Straße» in A.B. Smith's book?", ["STRASSE", "A. B. Smith"], ["STRASSE", "A. B. Smith"]),
        ("東京タワーはどこにありますか", ["東京タワー", "京"], ["東京タワー"]),
        ("กรุงเทพมหานครอยู่ที่ไหน", ["กรุงเทพมหานคร"], ["กรุงเทพมหานคร"]),
        ("the cat and the hat", ["hat", "the cat", "dog"], ["the cat", "hat"]),
        ("Paris, Paris!", ["Paris"], ["Paris"]),
        ("nothing here", ["there", "no", "thing"], []),
        ("?!", ["a", "!?"], []),
    ],
)
def test_names_in_questions(question: str, names: list[str], found: list[str]) -> None:
    assert named(question, names) == found


def test_what_may_not_be_seen_takes_no_place_of_what_may() -> None:
    names = names_of(["x"] * 100)
    found = found_names(names, ["x"], lambda rows: rows >= 50)
    assert [phrase.row for phrase in found] == list(range(50, 50 + entity_linking._MAX_ROWS))


def test_names_of_many_words_or_none_cannot_be_looked_for() -> None:
    keys, places = name_keys(["w " * MAX_WORDS, "w " * (MAX_WORDS + 1), "…", "w"])
    assert places.tolist() == [0, 3]
    assert len(set(keys.tolist())) == 2
    long = "w " * MAX_WORDS
    assert named(long, [long]) == [long]
    assert found_names(names_of([]), ["w"]) == []


def test_a_long_question_is_read_up_to_a_limit() -> None:
    read = ["x"] * 600 + ["end"]
    read[entity_linking._MAX_READ - 1] = "last"
    found = found_names(names_of(["last", "end"]), read)
    assert found == [NamePhrase(entity_linking._MAX_READ - 1, entity_linking._MAX_READ, 0)]


@pytest.mark.parametrize("seed", range(10))
def test_what_is_found_is_what_a_search_through_all_names_finds(seed: int) -> None:
    choose = random.Random(seed)
    names = [" ".join(choose.choices("abcd", k=choose.randint(1, 4))) for _ in range(25)]
    question = choose.choices("abcde", k=15)
    wanted = [
        NamePhrase(start, start + len(name.split()), row)
        for row, name in enumerate(names)
        for start in range(len(question))
        if question[start : start + len(name.split())] == name.split()
    ]
    found = found_names(names_of(names), question)
    assert sorted(found) == sorted(wanted)
    taken: set[int] = set()
    kept = []
    for phrase in sorted(wanted, key=lambda one: (one.start - one.end, one.start)):
        span = set(range(phrase.start, phrase.end))
        same = [other for other in kept if (other.start, other.end) == (phrase.start, phrase.end)]
        if same or not span & taken:
            kept.append(phrase)
            taken |= span
    assert longest_names(found) == list(dict.fromkeys(phrase.row for phrase in sorted(kept)))


def one_change_apart(one: str, other: str) -> bool:
    """Return whether a letter is missing, added or another, or two neighbours are exchanged: the slow way."""
    if one == other or abs(len(one) - len(other)) > 1:
        return False
    if len(one) == len(other):
        places = [at for at in range(len(one)) if one[at] != other[at]]
        swapped = len(places) == 2 and places[1] == places[0] + 1
        return len(places) == 1 or (swapped and one[places[0]] + one[places[1]] == other[places[1]] + other[places[0]])
    short, long = sorted((one, other), key=len)
    return any(long[:at] + long[at + 1 :] == short for at in range(len(long)))


@pytest.mark.parametrize("seed", range(4))
def test_similar_names_are_one_letter_apart(seed: int) -> None:
    choose = random.Random(seed)
    names = list(
        {" ".join("".join(choose.choices("abé", k=3)) for _ in range(choose.randint(1, 2))) for _ in range(30)}
    )
    for wanted in names[:10]:
        read = wanted.split()
        near = []
        for row, name in enumerate(names):
            other = name.split()
            if len(other) == len(read):
                apart = [(one, two) for one, two in zip(read, other, strict=True) if one != two]
                # A letter that neither the name nor the alphabet has is not tried.
                if len(apart) == 1 and one_change_apart(*apart[0]) and not set(apart[0][1]) - {*"ab", *apart[0][0]}:
                    near.append((row, other))
        assert similar_names(names_of(names), read) == sorted(near)
        hidden = {row for row, _ in near[:1]}
        left = [one for one in sorted(near) if one[0] not in hidden]
        admits = lambda rows, hidden=hidden: np.array([row not in hidden for row in rows.tolist()], bool)  # noqa: E731
        assert similar_names(names_of(names), read, admits) == left
    assert similar_names(names_of(names), []) == []
