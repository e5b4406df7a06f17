"""A digest depends on what a table says and on nothing else."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hirag_dist.storage import digest
from hirag_dist.storage.digest import table_digest

KIND = pa.schema(
    [
        ("s", pa.string()),
        ("l", pa.list_(pa.string())),
        ("t", pa.list_(pa.struct([("k", pa.string()), ("l", pa.list_(pa.string()))]))),
        ("b", pa.bool_()),
        ("i", pa.int32()),
        ("f", pa.float32()),
        ("v", pa.binary()),
    ]
)
WORDS = st.none() | st.text("ab", max_size=2)
LISTS = st.none() | st.lists(WORDS, max_size=2)
ROW = st.fixed_dictionaries(
    {
        "s": WORDS,
        "l": LISTS,
        "t": st.none() | st.lists(st.fixed_dictionaries({"k": WORDS, "l": LISTS}), max_size=2),
        "b": st.none() | st.booleans(),
        "i": st.none() | st.integers(0, 2),
        "f": st.none() | st.sampled_from([0.0, 1.5]),
        "v": st.none() | st.binary(max_size=2),
    }
)


@settings(derandomize=True, deadline=None, max_examples=40)
@given(one=st.lists(ROW, max_size=4), other=st.lists(ROW, max_size=4), cut=st.integers(0, 4))
def test_equal_rows_and_only_these_have_equal_digests(one: list[object], other: list[object], cut: int) -> None:
    table = pa.Table.from_pylist(one, KIND)
    pieces = pa.concat_tables([table.slice(0, cut), table.slice(cut)])
    shifted = pa.concat_tables([pa.Table.from_pylist(other, KIND), table]).combine_chunks().slice(len(other))
    assert table_digest(pieces) == table_digest(shifted) == table_digest(table)
    assert (table_digest(pa.Table.from_pylist(other, KIND)) == table_digest(table)) == (one == other)


def test_texts_that_no_array_holds_have_the_same_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [None if n % 7 == 0 else "x" * (n % 11) + "é" for n in range(1000)]
    chunks = pa.chunked_array([pa.array(texts[:300]), pa.array(texts[200:700])[100:], pa.array(texts[700:])])
    whole = table_digest(pa.table({"text": pa.array(texts), "n": range(1000)}))
    monkeypatch.setattr(digest, "_ONE_ARRAY_BYTES", 0)
    assert table_digest(pa.table({"text": chunks, "n": range(1000)})) == whole
    full = pa.table({"text": ["a", "", "b"]})
    assert table_digest(full) != table_digest(full.rename_columns(["other"])), "names show"
    assert table_digest(full) == table_digest(pa.concat_tables([full.slice(0, 1), full.slice(1)]))
