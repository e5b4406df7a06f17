from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from hirag_dist.core.key_sets import LIST, KeySets, chunk_text_sets, key_sets
from hirag_dist.core.text.ids import chunk_id, text_key
from hirag_dist.types import IntVector

KEYS = st.integers(0, 2**48 - 1)
SETS = st.lists(st.sets(st.one_of(st.integers(0, 5), KEYS), max_size=6), max_size=6)


def made(sets: Sequence[set[int]]) -> KeySets:
    return key_sets(pa.chunked_array([pa.array([sorted(keys) for keys in sets], LIST)]))


def as_sets(found: KeySets) -> list[set[int]]:
    parts = np.split(found.keys, found.indptr[1:-1]) if len(found) else []
    for part in parts:
        assert (np.diff(part) > 0).all(), "ascending and distinct"
    return [set(part.tolist()) for part in parts]


def vector(values: Sequence[int]) -> IntVector:
    return np.array(values, np.int64)


@given(SETS, st.data())
def test_sets_are_taken_in_any_order_and_minus_one_is_empty(sets: list[set[int]], data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.integers(-1, len(sets) - 1), max_size=8))
    assert as_sets(made(sets).take(vector(rows))) == [sets[row] if row >= 0 else set() for row in rows]


@given(SETS, st.integers(1, 4), st.sampled_from([1, 2, 3, 7, 1 << 22]), st.data())
def test_unions_are_those_of_python_in_blocks_of_any_size(
    sets: list[set[int]], n_owners: int, block_keys: int, data: st.DataObject
) -> None:
    pair = st.tuples(st.integers(0, n_owners - 1), st.integers(-1, len(sets) - 1))
    pairs = data.draw(st.lists(pair, max_size=8))
    wanted: list[set[int]] = [set() for _ in range(n_owners)]
    for owner, row in pairs:
        wanted[owner] |= sets[row] if row >= 0 else set()
    owners, rows = vector([owner for owner, _ in pairs]), vector([row for _, row in pairs])
    assert as_sets(made(sets).unions(owners, rows, n_owners, block_keys)) == wanted


@given(SETS, st.sets(st.integers(0, 5)))
def test_hits_are_sets_with_any_of_the_keys(sets: list[set[int]], keys: set[int]) -> None:
    assert made(sets).hits(vector(sorted(keys))).tolist() == [bool(own & keys) for own in sets]


@given(st.lists(st.tuples(st.sets(st.integers(0, 4)), st.sets(st.integers(0, 4))), max_size=6))
def test_within_is_the_subset_of_the_same_row(pairs: list[tuple[set[int], set[int]]]) -> None:
    mine, others = made([pair[0] for pair in pairs]), made([pair[1] for pair in pairs])
    assert mine.within(others).tolist() == [own <= other for own, other in pairs]


def test_copies_of_a_text_are_one_key() -> None:
    ids = [chunk_id("a", 0, 4, "text"), chunk_id("b", 9, 13, "text"), chunk_id("a", 5, 9, "else")]
    lists = pa.chunked_array([pa.array([ids[:2]], pa.list_(pa.string())), pa.array([[], ids], pa.list_(pa.string()))])
    text, other = text_key(ids[0]), text_key(ids[2])
    assert as_sets(chunk_text_sets(lists)) == [{text}, set(), {text, other}]
