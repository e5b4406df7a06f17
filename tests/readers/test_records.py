"""Records of JSON, CSV and Parquet: their texts, titles, labels and ids; what is broken says so and costs itself."""

from __future__ import annotations

import gzip
import io
import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hirag_dist.readers import (
    Document,
    ReadOptions,
    Row,
    Unreadable,
    find_inputs,
    is_access_refusal,
    is_whole_record,
    read_rows,
    read_source,
)

starts_a_process = pytest.mark.integration  # the one that reads Parquet


def texts(found: list[Any]) -> list[str]:
    return [getattr(each, "text", "-") for each in found]


def labels_of(found: list[Any]) -> list[tuple[str, ...] | None]:
    return [getattr(each, "labels", None) for each in found]


# ---- JSON


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (["one", "# Two\ntwo"], [("one", "one"), ("Two", "# Two\ntwo")]),
        ([{"text": "one"}, {"Content": "two", "title": "T"}], [("one", "one"), ("T", "two")]),
        (["--\n--"], [("d#0", "--\n--")]),
        ({"text": "one", "meta": ["x"]}, [("d", "one")]),
        ({"id1": "one", "id2": "two"}, [("id1", "one"), ("id2", "two")]),
        ({"id1": {"content": "one"}, "id2": {"content": "two", "title": "T"}}, [("id1", "one"), ("T", "two")]),
        ({"data": [{"text": "one"}], "authors": ["A"]}, [("one", "one")]),
        ("one", [("d", "one")]),
    ],
)
def test_shapes_of_json(read: Any, value: object, expected: list[tuple[str, str]]) -> None:
    found = read("d.json", json.dumps(value))
    assert [(each.title, each.text) for each in found] == expected
    assert [each.record for each in found] == list(range(len(found)))


@pytest.mark.parametrize(
    ("content", "reasons"),
    [
        ("", ["the text is empty"]),
        ("{}", ["no field named"]),
        ('["a", 1, null]', ["", "the record is a number, not an object or a string", "the record is null"]),
        ('{"title": "T", "summary": "S"}', ["no field named text, .*; there is: title, summary"]),
        ('{"a": ["x"], "b": ["y"]}', [r"several lists \(a, b\)"]),
        ('{"text": 5}', ["field 'text' is a number, not a string"]),
        ('[{"text": null}]', ["field 'text' is null, so that there is no text"]),
        ('[\n{"a": }]', [r"not valid JSON: Expecting value \(line 2, column 7\)"]),
        ("[" * 100_000, ["nested too deeply"]),
    ],
)
def test_json_without_documents(read: Any, content: str, reasons: list[str]) -> None:
    for found, reason in zip(read("d.json", content), reasons, strict=True):
        assert re.search(reason, getattr(found, "reason", "")), found


def test_json_lines_keep_what_is_good(read: Any) -> None:
    lines = b'\xef\xbb\xbf{"text": "one"}\r\n\r\nnot json\n   \n["list"]\n{"text": "caf\xe9"}\n"two"\n'
    lines += b'{"x": 1}\n{"text": "three"}'
    found = read("d.jsonl", lines)
    assert [each.record for each in found] == list(range(7))
    assert texts(found) == ["one", "-", "-", "café", "two", "-", "three"]
    assert found[1].reason == "line 3 is not valid JSON: Expecting value (column 1)"


def test_surrogates_line_separators_and_huge_numbers(read: Any) -> None:
    digits = "9" * 10_000
    (found,) = read("d.jsonl", f'{{"text": "a\\ud800\\u0000b\u2028c", "n": {digits}, "n": {digits}}}')
    assert found.text == "a\ufffdb\u2028c"


# ---- CSV


def test_quotes_line_ends_and_titles(read: Any) -> None:
    data = '\ufefftitle, Text ,labels\r\nT,"a, ""b""\r\nc",hr\r\n,d,"[""x"", ""y""]"\r\n\r\n'
    found = read("d.csv", data)
    assert [(each.record, each.title, each.text, each.labels) for each in found] == [
        (0, "T", 'a, "b"\nc', ("hr",)),
        (1, "d", "d", ("x", "y")),
    ]


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("d.tsv", "id\ttext\n1\ta, b\n"),
        ("d.csv", "id;text\n1;a, b\n"),
        ("d.csv", "id|text\n1|a, b\n"),
        ("d.tab", "id\ttext\n1\ta, b\n"),
    ],
)
def test_delimiters(read: Any, name: str, data: str) -> None:
    assert texts(read(name, data)) == ["a, b"]


