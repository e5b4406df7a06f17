from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytestmark = pytest.mark.integration  # they start the process that reads Parquet
Read = Callable[..., list[Any]]


def parquet(columns: dict[str, Any], row_group_size: int = 2) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink, row_group_size=row_group_size)
    return sink.getvalue()


def test_rows_of_several_row_groups(read: Read) -> None:
    data = parquet({"Text": ["a", None, "", "d", "e"], "labels": [["x"], [], None, ["y", "z"], []], "n": range(5)})
    found = read("d.parquet", data)
    assert [each.record for each in found] == list(range(5))
    assert [getattr(each, "text", each and "-") for each in found] == ["a", "-", "-", "d", "e"]
    assert (found[3].title, found[3].labels) == ("d", ("y", "z"))


def test_binary_large_and_dictionary_columns(read: Read) -> None:
    for array in (
        pa.array([b"caf\xc3\xa9"]),
        pa.array(["café"], pa.large_string()),
        pa.array(["café"]).dictionary_encode(),
    ):
        assert read("d.pq", parquet({"content": array}))[0].text == "café"


def test_tables_without_documents(read: Read) -> None:
    assert "there is: a; name it" in read("d.parquet", parquet({"a": ["x"]}))[0].reason
    assert "no column 'acl'" in read("d.parquet", parquet({"text": ["x"]}), label_field="acl")[0].reason
    assert read("d.parquet", parquet({"text": pa.array([], pa.string())}))[0].reason == "the table has no rows"
    assert "not a string" in read("d.parquet", parquet({"text": [1]}))[0].reason
    assert "binary" in read("d.parquet", parquet({"text": [b"\x89PNG\x00\x00"]}))[0].reason


def test_damage(read: Read) -> None:
    good = parquet({"text": ["some text " * 50] * 100})
    assert "cannot be read" in read("d.parquet", good[:-20])[0].reason
    assert "cannot be read" in read("d.parquet", b"")[0].reason
    broken = bytearray(good)
    broken[len(good) // 4 : len(good) // 4 + 200] = bytes(200)
    assert any("cannot be read" in getattr(each, "reason", "") for each in read("d.parquet", bytes(broken)))
