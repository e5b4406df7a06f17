"""Tables of which most rows lie in the file of a former snapshot."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hirag_dist import schemas
from hirag_dist.errors import SnapshotCorrupt
from hirag_dist.storage.serving import base_values
from hirag_dist.storage.snapshot import divided_tables
from hirag_dist.storage.snapshot.divided_tables import TableDivision, divide, find_origin
from hirag_dist.storage.store import Store

Rows = dict[tuple[str, str, int], str]  # (name, chunk, position) → description
NAMES = st.sampled_from([f"n{number}" for number in range(30)])
ROWS = st.dictionaries(st.tuples(NAMES, NAMES, st.integers(0, 2)), st.sampled_from(["", "a", "b"]), max_size=40)


@pytest.fixture(scope="module", autouse=True)
def however_many_changed() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(base_values, "MAX_CHANGED", 9.0)
        patch.setattr(base_values, "MAX_UNUSED", 9.0)
        yield


def mentions(rows: Rows) -> pa.Table:
    """A table of mentions, sorted by its key."""
    records = [
        {"name_key": name, "chunk_id": chunk, "position": position, "description": text}
        | {"name": "N", "type": "T", "described": True}
        for (name, chunk, position), text in sorted(rows.items())
    ]
    return pa.Table.from_pylist(records, schemas.MENTIONS)


def numbered(name: str, n_rows: int) -> Rows:
    return {(name, f"{number:05}", 0): "a" for number in range(n_rows)}


def cut(table: pa.Table, n_rows: int) -> Iterator[pa.Table]:
    return (table.slice(first, n_rows) for first in range(0, table.num_rows, n_rows))


def whole(table: pa.Table) -> TableDivision:
    return TableDivision(table.num_rows, np.zeros(0, np.int64), np.zeros(0, np.int64))


def divided(table: pa.Table, before: pa.Table, division: TableDivision, n_rows: int = 7) -> TableDivision | None:
    keys = before.select(divided_tables.KEYS["mentions"])
    origin = find_origin("mentions", table, cut(keys, n_rows), cut(before, n_rows), division)
    return None if origin is None else divide(origin, division)


def read(division: TableDivision, stored: pa.Table, table: pa.Table, n_rows: int) -> list[dict[str, Any]]:
    changed = pa.RecordBatch.from_pylist(table.take(pa.array(division.changed)).to_pylist(), table.schema)
    batches = (batch for piece in cut(stored, n_rows) for batch in piece.to_batches())
    return pa.Table.from_batches(division.joined(batches, changed), table.schema).to_pylist()


@given(st.lists(ROWS, min_size=2, max_size=5), st.integers(1, 50))
def test_a_table_is_read_as_it_was_given_after_any_changes(states: Sequence[Rows], n_rows: int) -> None:
    first, *later = map(mentions, states)
    before, division = first, whole(first)
    for table in later:
        found = divided(table, before, division, n_rows)
        if found is None:  # most rows of the first file are unused
            return
        assert read(found, first, table, n_rows) == table.to_pylist()
        in_first_file = before.take(pa.array(np.flatnonzero(division.slots() < first.num_rows))).to_pylist()
        assert len(found.changed) == sum(row not in in_first_file for row in table.to_pylist())
        before, division = table, found


@pytest.mark.parametrize(
    ("old", "new", "changed", "unused"),
    [
        (numbered("m", 500), numbered("b", 400) | numbered("m", 500), range(400), range(0)),
        (numbered("b", 400) | numbered("m", 500), numbered("m", 500), range(0), range(400)),
        (numbered("g", 300) | numbered("m", 500), numbered("h", 200) | numbered("m", 500), range(200), range(300)),
    ],
)
def test_rows_around_long_runs_that_came_or_went_stay(old: Rows, new: Rows, changed: range, unused: range) -> None:
    before = mentions(old)
    found = divided(mentions(new), before, whole(before))
    assert (found.changed.tolist(), found.unused.tolist()) == ([*changed], [*unused])


def test_a_table_in_another_order_or_with_other_keys_is_written_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base_values, "MAX_CHANGED", 0.1)
    before = mentions(numbered("m", 500))
    for table in (before.take(pa.array(np.arange(500)[::-1])), mentions(numbered("n", 500)), before.slice(0, 0)):
        assert divided(table, before, whole(before)) is None
    assert divided(before, before, whole(before)) is not None


def test_equal_hashes_of_keys_do_not_make_rows_equal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(divided_tables, "_key_hashes", lambda name, table: np.zeros(table.num_rows, np.uint64))
    before = mentions({("a", "c", 0): "a", ("b", "c", 0): "b"})
    table = mentions({("a", "c", 0): "a", ("c", "c", 0): "b"})
    found = divided(table, before, whole(before))
    assert found.changed.tolist() == [1]
    assert read(found, before, table, 1) == table.to_pylist()


def test_any_rows_and_columns_are_read_as_from_a_table_written_whole(store: Store) -> None:
    states = (numbered("m", 90), numbered("k", 5) | numbered("m", 80) | numbered("n", 3))
    before, table = map(mentions, states)
    found = divided(table, before, whole(before))
    changed = table.take(pa.array(found.changed)).append_column(divided_tables.ROW, pa.array(found.changed))
    unused = pa.table({divided_tables.ROW: found.unused})
    for file, rows in zip(divided_tables.table_files("mentions"), (before, changed, unused), strict=True):
        store.write_table(f"snapshots/own/{file}", rows)
    place = divided_tables.divided_table("snapshots/own/changed_mentions.parquet")
    assert place == ("snapshots/own", "mentions")
    for columns in (None, ["position", "name_key"]):
        plain = table if columns is None else table.select(columns)
        pieces = divided_tables.pieces_of_table(store, *place, columns)
        assert pa.concat_tables(pieces).to_pylist() == plain.to_pylist()
        for start, stop in ((0, 88), (3, 4), (4, 7), (84, 87), (88, 88)):
            read_rows = divided_tables.rows_of_table(store, *place, start, stop, columns)
            assert read_rows.to_pylist() == plain.slice(start, stop - start).to_pylist()
    store.write_table("snapshots/own/unused_mentions.parquet", pa.table({divided_tables.ROW: [90]}))
    with pytest.raises(SnapshotCorrupt, match="do not belong together"):
        divided_tables.read_division(store, *place)
