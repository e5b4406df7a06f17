"""A JSON file with a checksum is what was written, or counts as not there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hirag_dist.errors import StoreError
from hirag_dist.storage.checked_json import read_checked, write_checked
from hirag_dist.storage.store import Store

VALUE = {"tasks": [{"number": 1, "rows": 0.5, "text": "é"}], "a": None}


def test_what_was_written_is_read_back(store: Store) -> None:
    write_checked(store, "a/b.json", VALUE)
    assert read_checked(store, "a/b.json") == VALUE
    assert store.read_json("a/b.json") == VALUE | {"check": store.read_json("a/b.json")["check"]}
    assert read_checked(store, "nothing.json") is None


def test_any_altered_bit_and_any_length(store: Store) -> None:
    write_checked(store, "a.json", VALUE)
    file = Path(store.root) / "a.json"
    data = store.read_bytes("a.json")
    for bit in range(0, len(data) * 8, 5):
        altered = bytearray(data)
        altered[bit // 8] ^= 1 << bit % 8
        file.write_bytes(bytes(altered))
        found = read_checked(store, "a.json")
        assert found is None or {name: value for name, value in found.items() if name in VALUE} == VALUE
    for length in range(len(data)):
        file.write_bytes(data[:length])
        assert read_checked(store, "a.json") is None
    file.write_text(json.dumps([1]))
    assert read_checked(store, "a.json") is None


def test_a_file_that_cannot_be_read_is_not_taken_for_a_damaged_one(store: Store) -> None:
    store.write_bytes("a.json/file", b"")
    with pytest.raises(StoreError):
        read_checked(store, "a.json")