def test_bad_rows_cost_themselves_only(read: Any) -> None:
    found = read("d.csv", 'id,text\n1,one\n2\n3,"three\n4,four\n5,a,b\n6,six,\n')
    assert texts(found) == ["one", "-", "-", "four", "-", "six"]
    assert [each.reason for each in found if not hasattr(each, "text")] == [
        "the text is empty",
        "a quote is opened and never closed",
        "the row has 3 fields, the header 2: quote fields that hold the delimiter",
    ]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ("", "the file is empty"),
        ("\n \n", "the file is empty"),
        ("text\n", "the file holds no records"),
        ("0,1\n2,3\n", "there is: 0, 1; name it in reading.text_field (--text-field)"),
        ('"never closed\n', "a quote is opened and never closed"),
        ("name,year\nAda,1815\n", "no field named"),  # headers without a text
        ("id,2019,2020\na,1,2\n", "no field named"),
        ("Ada,Bob\nCleo,Dan\n", "no field named"),
        (",,x\n1,2,3\n", "no field named"),
    ],
)
def test_csv_without_documents(read: Any, data: str, reason: str) -> None:
    (found,) = read("d.csv", data)
    assert reason in found.reason
    assert "put a line above" not in found.reason or data[0].isdigit()


@pytest.mark.parametrize(
    "data",
    [
        "1,2.5,2024-01-31\n2,3.5,2024-02-01\n",
        "17;The keeper lit the lamp at dusk.;;\n18;The boat came back in the morning.;;\n",
        "1\thttps://example.org/a\t-3,5 %\ttrue\n",
        "31/01/2024 10:15,12:30,ann@example.org\n",
    ],
)
@pytest.mark.parametrize("field", [None, "text"])
def test_a_table_without_a_header_is_told_to_get_one(read: Any, data: str, field: str | None) -> None:
    (found,) = read("d.csv", data, text_field=field)
    assert "put a line above it that names the columns" in found.reason


# ---- Parquet


def parquet(columns: dict[str, Any], row_group_size: int = 2) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink, row_group_size=row_group_size)
    return sink.getvalue()


@starts_a_process
def test_rows_of_several_row_groups(read: Any) -> None:
    data = parquet({"Text": ["a", None, "", "d", "e"], "labels": [["x"], [], None, ["y", "z"], []], "n": range(5)})
    found = read("d.parquet", data)
    assert [each.record for each in found] == list(range(5))
    assert texts(found) == ["a", "-", "-", "d", "e"]
    assert (found[3].title, found[3].labels) == ("d", ("y", "z"))


@starts_a_process
def test_binary_large_and_dictionary_columns(read: Any) -> None:
    for array in (
        pa.array([b"caf\xc3\xa9"]),
        pa.array(["café"], pa.large_string()),
        pa.array(["café"]).dictionary_encode(),
    ):
        assert texts(read("d.pq", parquet({"content": array}))) == ["café"]


