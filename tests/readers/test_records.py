"""Records with any fields: every format gives the same ones, and what is broken says so."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hirag_dist.readers import ReadOptions, Row, Unreadable, find_inputs, read_rows, read_source

ROWS = [{"id": "a", "n": 1, "gold": ["x", "y"]}, {"id": "b", "n": None, "gold": []}]


def rows(file: Path) -> list[Row | Unreadable]:
    (source,) = find_inputs([str(file)])
    return list(read_rows(source))


def fields(file: Path) -> list[object]:
    return [row.fields if isinstance(row, Row) else row.reason for row in rows(file)]


@pytest.mark.integration  # it starts the process that reads Parquet
def test_json_lines_json_and_parquet_are_the_same(tmp_path: Path) -> None:
    lines = "".join(json.dumps(row) + "\n" for row in ROWS)
    (tmp_path / "a.jsonl").write_text(lines)
    (tmp_path / "lines.json").write_text(lines)
    (tmp_path / "list.json").write_text(json.dumps(ROWS))
    (tmp_path / "under.json").write_text(json.dumps({"version": 2, "data": ROWS}))
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    pq.write_table(pa.Table.from_pylist(ROWS), tmp_path / "a.parquet")
    (tmp_path / "a.parquet.gz").write_bytes(gzip.compress((tmp_path / "a.parquet").read_bytes()))
    for file in tmp_path.iterdir():
        assert fields(file) == ROWS, file.name


def test_a_map_gives_its_keys_as_ids(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps({"q1": {"text": "one"}, "q2": {"text": "two", "id": "own"}}))
    assert fields(tmp_path / "a.json") == [{"id": "q1", "text": "one"}, {"id": "own", "text": "two"}]


@pytest.mark.parametrize(("name", "delimiter"), [("a.csv", ","), ("a.tsv", "\t"), ("b.csv", ";")])
def test_cells_are_text_and_empty_ones_nothing(tmp_path: Path, name: str, delimiter: str) -> None:
    table = [["id", "question"], ["1", '"Who, and; what\n?"'], ["2", ""], ["3"]]
    (tmp_path / name).write_text("\n".join(delimiter.join(row) for row in table) + "\n")
    text = "Who, and; what\n?"
    assert fields(tmp_path / name) == [
        {"id": "1", "question": text},
        {"id": "2", "question": None},
        {"id": "3", "question": None},
    ]


@pytest.mark.parametrize(
    ("name", "content", "records"),
    [
        ("a.jsonl", b'{broken\n{"text": "x"}\n', [1]),
        ("a.jsonl", b"", [None]),
        ("a.jsonl.gz", b"no gzip", [None]),
        ("a.json", b"{broken", [None]),
        ("a.json", b"3", [None]),
        ("a.json", b'[1, {"text": "x"}, 2]', [1, 3]),
    ],
)
def test_what_is_unreadable_is_named_by_its_record_or_as_the_whole_file(
    tmp_path: Path, name: str, content: bytes, records: list[int | None]
) -> None:
    (tmp_path / name).write_bytes(content)
    (source,) = find_inputs([str(tmp_path / name)])
    for read in (read_rows(source), read_source(source, ReadOptions())):
        unread = [found.name for found in read if isinstance(found, Unreadable)]
        path = unread[0].partition(",")[0]
        assert path.endswith(name)
        assert unread == [path if number is None else f"{path}, record {number}" for number in records]


def test_a_header_that_cannot_be_used_is_of_the_whole_file(tmp_path: Path) -> None:
    for name, text, whole in (("a.csv", "id,n\n1,2\n", True), ("b.csv", "id,text\n1,\n", False)):
        (tmp_path / name).write_text(text)
        (source,) = find_inputs([str(tmp_path / name)])
        (found,) = read_source(source, ReadOptions())
        assert isinstance(found, Unreadable)
        assert (found.is_file, found.name.endswith(", record 1")) == (whole, not whole)


def test_a_broken_record_costs_itself(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"id": 1}\n{broken\n\n[1]\n{"id": 2}\n')
    first, broken, listed, last = rows(tmp_path / "a.jsonl")
    assert isinstance(first, Row)
    assert first.fields == {"id": 1}
    assert isinstance(broken, Unreadable)
    assert "line 2 is not valid JSON" in broken.reason
    assert isinstance(listed, Unreadable)
    assert (listed.record, listed.reason) == (2, "the record is a list, not an object")
    assert isinstance(last, Row)
    assert (last.record, last.fields) == (3, {"id": 2})


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("a.jsonl", b"", "no records"),
        ("a.json", b"7", "a number, not a list"),
        ("a.json", b"{", "not valid JSON"),
        ("a.json.gz", gzip.compress(b"[]", mtime=0)[:12], "truncated"),
        pytest.param("a.parquet", b"PAR1", "cannot be read", marks=pytest.mark.integration),
        ("a.txt", b"Who?", "txt has no records"),
        ("a.csv", b"\x00\x01\x02\xff\xfe\x00\x00", ""),
    ],
)
def test_files_that_hold_no_records(tmp_path: Path, name: str, data: bytes, reason: str) -> None:
    (tmp_path / name).write_bytes(data)
    (found,) = rows(tmp_path / name)
    assert isinstance(found, Unreadable)
    assert reason in found.reason
