"""Keys of many names at a time."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from hirag_dist.core.text.name_keys import name_keys
from hirag_dist.core.text.normalize import name_key


@settings(deadline=None)
@given(st.lists(st.text("Ab9 '-.,/&:;+(\"`#’“ßé\u212a\uff21İ\n\t_", max_size=8), max_size=20))
def test_keys_of_many_names_are_those_of_each(names: list[str]) -> None:
    assert name_keys(pa.array(names, pa.string())).to_pylist() == [name_key(name) for name in names]


def test_keys_of_names_in_chunks() -> None:
    assert name_keys(pa.chunked_array([["A b"], [], ["“C”"]], pa.string())).to_pylist() == ["a b", "c"]
    assert name_keys(pa.chunked_array([], pa.string())).to_pylist() == []