@starts_a_process
def test_parquet_without_documents_and_damaged(read: Any) -> None:
    assert "there is: a; name it" in read("d.parquet", parquet({"a": ["x"]}))[0].reason
    assert "no column 'acl'" in read("d.parquet", parquet({"text": ["x"]}), label_field="acl")[0].reason
    assert read("d.parquet", parquet({"text": pa.array([], pa.string())}))[0].reason == "the table has no rows"
    assert "not a string" in read("d.parquet", parquet({"text": [1]}))[0].reason
    assert "binary" in read("d.parquet", parquet({"text": [b"\x89PNG\x00\x00"]}))[0].reason
    good = parquet({"text": ["some text " * 50] * 100})
    broken = bytearray(good)
    broken[len(good) // 4 : len(good) // 4 + 200] = bytes(200)
    for data in (good[:-20], b"", bytes(broken)):
        assert any("cannot be read" in getattr(each, "reason", "") for each in read("d.parquet", data))


# ---- fields by option, labels and ids


def test_fields_by_option(read: Any) -> None:
    line = '{"text": "no", "Main": "yes", "head": "T\\nU", "who": ["a", "b", "a", " "]}'
    (found,) = read("d.jsonl", line, text_field="main", title_field="head", label_field="who")
    assert (found.text, found.title, found.labels) == ("yes", "T U", ("a", "b"))
    data = "a,b,c\none,two,three\n"
    (found,) = read("d.csv", data, text_field="b", title_field="a", label_field="c")
    assert (found.title, found.text, found.labels) == ("one", "two", ("three",))
    assert "no field 'z'" in read("d.jsonl", line, text_field="z")[0].reason
    assert "no field 'z'" in read("d.csv", data, text_field="z")[0].reason


@pytest.mark.parametrize(
    ("labels", "expected"), [('"hr"', ("hr",)), ('["a", 1]', ("a", "1")), ("null", ()), ("{}", None)]
)
def test_labels(read: Any, labels: str, expected: tuple[str, ...] | None) -> None:
    assert labels_of(read("d.jsonl", f'{{"text": "x", "label": {labels}, "tags": ["no"]}}')) == [expected]


def test_a_named_label_field_that_is_absent_hides_the_record(read: Any) -> None:
    found = read("d.jsonl", '{"text": "a", "acl": "x"}\n{"text": "b"}\n{"text": "c", "acl": null}', label_field="acl")
    assert labels_of(found) == [("x",), None, ()]
    assert found[1].reason.startswith("no field 'acl' with the labels; ")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.txt", "secret"),
        ("a.md", "# Title\nsecret"),
        ("a.md", "---\nwho: [x\n---\nsecret"),
        ("a.html", "<html><body><p>secret</p></body></html>"),
        ("a.json", '["secret"]'),
        ("a.json", '{"d1": "secret", "d2": "more"}'),
        ("a.jsonl", '"secret"'),
        ("a.csv", "text,labels\nsecret,x"),
    ],
)
def test_without_the_named_field_there_is_no_document(read: Any, name: str, content: str) -> None:
    assert all(isinstance(found, Document) for found in read(name, content)) or "[x\n" in content
    for found in read(name, content, label_field="who"):
        assert isinstance(found, Unreadable)
        assert "'who' with the labels" in found.reason


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.md", "---\nwho:\n---\nopen"),
        ("a.md", "---\nWho: []\n---\nopen"),
        ("a.jsonl", '{"text": "open", "who": null}'),
        ("a.csv", "text,who\nopen,"),
    ],
)
def test_an_empty_field_is_no_label(read: Any, name: str, content: str) -> None:
    (found,) = read(name, content, label_field="who")
    assert (found.text.strip(), found.labels) == ("open", ())


@pytest.mark.parametrize("delimiter", [",", "\t"])
@pytest.mark.parametrize("option", [None, "labels"])
def test_a_row_that_ends_before_its_labels_is_refused(read: Any, delimiter: str, option: str | None) -> None:
    rows = (["id", "text", "Labels", "year"], ["1", "a", "secret"], ["2", "b"], ["3", "c", ""])
    table = "".join(delimiter.join(row) + "\n" for row in rows)
    found = read("d.csv", table, label_field=option)
    assert labels_of(found) == [("secret",), None, ()]
    assert "the row ends before column 'Labels' with the labels" in found[1].reason


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.md", "---\nlabels:\nacl: [secret]\n---\ntext"),
        ("a.jsonl", '{"text": "text", "labels": null, "acl": ["secret"]}'),
        ("a.jsonl", '{"text": "text", "labels": [], "acl": "secret"}'),
        ("a.jsonl", '{"text": "text", "label": "secret", "acl": ["secret", "secret"]}'),
        ("a.csv", "labels,acl,text\n,secret,text"),
        ("a.csv", "Labels,labels,text\n,secret,text"),
    ],
)
def test_of_several_fields_for_labels_the_filled_one_holds(read: Any, name: str, content: str) -> None:
    assert labels_of(read(name, content)) == [("secret",)]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.md", "---\nlabels: a\nacl: [secret]\n---\ntext"),
        ("a.jsonl", '{"text": "text", "label": ["secret", "a"], "acl": "secret"}'),
        ("a.csv", "labels,acl,text\na,secret,text"),
    ],
)
def test_fields_for_labels_that_differ_are_refused_unless_one_is_named(read: Any, name: str, content: str) -> None:
    (found,) = read(name, content)
    assert "the fields with the labels differ; name the one that holds" in found.reason
    assert labels_of(read(name, content, label_field="acl")) == [("secret",)]


