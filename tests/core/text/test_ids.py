"""Ids depend on content, on every part of it, and never change: snapshots of old releases must stay comparable."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from hirag_dist.core.text.ids import chunk_id, content_id, document_id, entity_id, name_keys, relation_id, unit_id
from hirag_dist.core.text.normalize import name_key


@given(st.lists(st.text("Ab9 '-.,/&:;+(\"`#’“ßé\u212a\uff21İ\n\t_", max_size=8), max_size=20))
def test_keys_of_many_names_are_those_of_each(names: list[str]) -> None:
    assert name_keys(pa.array(names, pa.string())).to_pylist() == [name_key(name) for name in names]


def test_ids_are_what_they_were() -> None:
    """SHA-256 over length-prefixed parts, 24 hex digits, computed by hand with hashlib."""
    assert content_id() == "e3b0c44298fc1c149afbf4c8"
    assert content_id("ab", "c") == "43ee655579de01ca739b3f95" != content_id("a", "bc") != content_id("abc")
    assert entity_id(0, "scrooge") == "a40e8e63ca85cf08d8ee31f3"


def test_kinds_do_not_collide() -> None:
    ids = [
        document_id("x"),
        chunk_id("x", 0, 1, "a"),
        chunk_id("y", 0, 1, "a"),
        chunk_id("x", 0, 11, "a"),
        entity_id(0, "x"),
        entity_id(1, "x"),
        unit_id("x"),
    ]
    ids += [relation_id("extracted", "a", "b"), relation_id("extracted", "b", "a"), relation_id("summary", "a", "b")]
    assert len(set(ids)) == len(ids)


def test_lone_surrogates_have_an_id() -> None:
    assert document_id("\ud800") != document_id("\udfff")
