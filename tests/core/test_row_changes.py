"""Sorted tables after a change, against sorting everything again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from hirag_dist.core.row_changes import changed_rows, same_values

SCHEMA = pa.schema([("key", pa.string()), ("at", pa.int32()), ("items", pa.list_(pa.string()))])
BY = [("key", "ascending"), ("at", "ascending")]
Row = tuple[str, int]
keys = st.tuples(st.text("abß中\x00", max_size=2), st.integers(-2, 2))


def table(rows: list[Row], mark: str) -> pa.Table:
    columns = [[key for key, _ in rows], [at for _, at in rows], [[mark, str(n)] for n in range(len(rows))]]
    return pa.table(columns, schema=SCHEMA)


@given(st.lists(keys, max_size=60), st.lists(keys, max_size=6), st.data())
def test_rows_are_those_of_a_stable_sort(before: list[Row], new: list[Row], data: st.DataObject) -> None:
    was, more = table(sorted(before), "before"), table(new, "new")
    gone = np.array(sorted(data.draw(st.sets(st.integers(0, len(before) - 1)))) if before else [], np.int64)
    found = changed_rows(was, gone, more, ("key", "at"))
    rest = was.take(pa.array(np.delete(np.arange(len(before)), gone)))
    assert found.table.equals(pa.concat_tables([rest, more]).sort_by(BY).combine_chunks())
    kept = found.origin >= 0
    assert was.take(pa.array(found.origin[kept])).equals(found.table.filter(pa.array(kept)))
    assert found.table.filter(pa.array(~kept))["items"].to_pylist() == more.sort_by(BY)["items"].to_pylist()


NESTED = pa.list_(pa.struct([("text", pa.string()), ("numbers", pa.list_(pa.int64()))]))
VALUES = st.none() | st.lists(
    st.none()
    | st.fixed_dictionaries(
        {"text": st.sampled_from([None, "", "a"]), "numbers": st.none() | st.lists(st.integers(0, 1), max_size=2)}
    ),
    max_size=2,
)


@given(st.lists(st.tuples(VALUES, VALUES)))
def test_values_are_compared_through_lists_structs_and_nulls(pairs: list[tuple[Any, Any]]) -> None:
    one, other = (pa.array([pair[side] for pair in pairs], NESTED) for side in (0, 1))
    assert same_values(one, other).tolist() == [a == b for a, b in pairs]
    zeros = pa.array([[0.0], [-0.0], [float("nan")]]), pa.array([[0.0], [0.0], [float("nan")]])
    assert same_values(*zeros).tolist() == [True, False, True], "floats are equal by their bits"
    assert same_values(one.slice(1), other.slice(1)).tolist() == [a == b for a, b in pairs[1:]]
