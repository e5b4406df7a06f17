"""A digest depends on what a table says and on nothing else."""

import pyarrow as pa
import pytest

from hirag_dist.index.digest import table_digest

ROWS = [
    {"s": "a", "i": 1, "f": 0.5, "b": True, "l": ["x", "y"], "t": [{"k": "v", "n": 1}]},
    {"s": "", "i": None, "f": None, "b": None, "l": [], "t": []},
    {"s": None, "i": 3, "f": -1.0, "b": False, "l": ["z"], "t": [{"k": None, "n": 2}]},
]
TABLE = pa.Table.from_pylist(ROWS)


def test_chunking_and_slicing_do_not_show() -> None:
    pieces = pa.concat_tables([TABLE.slice(0, 1), TABLE.slice(1, 2)])
    padded = pa.concat_tables([TABLE.slice(2, 1), TABLE]).combine_chunks().slice(1)
    assert table_digest(pieces) == table_digest(TABLE) == table_digest(padded)


@pytest.mark.parametrize(
    ("row", "column", "value"),
    [
        (0, "s", "b"),
        (1, "s", None),
        (2, "s", ""),
        (1, "i", 0),
        (1, "b", False),
        (0, "l", ["xy"]),
        (1, "l", None),
        (0, "t", [{"k": "v", "n": 2}]),
        (2, "t", [{"k": "", "n": 2}]),
    ],
)
def test_any_change_shows(row: int, column: str, value: object) -> None:
    rows = [dict(item) for item in ROWS]
    rows[row][column] = value
    assert table_digest(pa.Table.from_pylist(rows, TABLE.schema)) != table_digest(TABLE)


def test_order_and_names_show() -> None:
    assert table_digest(TABLE.take([1, 0, 2])) != table_digest(TABLE)
    assert table_digest(TABLE.rename_columns(["z", "i", "f", "b", "l", "t"])) != table_digest(TABLE)


def test_text_does_not_flow_between_rows() -> None:
    assert table_digest(pa.table({"s": ["ab", "c"]})) != table_digest(pa.table({"s": ["a", "bc"]}))
