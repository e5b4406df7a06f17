from __future__ import annotations

import datetime as dt
import io
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hirag_dist.core.metadata.fields import FieldSource
from hirag_dist.types.metadata import MetadataField

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
    assert (found[3].title, found[3].labels) == ("d#3", ("y", "z"))


def test_binary_large_and_dictionary_columns(read: Read) -> None:
    for array in (
        pa.array([b"caf\xc3\xa9"]),
        pa.array(["café"], pa.large_string()),
        pa.array(["café"]).dictionary_encode(),
    ):
        assert read("d.pq", parquet({"content": array}))[0].text == "café"


def test_strings_that_are_not_utf8(read: Read) -> None:
    broken = pa.Array.from_buffers(pa.string(), 2, pa.array([b"caf\xe9", b"b"]).buffers())
    assert [each.text for each in read("d.parquet", parquet({"text": broken}))] == ["café", "b"]


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


def test_dates_that_python_has_no_room_for(read: Read) -> None:
    far = pa.array([4_000_000, 19_787], pa.int32()).cast(pa.date32())
    fine = pa.array([1709634615123456789, None], pa.timestamp("ns"))
    data = parquet({"text": ["a", "b"], "far": far, "fine": fine, "nested": [{"d": dt.date(2024, 3, 5)}, None]})
    sources = tuple(FieldSource(MetadataField(name, "date"), (key,)) for name, key in DATES.items())
    one, two = read("d.parquet", data, metadata=sources)
    assert (one.metadata, two.metadata) == (
        {"fine": "2024-03-05T10:30:15.123456Z", "nested": "2024-03-05"},
        {"far": "2024-03-05"},
    )
    assert [fault for fault in one.faults if "12921" in fault]


DATES = {"far": "far", "fine": "fine", "nested": "nested.d"}
