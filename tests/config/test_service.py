"""Names of indexes, and patterns."""

from __future__ import annotations

import pytest

from hirag_dist.config.service import is_index_name, is_index_pattern, matches_any

NO_NAMES = ["", ".", "..", "a/b", "../acme", "/acme", "-a", ".hidden", "a b", "ä", "a" * 64, "a\n"]


@pytest.mark.parametrize("name", NO_NAMES)
def test_names_that_are_none(name: str) -> None:
    assert not is_index_name(name)


def test_patterns() -> None:
    assert is_index_name("a" * 63)
    assert is_index_name("Acme_2.0-x")
    assert is_index_pattern("*")
    assert is_index_pattern("*-acme-*")
    assert not is_index_pattern("../*")
    assert matches_any("acme", ["*"])
    assert matches_any("a.c", ["a.c"])
    assert not matches_any("abc", ["a.c"])
    assert not matches_any("acme-1", ["acme"])
    assert not matches_any("acme", [])