def test_a_named_field_for_labels_in_another_case_is_not_hidden_by_an_empty_one(read: Any) -> None:
    lines = '{"text": "a", "acl": "", "ACL": "hr"}\n{"text": "b", "acl": "x", "ACL": "hr"}'
    found = read("a.jsonl", lines, label_field="acl")
    assert labels_of(found) == [("hr",), None]
    assert found[1].reason == "the fields with the labels differ; keep one of them"


@pytest.mark.parametrize(
    ("content", "labels"),
    [
        ('{"acl": ["hr"], "records": [{"text": "x"}]}', None),
        ('{"Labels": "hr", "pages": ["x"]}', None),
        ('{"page_content": "x", "metadata": {"labels": "hr"}}', None),
        ('{"page_content": "x", "acl": "a", "metadata": {"labels": "hr"}}', ("a",)),
        ('{"page_content": "x", "metadata": {"labels": []}}', ()),
        ('{"acl": null, "records": [{"text": "x"}]}', ()),
    ],
)
def test_labels_around_or_within_a_record_are_refused_and_not_passed_over(read: Any, content: str, labels: Any) -> None:
    found = read("a.json", content)
    assert labels_of(found) == [labels]
    assert labels is not None or is_access_refusal(found[0].reason)


@pytest.mark.parametrize("option", [None, "labels"])
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.md", "---\nlabels: [secret]\nlabels: []\n---\ntext"),
        ("a.md", "---\n{labels: [secret], labels: []}\n---\ntext"),
        ("a.jsonl", '{"labels": ["secret"], "text": "text", "labels": []}'),
        ("a.json", '[{"labels": ["secret"], "text": "text", "l\\u0061bels": []}]'),
        ("a.csv", "labels,text,labels\nsecret,text,"),
    ],
)
def test_a_field_for_labels_that_is_there_twice_is_refused(read: Any, name: str, content: str, option: Any) -> None:
    (found,) = read(name, content, label_field=option)
    assert "the field 'labels' with the labels is there twice" in found.reason
    assert isinstance(found, Unreadable)


def test_other_fields_may_be_there_twice(read: Any) -> None:
    for name, content in (
        ("a.md", "---\ntags: a\ntags: b\n---\ntext"),
        ("a.jsonl", '{"text": "text", "n": 1, "n": 2}'),
        ("a.csv", "n,text,n\n1,text,2"),
    ):
        assert texts(read(name, content)) == ["text"]


@starts_a_process
def test_several_columns_for_labels_in_parquet(read: Any) -> None:
    found = read("a.parquet", parquet({"text": ["a", "b"], "labels": [None, ["x"]], "acl": [["secret"], ["y"]]}))
    assert labels_of(found) == [("secret",), None]
    twice = pa.table([["a"], [["secret"]], pa.array([[]], pa.list_(pa.string()))], names=["text", "labels", "labels"])
    sink = io.BytesIO()
    pq.write_table(twice, sink)
    assert "'labels' with the labels is there twice" in read("b.parquet", sink.getvalue())[0].reason


def ids(file: Path, options: ReadOptions | None = None) -> list[str]:
    (source,) = find_inputs([str(file)])
    found = read_source(source, options or ReadOptions())
    return [each.source_id if isinstance(each, Document) else f"! {each.reason}" for each in found]


