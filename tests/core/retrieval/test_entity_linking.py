"""Names of entities in questions: found by their words, the longest first, and endpoints of the bridge."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest

from hirag_dist.core.retrieval import entity_linking
from hirag_dist.core.retrieval.entity_linking import (
    MAX_WORDS,
    NameIndex,
    NamePhrase,
    asks_for_paths,
    found_names,
    longest_phrases,
    name_keys,
    named_endpoints,
    named_entities,
    named_first,
    rows_of,
    similar_names,
    sorted_names,
    words,
)


def names_of(names: Sequence[str]) -> NameIndex:
    return sorted_names(*name_keys(names))


def phrases(question: str, names: Sequence[str]) -> list[NamePhrase]:
    return longest_phrases(found_names(names_of(names), words(question)))


VOCABULARY = ("ada", "Ada", "b", "B", "theme", "x1", "glue", "of", "東京")
LISTED = ("theme",)  # the words above that only show the type of a question

Ranked = list[tuple[int, float]]


def slow(
    question: Sequence[str],
    names: Sequence[str],
    layers: Sequence[int],
    near: Sequence[float],
    ranked: Ranked,
    limit: int,
) -> tuple[Ranked, frozenset[int]]:
    """Return the local entities: every rule a loop over all names and all words."""
    read = [word.lower() for word in question]
    spans = [(start, end) for start in range(len(read)) for end in range(start + 1, len(read) + 1)]
    taken: list[tuple[int, int]] = []
    for start, end in sorted(spans, key=lambda span: (span[0] - span[1], span[0])):
        is_name = any(name.lower().split() == read[start:end] for name in names)
        if is_name and not any(start < other_end and other_start < end for other_start, other_end in taken):
            taken.append((start, end))
    phrases = []
    for start, end in sorted(taken):
        if " ".join(read[start:end]) in LISTED:
            continue
        rows = [row for row, name in enumerate(names) if name.lower().split() == read[start:end]]
        lowest = [row for row in rows if layers[row] == min(layers[other] for other in rows)]
        best = [row for row in lowest if near[row] == max(near[other] for other in lowest)]
        written = "".join(question[start:end])
        phrases.append((best[0], any(one.isupper() or one.isdigit() for one in written)))
    by_name: list[int] = []
    for wanted in (True, False):
        for row, specific in phrases:
            if specific is wanted and row not in by_name and len(by_name) < limit // 4:
                by_name.append(row)
    found: Ranked = []
    for row, _ in phrases:
        if row in by_name and row not in [other for other, _ in found]:
            found.append((row, near[row]))
    found += [(row, score) for row, score in ranked if row not in by_name]
    return found[:limit], frozenset(by_name)


@pytest.mark.parametrize("seed", range(12))
def test_the_local_entities_are_those_of_the_slow_rule(seed: int) -> None:
    choose = random.Random(seed)
    names = [" ".join(choose.choices(VOCABULARY[:-1], k=choose.randint(1, 3))) for _ in range(choose.randint(0, 14))]
    layers = [choose.randint(0, 2) for _ in names]
    near = [choose.randint(-2, 4) / 4 for _ in names]
    question = choose.choices(VOCABULARY[:-1], k=choose.randint(0, 12))
    limit = choose.randint(1, 20)
    ranked = sorted(enumerate(near), key=lambda one: (-one[1], one[0]))[:limit]
    text, scores = " ".join(question), dict(enumerate(near))
    named = named_entities(text, phrases(text, names), np.array(layers), scores)
    assert named_first(named, ranked, scores, limit) == slow(question, names, layers, near, ranked, limit)


def test_names_in_a_script_without_capitals_are_named_in_their_order() -> None:
    names, question = ["京都", "東京", "奈良"], "東京と京都と奈良"
    near = dict.fromkeys(range(3), 0.0)
    named = named_entities(question, phrases(question, names), np.zeros(3, np.int32), near)
    assert [names[row] for row, _ in named_first(named, [], near, 8)[0]] == ["東京", "京都"]


def named(question: str, names: list[str]) -> list[str]:
    return [names[row] for row in rows_of(longest_phrases(found_names(names_of(names), words(question))))]


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


@pytest.mark.parametrize(
    ("question", "names", "expected"),
    [
        ("How is Ada Byron connected to Turing?", ["Turing", "Ada Byron", "Ada"], ["Ada Byron 1", "Turing 0"]),
        ("How is Ada connected to the Ada?", ["Ada", "Turing"], []),
        (
            "What links part 7b to AB-1234 and glue?",
            ["glue", "part 7b", "ab-1234"],
            ["part 7b 1", "ab-1234 2", "glue 0"],
        ),
        ("İstanbul ile Ada nasıl bağlı?", ["Ada", "bağlı"], ["Ada 0", "bağlı 1"]),
    ],
)
def test_the_entities_that_a_question_names(question: str, names: list[str], expected: list[str]) -> None:
    layers, near = np.zeros(len(names), np.int32), dict.fromkeys(range(len(names)), 0.0)
    named = named_entities(question, phrases(question, names), layers, near)
    assert [f"{names[row]} {row}" for row in named_endpoints(named)] == expected


def test_similar_names_are_one_letter_apart() -> None:
    """A letter is added, missing, exchanged with its neighbour, or another."""
    names = ["Harbours", "Harbor", "Harbuor", "Hardour", "Harbour", "Harbour light", "Harboouurs", "Mabel"]
    index = names_of(names)
    assert [names[row] for row, _ in similar_names(index, ["harbour"])] == names[:4]
    assert similar_names(index, ["harbour", "lights"]) == [(5, ["harbour", "light"])]
    assert [row for row, _ in similar_names(index, ["harbour"], lambda rows: rows != 1)] == [0, 2, 3]
    assert similar_names(index, []) == []


@pytest.mark.parametrize(
    ("question", "asks"),
    [
        ("What has A to do with B? Are they connected?", True),
        ("刘备和关羽是什么关系?", True),
        ("Miksi kissa istuu?", True),  # a language without a list
        ("Who wrote it?", False),
        ("总结主题。", False),
        ("x " * entity_linking.MAX_READ + "who", True),  # the words after the limit are not read
    ],
)
def test_questions_that_ask_for_connections(question: str, asks: bool) -> None:
    assert asks_for_paths(question) is asks
