"""Label sets, patterns and reach against an obvious version: sets of texts, a row at a time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hirag_dist.core.access.labels import (
    HIDDEN,
    PARTIAL,
    VISIBLE,
    description_of,
    label_sets,
    pattern_of_sets,
    patterns,
    sets_in_reach,
)

_LABELS = st.lists(st.sampled_from("abcd"), max_size=3)


@given(st.lists(_LABELS, max_size=12))
def test_label_sets_are_numbered_in_their_order(labels: list[list[str]]) -> None:
    numbers, sets = label_sets(labels)
    assert [set(sets[number]) for number in numbers] == [set(row) for row in labels]
    assert sets == sorted(set(sets))


@pytest.mark.parametrize(
    ("reach", "wish", "rule", "seen"),
    [
        (None, (), "all", {(), ("a",), ("a", "b"), ("b",)}),
        (None, ("a",), "all", {("a",), ("a", "b")}),
        ((), (), "all", {()}),
        (("a",), (), "all", {(), ("a",)}),
        (("a",), (), "any", {(), ("a",), ("a", "b")}),
        (("a", "b"), (), "all", {(), ("a",), ("a", "b"), ("b",)}),
        (("a", "b"), ("b",), "all", {("a", "b"), ("b",)}),
        (("a",), ("b",), "all", set()),
        (("a",), ("b",), "any", {("a", "b")}),
        (("other",), (), "any", {()}),
    ],
)
def test_the_rule_of_reach(reach: tuple[str, ...] | None, wish: tuple[str, ...], rule: str, seen: set[object]) -> None:
    sets = [(), ("a",), ("a", "b"), ("b",)]
    found = sets_in_reach(sets, reach, wish, "any" if rule == "any" else "all")
    assert {labels for labels, within in zip(sets, found, strict=True) if within} == seen


_ROWS = st.lists(st.tuples(st.sets(st.integers(0, 6)), st.booleans()), max_size=20)


@given(_ROWS, st.sets(st.integers(0, 6)), st.randoms())
def test_states_are_those_of_each_row_by_itself(
    made_of: list[tuple[set[int], bool]], reached: set[int], shuffler: object
) -> None:
    pairs = [(row, label_set) for row, (sets, _) in enumerate(made_of) for label_set in sets] * 2
    shuffler.shuffle(pairs)  # type: ignore[attr-defined]
    rows, sets = np.array(pairs, np.int64).reshape(-1, 2).T
    found = patterns(rows, sets, len(made_of), np.array([divisible for _, divisible in made_of], bool))
    states = found.states(np.isin(np.arange(7), list(reached)))
    expected = [
        VISIBLE if own <= reached else PARTIAL if own & reached and divisible else HIDDEN for own, divisible in made_of
    ]
    assert states[found.of].tolist() == expected
    for row, (own, _) in enumerate(made_of):
        pattern = found.of[row]
        assert found.sets[found.indptr[pattern] : found.indptr[pattern + 1]].tolist() == sorted(own)
    assert len(found.divisible) == len({(frozenset(own), divisible) for own, divisible in made_of})
    for state in (HIDDEN, PARTIAL, VISIBLE):
        assert found.rows(state, states).tolist() == [row for row, own in enumerate(expected) if own == state]


@given(_ROWS, st.lists(st.tuples(st.integers(0, 4), st.integers(0, 19)), max_size=15))
def test_what_owners_are_made_of_stands_behind_them(
    made_of: list[tuple[set[int], bool]], members: list[tuple[int, int]]
) -> None:
    members = [(owner, member) for owner, member in members if member < len(made_of)]
    pairs = [(row, label_set) for row, (sets, _) in enumerate(made_of) for label_set in sets]
    rows, sets = np.array(pairs, np.int64).reshape(-1, 2).T
    known = patterns(rows, sets, len(made_of))
    owners, of = np.array(members, np.int64).reshape(-1, 2).T
    found = zip(*(column.tolist() for column in pattern_of_sets(owners, known.of[of], known)), strict=True)
    assert set(found) == {(owner, label_set) for owner, member in members for label_set in made_of[member][0]}


def test_one_description_of_several() -> None:
    assert description_of("Long " * 100, 20) == "Long " * 100, "a single one is never cut"
    assert description_of("A dog.\nIt barks.", 20) == "A dog. It barks."
    cut = description_of("A dog.\n" + "\n".join(f"It has {n} fleas." for n in range(50)), 20)
    assert cut.startswith("A dog. It has 0 fleas. It has 1 fleas.")
    assert len(cut) <= 160
