from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from hirag_dist.readers import Document

Read = Callable[..., list[Any]]


def texts(found: list[Any]) -> list[tuple[str, str]]:
    assert all(isinstance(each, Document) for each in found), found
    assert [each.record for each in found] == list(range(len(found)))
    return [(each.title, each.text) for each in found]


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
def test_shapes_of_json(read: Read, value: object, expected: list[tuple[str, str]]) -> None:
    assert texts(read("d.json", json.dumps(value))) == expected


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "the text is empty"),
        ("{}", "no field named"),
        ('["a", 1, null]', None),
        ('{"title": "T", "summary": "S"}', "no field named text, .*; there is: title, summary"),
        ('{"a": ["x"], "b": ["y"]}', r"several lists \(a, b\)"),
        ('{"text": 5}', "field 'text' is a number, not a string"),
        ('[{"text": null}]', "field 'text' is null, so that there is no text"),
        ('[\n{"a": }]', r"not valid JSON: Expecting value \(line 2, column 7\)"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_json_without_documents(read: Read, content: str, reason: str | None) -> None:
    found = read("d.json", content)
    if reason is None:
        assert [getattr(each, "reason", "") for each in found] == [
            "",
            "the record is a number, not an object or a string",
            "the record is null, not an object or a string",
        ]
    else:
        (one,) = found
        assert re.search(reason, one.reason), one.reason


def test_json_lines_keep_what_is_good(read: Read) -> None:
    lines = b'\xef\xbb\xbf{"text": "one"}\r\n\r\nnot json\n   \n["list"]\n{"text": "caf\xe9"}\n"two"\n'
    lines += b'{"x": 1}\n{"text": "three"}'
    found = read("d.jsonl", lines)
    assert [each.record for each in found] == list(range(7))
    assert [getattr(each, "text", "-") for each in found] == ["one", "-", "-", "café", "two", "-", "three"]
    assert found[1].reason == "line 3 is not valid JSON: Expecting value (column 1)"


def test_surrogates_line_separators_and_huge_numbers(read: Read) -> None:
    digits = "9" * 10_000
    (found,) = read("d.jsonl", f'{{"text": "a\\ud800\\u0000b\u2028c", "n": {digits}, "n": {digits}}}')
    assert found.text == "a\ufffdb\u2028c"


def test_fields_by_option(read: Read) -> None:
    line = '{"text": "no", "Main": "yes", "head": "T\\nU", "who": ["a", "b", "a", " "]}'
    (found,) = read("d.jsonl", line, text_field="main", title_field="head", label_field="who")
    assert (found.text, found.title, found.labels) == ("yes", "T U", ("a", "b"))
    (missing,) = read("d.jsonl", line, text_field="body")
    assert "no field 'body'" in missing.reason


@pytest.mark.parametrize(
    ("labels", "expected"), [('"hr"', ("hr",)), ('["a", 1]', ("a", "1")), ("null", ()), ("{}", None)]
)
def test_labels(read: Read, labels: str, expected: tuple[str, ...] | None) -> None:
    (found,) = read("d.jsonl", f'{{"text": "x", "label": {labels}, "tags": ["no"]}}')
    assert getattr(found, "labels", None) == expected


def test_a_named_label_field_that_is_absent_hides_the_record(read: Read) -> None:
    found = read("d.jsonl", '{"text": "a", "acl": "x"}\n{"text": "b"}\n{"text": "c", "acl": null}', label_field="acl")
    assert [getattr(each, "labels", None) for each in found] == [("x",), None, ()]
    assert found[1].reason.startswith("no field 'acl' with the labels; ")