@starts_a_process
def test_ids_in_every_format(tmp_path: Path) -> None:
    records = [{"id": "a", "text": "one"}, {"id": "b", "text": "two"}]
    (tmp_path / "a.json").write_text(json.dumps(records))
    (tmp_path / "b.csv").write_text("id,text\na,one\nb,two\n")
    pq.write_table(pa.Table.from_pylist(records), tmp_path / "c.parquet")
    (tmp_path / "d.json").write_text(json.dumps({"a": "one", "b": "two"}))
    (tmp_path / "e.json").write_text(json.dumps({"a": {"text": "one"}, "x": {"text": "two", "id": "b"}}))
    for file in sorted(tmp_path.iterdir()):
        assert ids(file) == ["a", "b"], file.name
    for file in (tmp_path / "b.csv", tmp_path / "c.parquet"):
        assert "no field 'key' with the id" in ids(file, ReadOptions(id_field="key"))[0]


def test_an_id_is_the_owners_and_must_be_there_where_its_field_was_named(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    for name in ("id", "Doc_ID"):
        records = [{name: "Ab/Ç 1 ", "text": "one"}, {name: 7, "text": "two"}, {name: None, "text": "three"}]
        file.write_text("".join(json.dumps(record) + "\n" for record in records))
        assert ids(file) == ["Ab/Ç 1", "7", ""], "case and form are kept"
    file.write_text('{"id": "a", "key": "k", "text": "one"}\n{"id": "b", "text": "two"}\n')
    first, second = ids(file, ReadOptions(id_field="key"))
    assert first == "k"
    assert "no field 'key' with the id" in second


# ---- records with any fields

ROWS = [{"id": "a", "n": 1, "gold": ["x", "y"]}, {"id": "b", "n": None, "gold": []}]


def fields(file: Path) -> list[object]:
    (source,) = find_inputs([str(file)])
    return [row.fields if isinstance(row, Row) else row.reason for row in read_rows(source)]


@starts_a_process
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
    cells = {"1": "Who, and; what\n?", "2": None, "3": None}
    assert fields(tmp_path / name) == [{"id": own, "question": text} for own, text in cells.items()]


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
    for found in (read_rows(source), read_source(source, ReadOptions())):
        unread = [each.name for each in found if isinstance(each, Unreadable)]
        path = unread[0].partition(",")[0]
        assert path.endswith(name)
        assert unread == [path if number is None else f"{path}, record {number}" for number in records]


@pytest.mark.parametrize(
    ("name", "last", "is_whole"),
    [
        ("a.jsonl", '{"text": ""}', True),
        ("a.jsonl", '{"text": null}', True),
        ("a.jsonl", '{"text": 3}', True),
        ("a.jsonl", '{"other": "x"}', True),
        ("a.jsonl", '{"text": "x", "labels": {"a": 1}}', True),
        ("a.jsonl", "3", True),
        ("a.jsonl", '{"text": "x', False),
        ("a.csv", "a,b,c", True),
        ("a.csv", "2,", True),
        ("a.csv", 'a,"b', False),
        ("b.csv", "2,y", False),
    ],
)
def test_a_record_that_breaks_off_is_told_from_one_that_is_refused_for_what_it_holds(
    read: Any, name: str, last: str, is_whole: bool
) -> None:
    first = {"a.csv": "id,text\n1,x", "b.csv": "id,text,acl\n1,x,hr"}.get(name, '{"text": "x"}')
    assert is_whole_record(read(name, f"{first}\n{last}\n")[1].reason) == is_whole


def test_a_header_that_cannot_be_used_is_of_the_whole_file(read: Any) -> None:
    for text, whole in (("id,n\n1,2\n", True), ("id,text\n1,\n", False)):
        (found,) = read("a.csv", text)
        assert (found.is_file, found.name.endswith(", record 1")) == (whole, not whole)


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("a.jsonl", b"", "no records"),
        ("a.json", b"7", "a number, not a list"),
        ("a.jsonl", b"[1]\n", "the record is a list, not an object"),
        ("a.json.gz", gzip.compress(b"[]", mtime=0)[:12], "truncated"),
        pytest.param("a.parquet", b"PAR1", "cannot be read", marks=starts_a_process),
        ("a.txt", b"Who?", "txt has no records"),
        ("a.csv", b"\x00\x01\x02\xff\xfe\x00\x00", ""),
    ],
)
def test_files_that_hold_no_records(tmp_path: Path, name: str, data: bytes, reason: str) -> None:
    (tmp_path / name).write_bytes(data)
    (found,) = fields(tmp_path / name)
    assert isinstance(found, str)
    assert reason in found
